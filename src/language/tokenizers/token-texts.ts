/** The text of each token. A character that several tokens spell belongs to the last of them. */
import { type DecodeOptions, REPLACEMENT, type Tokenizer } from './tokenizer.ts'

/** Ids that may wait for the last bytes of a character (UTF-8 has at most four bytes); beyond that the first are emitted. */
const [WAITING_MAX, BYTES_MAX] = [8, 4]

/** Decodes ids as they come. Text is held back while the next id may still change it. */
export class TextOfIds {
  readonly #decode: (ids: readonly number[]) => string
  /** The ids emitted last, which may decide on a space, and those not emitted yet. */
  #ids: number[] = []
  #told = 0

  constructor(tokenizer: Pick<Tokenizer, 'decode'>, options: DecodeOptions = {}) {
    this.#decode = (ids) => tokenizer.decode(ids, options)
  }

  /** Returns the text that became certain with this id. */
  push(id: number): string {
    this.#ids.push(id)
    const text = this.#tell(this.#ids.length, false)
    const isLong = text === '' && this.#ids.length - this.#told > WAITING_MAX
    // Any character that begins before the last BYTES_MAX ids is complete.
    return isLong ? this.#tell(this.#ids.length - BYTES_MAX + 1, true) : text
  }

  /** Returns the remaining text, when no more ids come. */
  end(): string {
    return this.#tell(this.#ids.length, true)
  }

  /** Emits the text up to an index: only if it is certain, unless `must`. */
  #tell(to: number, must: boolean): string {
    const before = this.#decode(this.#ids.slice(0, this.#told))
    const now = this.#decode(this.#ids.slice(0, to))
    if (!must && (now.length <= before.length || now.endsWith(REPLACEMENT))) return ''
    this.#ids = this.#ids.slice(this.#told)
    this.#told = to - this.#told
    return now.slice(before.length)
  }
}

/** Returns each id's text. Ids whose text does not depend on their neighbors are decoded once. */
export class TokenTexts {
  readonly #tokenizer: Pick<Tokenizer, 'decode'>
  readonly #known = new Map<number, string>()

  constructor(tokenizer: Pick<Tokenizer, 'decode'>) {
    this.#tokenizer = tokenizer
  }

  /** One text per id; joined they are the whole text. '' if a character continues. */
  of(ids: ArrayLike<number>): string[] {
    const texts = Array.from(ids, (id, i) => (i === 0 ? this.#tokenizer.decode([id]) : this.#textOf(id)))
    for (let from = 0, to = 0; from < texts.length; from = to + 1) {
      for (to = from; to < texts.length && texts[to]!.includes(REPLACEMENT); ) to++
      if (to > from) this.#spell(ids, from, to, texts)
    }
    // With some tokenizers an id's text depends on its neighbors: decode each in context.
    if (texts.join('') !== this.#tokenizer.decode(ids)) this.#spell(ids, 0, ids.length, texts)
    return texts
  }

  /** The text of an id that is not at the start. */
  #textOf(id: number): string {
    let text = this.#known.get(id)
    if (text === undefined) {
      const { length } = this.#tokenizer.decode([id])
      text = this.#tokenizer.decode([id, id]).slice(length)
      this.#known.set(id, text)
    }
    return text
  }

  /** Writes the texts of ids `from` to `to`, each decoded in context. */
  #spell(ids: ArrayLike<number>, from: number, to: number, texts: string[]): void {
    const stream = new TextOfIds(this.#tokenizer)
    if (from > 0) stream.push(ids[from - 1]!)
    for (let i = from; i < to; i++) texts[i] = stream.push(ids[i]!)
    if (to > from) texts[to - 1] += stream.end()
  }
}
