/** What each token of a text says: a character that several tokens spell stands at the last of them. */
import { type DecodeOptions, REPLACEMENT, type Tokenizer } from './tokenizer.ts'

/** Ids that may wait for the rest of a character, of which UTF-8 has at most four bytes; then the first of them are told. */
const [WAITING_MAX, BYTES_MAX] = [8, 4]

/** Text of ids as they come, held back where the next id may still change what it says. */
export class TextOfIds {
  readonly #decode: (ids: readonly number[]) => string
  /** Ids that were told last, which may decide on a space, and those that were not. */
  #ids: number[] = []
  #told = 0

  constructor(tokenizer: Pick<Tokenizer, 'decode'>, options: DecodeOptions = {}) {
    this.#decode = (ids) => tokenizer.decode(ids, options)
  }

  /** The text that is certain with this id. */
  push(id: number): string {
    this.#ids.push(id)
    const text = this.#tell(this.#ids.length, false)
    const isLong = text === '' && this.#ids.length - this.#told > WAITING_MAX
    // No character begins before the last of these and is still not whole.
    return isLong ? this.#tell(this.#ids.length - BYTES_MAX + 1, true) : text
  }

  /** What is left when no more ids come. */
  end(): string {
    return this.#tell(this.#ids.length, true)
  }

  /** Tells the text of the ids up to a place; only if it is certain, unless it must. */
  #tell(to: number, must: boolean): string {
    const before = this.#decode(this.#ids.slice(0, this.#told))
    const now = this.#decode(this.#ids.slice(0, to))
    if (!must && (now.length <= before.length || now.endsWith(REPLACEMENT))) return ''
    this.#ids = this.#ids.slice(this.#told)
    this.#told = to - this.#told
    return now.slice(before.length)
  }
}

/** Tells what each id of a text says. Ids that say the same wherever they stand are decoded once. */
export class TokenTexts {
  readonly #tokenizer: Pick<Tokenizer, 'decode'>
  readonly #known = new Map<number, string>()

  constructor(tokenizer: Pick<Tokenizer, 'decode'>) {
    this.#tokenizer = tokenizer
  }

  /** A text an id, together the text of all of them; '' where the character goes on. */
  of(ids: ArrayLike<number>): string[] {
    const texts = Array.from(ids, (id, i) => (i === 0 ? this.#tokenizer.decode([id]) : this.#textOf(id)))
    for (let from = 0, to = 0; from < texts.length; from = to + 1) {
      for (to = from; to < texts.length && texts[to]!.includes(REPLACEMENT); ) to++
      if (to > from) this.#spell(ids, from, to, texts)
    }
    // Some tokenizers write an id otherwise beside others: these are asked for each.
    if (texts.join('') !== this.#tokenizer.decode(ids)) this.#spell(ids, 0, ids.length, texts)
    return texts
  }

  /** What an id says that does not begin a text. */
  #textOf(id: number): string {
    let text = this.#known.get(id)
    if (text === undefined) {
      const { length } = this.#tokenizer.decode([id])
      text = this.#tokenizer.decode([id, id]).slice(length)
      this.#known.set(id, text)
    }
    return text
  }

  /** Writes the texts of ids `from` to `to`, each decoded beside those before it. */
  #spell(ids: ArrayLike<number>, from: number, to: number, texts: string[]): void {
    const stream = new TextOfIds(this.#tokenizer)
    if (from > 0) stream.push(ids[from - 1]!)
    for (let i = from; i < to; i++) texts[i] = stream.push(ids[i]!)
    if (to > from) texts[to - 1] += stream.end()
  }
}
