/** The plain bodies that this runtime has. */
import type { Kernels } from './kernels.ts'
import * as plain from './plain.ts'

/** Whether all kernels have plain bodies here, so that they are a build of their own. */
export const hasPlain: boolean = true

/** The bodies that stand beside compiled ones. */
export const beside: Kernels = plain
