/** A vocabulary's tokens sorted by their bytes, and which of them an automaton allows next. */
import { InputError } from '../../base/errors.ts'
import type { Automaton, Position } from './automaton.ts'

/** The most states that one mask may visit, so that no grammar stops other answers. */
const VISITED_MAX = 300_000

export class Vocabulary {
  readonly numWords: number
  readonly #bytes: readonly Uint8Array[]
  readonly #endIds: readonly number[]
  /** The tokens that have bytes, sorted by them, and how many leading bytes each shares with the one before. */
  readonly #order: Int32Array
  readonly #common: Int32Array
  #walks = 0

  /** Tokens without bytes are never allowed, except the end tokens. */
  constructor(bytes: readonly Uint8Array[], endIds: readonly number[], numWords: number) {
    this.numWords = numWords
    this.#bytes = bytes
    this.#endIds = endIds
    const tokens = bytes.flatMap(({ length }, token) => (length === 0 ? [] : [token]))
    this.#order = Int32Array.from(tokens.sort((a, b) => order(bytes[a]!, bytes[b]!) || a - b))
    this.#common = this.#order.map((token, i) =>
      i === 0 ? 0 : commonLength(bytes[this.#order[i - 1]!]!, bytes[token]!),
    )
  }

  isEnd(token: number): boolean {
    return this.#endIds.includes(token)
  }

  bytesOf(token: number): Uint8Array {
    return this.#bytes[token]!
  }

  /**
   * The tokens allowed at a position, one bit each. The same position gives the same array.
   * @throws InputError if there are too many readings of what may follow.
   */
  maskAt(automaton: Automaton, position: Position): Int32Array {
    position.mask ??= this.#mask(automaton, position)
    return position.mask
  }

  #mask(automaton: Automaton, position: Position): Int32Array {
    const mask = new Int32Array(this.numWords)
    const walk = ++this.#walks
    let visited = 0
    if (position.isEnd) for (const token of this.#endIds) mask[token >> 5]! |= 1 << (token & 31)
    const path: Position[] = [position]
    // How many leading bytes of the last token were allowed.
    let alive = 0
    for (let i = 0; i < this.#order.length; i++) {
      const token = this.#order[i]!
      const bytes = this.#bytes[token]!
      const common = this.#common[i]!
      if (common > alive) continue // It shares the byte at which the one before was refused.
      let depth = Math.min(common, alive)
      let at: Position | null = path[depth]!
      while (depth < bytes.length) {
        at = at.next[bytes[depth]!] ?? automaton.after(at, bytes[depth]!)
        if (at === null) break
        path[++depth] = at
        if (at.walk === walk) continue
        at.walk = walk
        visited += at.cost
        if (visited > VISITED_MAX) {
          throw new InputError(
            'grammar',
            `more than ${VISITED_MAX} readings of the next token`,
            'a less ambiguous grammar',
          )
        }
      }
      alive = depth
      if (depth === bytes.length) mask[token >> 5]! |= 1 << (token & 31)
    }
    automaton.keep(this.numWords >> 4)
    return mask
  }
}

function commonLength(a: Uint8Array, b: Uint8Array): number {
  let length = 0
  while (length < a.length && length < b.length && a[length] === b[length]) length++
  return length
}

/** Below 0 where `a` comes first, by bytes and then by length. */
function order(a: Uint8Array, b: Uint8Array): number {
  const common = commonLength(a, b)
  return common < Math.min(a.length, b.length) ? a[common]! - b[common]! : a.length - b.length
}
