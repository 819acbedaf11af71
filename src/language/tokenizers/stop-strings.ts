import { InputError, show } from '../../base/errors.ts'
import { REPLACEMENT, type Tokenizer } from './tokenizer.ts'

/**
 * Finds stop strings in sampled tokens, wherever in tokens they begin and end. Each token costs decoding the last n + 1
 * tokens, where n is the longest stop string's number of bytes. Special tokens are spelled out, as in `transformers`: a
 * stop string may contain one, and one between two letters keeps them apart.
 * @throws InputError for a stop string that is empty or contains U+FFFD, which replaces invalid bytes.
 * @example
 * const stops = new StopStrings(tokenizer, ['</answer>'])
 * if (stops.push(id) !== null) … // The turn is over.
 */
export class StopStrings {
  readonly #tokenizer: Tokenizer
  readonly #strings: readonly string[]
  /** A token has at least one byte, so a stop string spans at most this many; one more keeps its start whole. */
  readonly #numTokens: number
  readonly #tail: number[] = []

  constructor(tokenizer: Tokenizer, strings: readonly string[]) {
    if (!Array.isArray(strings)) throw new InputError('stopStrings', show(strings), 'a list of texts')
    for (const string of strings) {
      if (typeof string !== 'string' || string === '' || string.includes(REPLACEMENT)) {
        throw new InputError('stop string', show(string), `a non-empty text without U+FFFD`)
      }
    }
    this.#tokenizer = tokenizer
    this.#strings = strings
    this.#numTokens = 1 + Math.max(0, ...strings.map((string) => new TextEncoder().encode(string).length))
  }

  /** Takes the next id. Returns the stop string that it completes, or null; of several, the one that began first. */
  push(id: number): string | null {
    if (this.#strings.length === 0) return null
    this.#tail.push(id)
    if (this.#tail.length > this.#numTokens) this.#tail.shift()
    const text = this.#tokenizer.decode(this.#tail)
    let found: string | null = null
    let first = Infinity
    for (const string of this.#strings) {
      const at = text.indexOf(string)
      if (at < 0 || at >= first) continue
      found = string
      first = at
    }
    if (found !== null) this.clear()
    return found
  }

  clear(): void {
    this.#tail.length = 0
  }
}
