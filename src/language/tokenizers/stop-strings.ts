import { InputError, show } from '../../base/errors.ts'
import { REPLACEMENT, type Tokenizer } from './tokenizer.ts'

/**
 * Finds texts that end a turn in what is being sampled, token by token, wherever in tokens they begin and end. Each token
 * costs the decoding of the last few: as many as the longest stop string has bytes, and one. Special tokens are spelled out for
 * this, as `transformers` has it: a stop string may name one, and one between two letters keeps them apart.
 * @throws InputError for a stop string that is empty or has U+FFFD, which stands for what is no text.
 * @example
 * const stops = new StopStrings(tokenizer, ['</answer>'])
 * if (stops.push(id) !== null) … // The turn is over.
 */
export class StopStrings {
  readonly #tokenizer: Tokenizer
  readonly #strings: readonly string[]
  /** A token has a byte at least, so a stop string lies within this many; one more keeps what it begins with whole. */
  readonly #numTokens: number
  readonly #tail: number[] = []

  constructor(tokenizer: Tokenizer, strings: readonly string[]) {
    if (!Array.isArray(strings)) throw new InputError('stopStrings', show(strings), 'a list of texts')
    for (const string of strings) {
      if (typeof string !== 'string' || string === '' || string.includes(REPLACEMENT)) {
        throw new InputError('stop string', show(string), `a text that is not empty, without U+FFFD`)
      }
    }
    this.#tokenizer = tokenizer
    this.#strings = strings
    this.#numTokens = 1 + Math.max(0, ...strings.map((string) => new TextEncoder().encode(string).length))
  }

  /** Takes the next id; the stop string that it completes (of several, the one that began first), else null. */
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

  /** Forgets what came before: a new turn begins. */
  clear(): void {
    this.#tail.length = 0
  }
}
