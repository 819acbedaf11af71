/** Request fields that change no answer: each is counted by name, and logged once to the terminal. */
import { RequestError } from '../../base/http/server.ts'

/** Maximum names counted, since clients choose them. Further names are counted together. */
const MOST_NAMES = 256
const OTHERS = 'others'

export class Hints {
  readonly #isStrict: boolean
  readonly #counts = new Map<string, number>()

  /** A strict server refuses unknown fields. */
  constructor(isStrict = false) {
    this.#isStrict = isStrict
  }

  get counts(): Readonly<Record<string, number>> {
    return Object.fromEntries(this.#counts)
  }

  /** Counts a field that is known to change nothing. */
  add(name: string, near?: string): void {
    const key = this.#counts.has(name) || this.#counts.size < MOST_NAMES ? name.slice(0, 64) : OTHERS
    const count = this.#counts.get(key) ?? 0
    this.#counts.set(key, count + 1)
    if (count > 0) return
    console.error(`colonnade: requests have the field ${JSON.stringify(key)}, which changes no answer${meant(near)}`)
  }

  /** Counts an unknown field; `near` finds a similar known one. @throws RequestError 400 if the server is strict. */
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
