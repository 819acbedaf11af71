/**
 * Values by the messages that a conversation begins with, which are kept as a hash. Agents send a whole conversation at each call, so
 * finding where the last call ended reads each message once, at the speed of one native hash, and stores none of them.
 */
import { createHash, type Hash } from 'node:crypto'

/** The messages of a conversation, read from its beginning on. */
export class Beginning {
  readonly told: readonly string[]
  readonly #hash: Hash = createHash('sha256')
  #numRead = 0

  /** @param told each message as a text from which its end can be read */
  constructor(told: readonly string[]) {
    this.told = told
  }

  /** The hash of the first `length` messages, which are no fewer than those read before. */
  at(length: number): string {
    this.#hash.update(this.told.slice(this.#numRead, length).join(''))
    this.#numRead = length
    return this.#hash.copy().digest('base64')
  }

  /** The hash of all messages and `message` behind them. */
  before(message: string): string {
    this.at(this.told.length)
    return this.#hash.copy().update(message).digest('base64')
  }
}

export class Beginnings<Value> {
  readonly #values = new Map<string, Value>()
  /** The numbers of messages behind which there are values, ascending. */
  readonly #lengths: number[] = []

  /** The result of `taken` for the value of the longest beginning, at most `most` of these messages, that it accepts; null without one. */
  find<Taken>(beginning: Beginning, most: number, taken: (value: Value, length: number) => Taken | null): Taken | null {
    const lengths = this.#lengths.filter((length) => length <= most)
    const takenAt = (read: Beginning, length: number): Taken | null => {
      const value = this.#values.get(read.at(length))
      return value === undefined ? null : taken(value, length)
    }
    const last = lengths.pop()
    if (last === undefined) return null
    // A conversation that continues is found at once. Any other one is read once more, for any number of lengths.
    const longest = takenAt(beginning, last)
    if (longest !== null) return longest
    const again = new Beginning(beginning.told)
    let best: Taken | null = null
    for (const length of lengths) best = takenAt(again, length) ?? best
    return best
  }

  get(hash: string): Value | undefined {
    return this.#values.get(hash)
  }

  /** Keeps a value behind as many messages as `length`, whose hash `Beginning` made. */
  set(hash: string, length: number, value: Value): void {
    this.#values.set(hash, value)
    const at = this.#lengths.findLastIndex((each) => each <= length)
    if (this.#lengths[at] !== length) this.#lengths.splice(at + 1, 0, length)
  }
}
