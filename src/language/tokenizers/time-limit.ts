/**
 * A limit of time for work in the caller's own thread that never looks at a clock, such as the regular expressions of a
 * tokenizer: one of theirs can take longer than the world is old for thirty characters. V8 ends the work where it is, on
 * any thread. A call costs about 50 µs more.
 */
import { type Context, createContext, Script } from 'node:vm'

let context: (Context & { call: (() => unknown) | null }) | undefined
let script: Script | undefined

/**
 * What `call` gives, unless it has not returned after so many milliseconds: then it is ended, and what it was changing may
 * be half changed.
 * @throws TimeLimitError for a call that was ended, and whatever it throws itself.
 */
export function withinTime<T>(limitMs: number, call: () => T): T {
  context ??= createContext({ call: null }) as NonNullable<typeof context>
  script ??= new Script('call()')
  context.call = call
  try {
    return script.runInContext(context, { timeout: Math.ceil(limitMs) }) as T
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException | null)?.code !== 'ERR_SCRIPT_EXECUTION_TIMEOUT') throw cause
    throw new TimeLimitError(limitMs, { cause })
  } finally {
    context.call = null
  }
}

/** A call that did not return in time. */
export class TimeLimitError extends Error {
  override readonly name = 'TimeLimitError'

  constructor(limitMs: number, options?: ErrorOptions) {
    super(`no end of it in ${Number((limitMs / 1000).toPrecision(3))} s`, options)
  }
}
