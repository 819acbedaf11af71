/** The body of `time-limit.ts` in a page, which cannot stop synchronous work: a page that hangs is told so by its browser. */
import type * as node from './time-limit.ts'

export const withinTime: typeof node.withinTime = (_limitMs, call) => call()

export class TimeLimitError extends Error {
  override readonly name = 'TimeLimitError'
}
