/** Kernels that choose, order, gather and check rows. */
import { philox4x32, Stream } from '../../base/random.ts'

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
  gathered: Float32Array | Int32Array | Uint8Array,
  source: Float32Array | Int32Array | Uint8Array,
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

/** widened[i] = x[from + i] for i < length: bytes as floats. */
export function widenBytes(widened: Float32Array, x: Uint8Array, from: number, length: number): void {
  for (let i = 0; i < length; i++) widened[i] = x[from + i]!
}

/** into[rows[i]] = from[i] for i < count, `width` elements each. */
export function placeRows(
  into: Float32Array,
  from: Float32Array,
  rows: Int32Array,
  count: number,
  width: number,
): void {
  for (let i = 0; i < count; i++) {
    const at = rows[i]! * width
    for (let k = 0; k < width; k++) into[at + k] = from[i * width + k]!
  }
}

/** The first element in [from, to) that is NaN or infinite, or −1. */
export function findNonFinite(x: Float32Array, from: number, to: number): number {
  for (let i = from; i < to; i++) if (x[i]! - x[i]! !== 0) return i
  return -1
}

/** The first element of lanes `from` to `to` that is NaN or outside its dimension's bounds (low[k] ≤ x ≤ high[k]), or −1. */
export function findBeyond(
  x: Float32Array,
  low: Float32Array,
  high: Float32Array,
  width: number,
  from: number,
  to: number,
): number {
  for (let n = from; n < to; n++) {
    for (let k = 0; k < width; k++) {
      const element = x[n * width + k]!
      if (!(element >= low[k]! && element <= high[k]!)) return n * width + k
    }
  }
  return -1
}

/** The first of lanes `from` to `to` whose reward is NaN or beyond ±rewardMax, or with a flag that is neither 0 nor 1; or −1. */
export function findMiswritten(
  reward: Float32Array,
  terminated: Uint8Array,
  truncated: Uint8Array,
  rewardMax: number,
  from: number,
  to: number,
): number {
  for (let n = from; n < to; n++) {
    if (!(Math.abs(reward[n]!) <= rewardMax) || (terminated[n]! | truncated[n]!) > 1) return n
  }
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

/**
 * The first choice that its lane's mask forbids, of the lanes `from` to `to` in the `ready` phase, or −1; `mask` has a byte
 * for each choice, the dimensions' `sizes` one after another.
 */
export function findIllegal(
  x: Int32Array,
  mask: Uint8Array,
  phase: Uint8Array,
  ready: number,
  sizes: Int32Array,
  width: number,
  from: number,
  to: number,
): number {
  const maskWidth = total(sizes, width)
  for (let n = from; n < to; n++) {
    if (phase[n] !== ready) continue
    let start = n * maskWidth
    for (let k = 0; k < width; k++) {
      if (mask[start + x[n * width + k]!] === 0) return n * width + k
      start += sizes[k]!
    }
  }
  return -1
}

/** The first of lanes `from` to `to` in the `ready` phase whose mask leaves a dimension without a choice, or −1. */
export function findStuck(
  mask: Uint8Array,
  phase: Uint8Array,
  ready: number,
  sizes: Int32Array,
  width: number,
  from: number,
  to: number,
): number {
  const maskWidth = total(sizes, width)
  for (let n = from; n < to; n++) {
    if (phase[n] !== ready) continue
    let start = n * maskWidth
    for (let k = 0; k < width; k++) {
      let legal = 0
      for (let j = 0; j < sizes[k]!; j++) legal |= mask[start + j]!
      if (legal === 0) return n
      start += sizes[k]!
    }
  }
  return -1
}

function total(sizes: Int32Array, width: number): number {
  let sum = 0
  for (let k = 0; k < width; k++) sum += sizes[k]!
  return sum
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
