/** Text of tokens as they come: cut at a stop string, and held back where the next token may still change what it says. */
import { REPLACEMENT, type Tokenizer } from '../text/tokenizer.ts'

/** Turns the ids of one turn into text, piece by piece. */
export class TextStream {
  readonly #tokenizer: Tokenizer
  readonly #stopStrings: readonly string[]
  readonly #skipSpecial: boolean
  readonly #ids: number[] = []
  /** Ids from here on are decoded; those up to the second have been told of. */
  #from = 0
  #told = 0
  /** Text that may be the beginning of a stop string. */
  #held = ''
  /** The stop string that ended it, if one did. */
  stopString: string | null = null

  constructor(tokenizer: Tokenizer, stopStrings: readonly string[], skipSpecial: boolean) {
    this.#tokenizer = tokenizer
    this.#stopStrings = stopStrings
    this.#skipSpecial = skipSpecial
  }

  /** The text that is certain with this id; an end token has none. */
  push(id: number): string {
    if (this.#tokenizer.endIds.includes(id)) return ''
    this.#ids.push(id)
    return this.#release(this.#decoded(false))
  }

  /** What is left when no more ids come. */
  end(): string {
    return this.#release(this.#decoded(true), true)
  }

  /** The text of ids that were not told of. Their neighbors before them are decoded too: they may decide on a space. */
  #decoded(isLast: boolean): string {
    const options = { skipSpecial: this.#skipSpecial }
    const before = this.#tokenizer.decode(this.#ids.slice(this.#from, this.#told), options)
    const now = this.#tokenizer.decode(this.#ids.slice(this.#from), options)
    if (!isLast && (now.length <= before.length || now.endsWith(REPLACEMENT))) return ''
    this.#from = this.#told
    this.#told = this.#ids.length
    return now.slice(before.length)
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
    const keep = this.stopString !== null ? all.length - at : isLast ? 0 : this.#beginning(all)
    this.#held = this.stopString === null ? all.slice(all.length - keep) : ''
    return all.slice(0, all.length - keep)
  }

  /** How many of a text's last characters are the beginning of a stop string. */
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
