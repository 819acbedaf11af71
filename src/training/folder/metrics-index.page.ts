/** The body of `metrics-index.ts` in a page, where no dashboard reads the files. */
import type * as node from './metrics-index.ts'

export const keepMetricsIndex: typeof node.keepMetricsIndex = () => Promise.resolve()
