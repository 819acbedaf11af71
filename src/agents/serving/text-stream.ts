/** Streams the text of tokens: cut at a stop string, and held back while the next token may still change it. */
import { TextOfIds } from '../../language/tokenizers/token-texts.ts'
import type { Tokenizer } from '../../language/tokenizers/tokenizer.ts'

/** Turns the ids of one turn into text, piece by piece. */
export class TextStream {
  readonly #endIds: readonly number[]
  readonly #stopStrings: readonly string[]
  readonly #text: TextOfIds
  /** Tokens before which no stop string ends the turn. */
  readonly #minTokens: number
  #numTokens = 0
  /** Text that may be the start of a stop string. */
  #held = ''
  /** The stop string that ended the turn, if one did. */
  stopString: string | null = null

  constructor(tokenizer: Tokenizer, stopStrings: readonly string[], skipSpecial: boolean, minTokens = 0) {
    this.#endIds = tokenizer.endIds
    this.#stopStrings = stopStrings
    this.#minTokens = minTokens
    this.#text = new TextOfIds(tokenizer, { skipSpecial })
  }

  /** The text that became certain with this id; '' for an end token. */
  push(id: number): string {
    this.#numTokens++
    return this.#endIds.includes(id) ? '' : this.#release(this.#text.push(id))
  }

  /** The remaining text, when no more ids come. */
  end(): string {
    return this.#release(this.#text.end(), true)
  }

  #release(text: string, isLast = false): string {
    if (this.stopString !== null) return ''
    const all = this.#held + text
    let at = Infinity
    for (const stop of this.#stopStrings) {
      const found = all.indexOf(stop)
      if (found < 0 || found >= at) continue
      at = found
      this.stopString = stop
    }
    if (this.stopString !== null && this.#numTokens < this.#minTokens) {
      this.stopString = null
      this.#held = ''
      return all
    }
    const keep = this.stopString !== null ? all.length - at : isLast ? 0 : this.#beginning(all)
    this.#held = this.stopString === null ? all.slice(all.length - keep) : ''
    return all.slice(0, all.length - keep)
  }

  /** How many of a text's last characters may begin a stop string. */
  #beginning(text: string): number {
    let most = 0
    for (const stop of this.#stopStrings) {
      for (let length = Math.min(stop.length - 1, text.length); length > most; length--) {
        if (text.endsWith(stop.slice(0, length))) most = length
      }
    }
    return most
  }
}
