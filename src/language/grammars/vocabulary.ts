/** The tokens of a vocabulary in the order of their bytes, and which of them may come next in a text of an automaton. */
import type { Automaton, Position } from './automaton.ts'

export class Vocabulary {
  readonly numWords: number
  readonly #bytes: readonly Uint8Array[]
  readonly #endIds: readonly number[]
  /** Tokens that have bytes, in the order of these; and how many bytes each has in common with the one before. */
  readonly #order: Int32Array
  readonly #common: Int32Array

  /** Tokens without bytes never come, but for those that end the text. */
  constructor(bytes: readonly Uint8Array[], endIds: readonly number[], numWords: number) {
    this.numWords = numWords
    this.#bytes = bytes
    this.#endIds = endIds
    const tokens = bytes.flatMap(({ length }, token) => (length === 0 ? [] : [token]))
    this.#order = Int32Array.from(tokens.sort((a, b) => Buffer.compare(bytes[a]!, bytes[b]!) || a - b))
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

  /** The tokens that may come at a position, one bit each. The same array for the same position. */
  maskAt(automaton: Automaton, position: Position): Int32Array {
    position.mask ??= this.#mask(automaton, position)
    return position.mask
  }

  #mask(automaton: Automaton, position: Position): Int32Array {
    const mask = new Int32Array(this.numWords)
    if (position.isEnd) for (const token of this.#endIds) mask[token >> 5]! |= 1 << (token & 31)
    const path: Position[] = [position]
    // Bytes of the last token that some text goes on with.
    let alive = 0
    for (let i = 0; i < this.#order.length; i++) {
      const token = this.#order[i]!
      const bytes = this.#bytes[token]!
      const common = this.#common[i]!
      if (common > alive) continue // It has the byte at which the one before ended.
      let depth = Math.min(common, alive)
      let at: Position | null = path[depth]!
      while (depth < bytes.length) {
        at = at.next[bytes[depth]!] ?? automaton.after(at, bytes[depth]!)
        if (at === null) break
        path[++depth] = at
      }
      alive = depth
      if (depth === bytes.length) mask[token >> 5]! |= 1 << (token & 31)
    }
    return mask
  }
}

function commonLength(a: Uint8Array, b: Uint8Array): number {
  let length = 0
  while (length < a.length && length < b.length && a[length] === b[length]) length++
  return length
}
