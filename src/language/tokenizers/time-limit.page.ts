/** The body of `time-limit.ts` in a page, which cannot stop synchronous work. The browser reports a page that hangs. */
import type * as node from './time-limit.ts'

export const withinTime: typeof node.withinTime = (_limitMs, call) => call()

export class TimeLimitError extends Error {
  override readonly name = 'TimeLimitError'
}
