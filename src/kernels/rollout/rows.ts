/** Kernels that choose, order, gather and check rows. */
import { philox4x32, Stream } from '../../random.ts'

/** Fills `rows` with the numbers of the valid rows, rising. Returns how many they are. */
export function listValid(rows: Uint32Array, valid: Uint8Array, numRows: number): number {
  let count = 0
  for (let row = 0; row < numRows; row++) {
    if (valid[row] !== 0) {
      rows[count] = row
      count++
    }
  }
  return count
}

/**
 * Puts `rows` (count of them) into an order keyed by (seed, update, epoch): Fisher and Yates's shuffle (Durstenfeld 1964),
 * the bound folded in by a 32-bit multiplication (bias below count / 2^32). `words` (4) is workspace.
 */
export function shuffleRows(
  rows: Uint32Array,
  words: Uint32Array,
  count: number,
  update: number,
  epoch: number,
  key0: number,
  key1: number,
): void {
  for (let i = count - 1; i > 0; i--) {
    if ((count - 1 - i) % 4 === 0) philox4x32(words, (count - 1 - i) / 4, update, epoch, Stream.shuffle, key0, key1)
    const j = Math.floor((words[(count - 1 - i) % 4]! * (i + 1)) / 4294967296)
    const swapped = rows[i]!
    rows[i] = rows[j]!
    rows[j] = swapped
  }
}

/** gathered[i] = source[rows[first + i]] for i < count, `width` elements each. Both columns have one type. */
export function gatherRows(
  gathered: Float32Array | Int32Array,
  source: Float32Array | Int32Array,
  rows: Uint32Array,
  first: number,
  count: number,
  width: number,
): void {
  for (let i = 0; i < count; i++) {
    const from = rows[first + i]! * width
    for (let k = 0; k < width; k++) gathered[i * width + k] = source[from + k]!
  }
}

/** The first element in [from, to) that is NaN or infinite, or −1. */
export function findNonFinite(x: Float32Array, from: number, to: number): number {
  for (let i = from; i < to; i++) if (x[i]! - x[i]! !== 0) return i
  return -1
}

/** The first element of lanes `from` to `to` that is not a choice of its dimension (0 ≤ x < sizes[k]), or −1. */
export function findOutside(x: Int32Array, sizes: Int32Array, width: number, from: number, to: number): number {
  for (let n = from; n < to; n++) {
    for (let k = 0; k < width; k++) {
      const chosen = x[n * width + k]!
      if (chosen < 0 || chosen >= sizes[k]!) return n * width + k
    }
  }
  return -1
}

/** clipped = x within [low, high] of its dimension, for lanes `from` to `to`. NaN stays NaN. */
export function clipRows(
  clipped: Float32Array,
  x: Float32Array,
  low: Float32Array,
  high: Float32Array,
  width: number,
  from: number,
  to: number,
): void {
  for (let n = from; n < to; n++) {
    for (let k = 0; k < width; k++) {
      clipped[n * width + k] = Math.min(Math.max(x[n * width + k]!, low[k]!), high[k]!)
    }
  }
}
