/** The plain bodies of the kernels of grid games. */
import * as plain from './plain.ts'

export const bodies = { ...plain }
