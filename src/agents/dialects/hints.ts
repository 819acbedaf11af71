/** Fields of requests that change no answer: each is counted by its name, and the terminal is told of it once. */
import { RequestError } from '../../base/http/server.ts'

/** Names that are counted, at most: clients choose them. Others are counted together. */
const MOST_NAMES = 256
const OTHERS = 'others'

/** The hints of a server's requests. */
export class Hints {
  readonly #isStrict: boolean
  readonly #counts = new Map<string, number>()

  /** A strict server refuses fields that it does not know. */
  constructor(isStrict = false) {
    this.#isStrict = isStrict
  }

  /** How many requests had each field. */
  get counts(): Readonly<Record<string, number>> {
    return Object.fromEntries(this.#counts)
  }

  /** Counts a field that is known to be only a hint. */
  add(name: string, near?: string): void {
    const key = this.#counts.has(name) || this.#counts.size < MOST_NAMES ? name.slice(0, 64) : OTHERS
    const count = this.#counts.get(key) ?? 0
    this.#counts.set(key, count + 1)
    if (count > 0) return
    console.error(`colonnade: requests have the field ${JSON.stringify(key)}, which changes no answer${meant(near)}`)
  }

  /** Counts a field that nobody knows; `near` finds a known one that may be meant. @throws RequestError 400 where the server is strict. */
  unknown(name: string, near: () => string | undefined): void {
    if (this.#isStrict) {
      throw new RequestError(400, `unknown field ${name}${meant(near())}`, { param: name, code: 'unknown_field' })
    }
    this.add(name, near())
  }
}

function meant(near: string | undefined): string {
  return near === undefined ? '' : ` (did you mean ${near}?)`
}
