/**
 * Causal attention of rows over keys and values in other columns: one pass over a packed batch, over a cache of keys
 * and values, or over both kinds of rows at once. Row i sees only the keys `first[i]` to `first[i] + position[i]`,
 * where `first` is the row of position 0 of its own sequence.
 *
 *     score[j] = q · k[j] / √headWidth        p = softmax(score)        out = Σ p[j] v[j]
 *
 * q and out are numRows × (numHeads · headWidth), k and v have numKeyHeads heads a row, each of which serves
 * numHeads / numKeyHeads heads of q (Ainslie et al. 2023). Sums run in ascending order of j in f64 and depend only on
 * the row, its keys and their number. So a prompt gives the same bits in one pass and token by token over a cache.
 */

import { checkGiven } from '../../base/errors.ts'
import { widenHalves } from './halves.ts'

/** The heads of q, those of k and v, and the elements of each. */
export interface AttentionShape {
  readonly numHeads: number
  readonly numKeyHeads: number
  readonly headWidth: number
}

/** The inputs q, k and v and the outputs `out` and logSum of `attentionForward`. */
export interface AttentionRows {
  readonly query: Float32Array
  readonly key: Float32Array
  readonly value: Float32Array
  readonly attended: Float32Array
  readonly logSum: Float32Array
}

/** An attention whose scores are capped: cap · tanh(score / cap) (Gemma Team 2024). */
export interface CappedShape extends AttentionShape {
  readonly attentionCap: number
}

/** Rows that run together in the compiled bodies, keys whose gradients are summed meanwhile, and the widest panel of keys. */
const TOGETHER = 48
const CHUNK = 128
const PANEL = 32

/** The elements of `scores` for sequences of at most `context` tokens, forward and backward. */
export function attentionScratch(shape: AttentionShape, context: number): number {
  checkGiven('shape of attentionScratch', shape, ['numHeads', 'numKeyHeads', 'headWidth'])
  const { numHeads, numKeyHeads, headWidth } = shape
  const rows = Math.max(TOGETHER, Math.ceil(numHeads / numKeyHeads))
  const keys = context + 2 * PANEL
  const values = 256 * PANEL
  const forward = keys * headWidth + 2 * rows * headWidth + 4 * rows * PANEL + values + rows + rows * (keys + 16)
  const backward = 5 * (CHUNK + rows) * headWidth + 4 * rows * PANEL + 2 * rows * (CHUNK + 16)
  // Each of the parts begins at a multiple of sixteen.
  return Math.max(forward, backward) + 17 * 16
}

/**
 * Writes `out`, and log Σ exp score into logSum (numRows × numHeads). `scores` (`attentionScratch` elements) is workspace.
 */
export function attentionForward(
  out: Float32Array,
  logSum: Float32Array,
  q: Float32Array,
  k: Float32Array,
  v: Float32Array,
  scores: Float32Array,
  first: Int32Array,
  position: Int32Array,
  shape: AttentionShape,
  numRows: number,
): void {
  cappedForward(out, logSum, q, k, v, scores, first, position, { ...shape, attentionCap: 0 }, numRows)
}

/** `attentionForward` with capped scores; a cap of 0 is none. */
export function cappedForward(
  out: Float32Array,
  logSum: Float32Array,
  q: Float32Array,
  k: Float32Array,
  v: Float32Array,
  scores: Float32Array,
  first: Int32Array,
  position: Int32Array,
  shape: CappedShape,
  numRows: number,
): void {
  const { numHeads, numKeyHeads, headWidth, attentionCap: cap } = shape
  const keyRow = numKeyHeads * headWidth
  const scale = 1 / Math.sqrt(headWidth)
  for (let row = 0; row < numRows; row++) {
    const count = position[row]! + 1
    for (let head = 0; head < numHeads; head++) {
      const at = (row * numHeads + head) * headWidth
      const keys = first[row]! * keyRow + Math.floor((head * numKeyHeads) / numHeads) * headWidth
      let max = Number.NEGATIVE_INFINITY
      for (let j = 0; j < count; j++) {
        const score = scale * dot(q, at, k, keys + j * keyRow, headWidth)
        scores[j] = cap > 0 ? cap * Math.tanh(score / cap) : score
        max = Math.max(max, scores[j]!)
      }
      let sum = 0
      for (let j = 0; j < count; j++) {
        scores[j] = Math.exp(scores[j]! - max)
        sum += scores[j]!
      }
      logSum[row * numHeads + head] = max + Math.log(sum)
      for (let d = 0; d < headWidth; d++) {
        let weighted = 0
        for (let j = 0; j < count; j++) weighted += scores[j]! * v[keys + j * keyRow + d]!
        out[at + d] = weighted / sum
      }
    }
  }
}

/**
 * `attentionForward` over keys and values in bf16, as `placeHalves` writes them, with the same bits as for these
 * numbers in f32. `work` (twice the maximum of tokens per sequence, headWidth numbers each) is workspace.
 */
export function attentionOfHalves(
  out: Float32Array,
  logSum: Float32Array,
  q: Float32Array,
  k: Uint32Array,
  v: Uint32Array,
  scores: Float32Array,
  work: Float32Array,
  first: Int32Array,
  position: Int32Array,
  shape: AttentionShape,
  numRows: number,
): void {
  cappedOfHalves(out, logSum, q, k, v, scores, work, first, position, { ...shape, attentionCap: 0 }, numRows)
}

/** `attentionOfHalves` with capped scores; a cap of 0 is none. */
export function cappedOfHalves(
  out: Float32Array,
  logSum: Float32Array,
  q: Float32Array,
  k: Uint32Array,
  v: Uint32Array,
  scores: Float32Array,
  work: Float32Array,
  first: Int32Array,
  position: Int32Array,
  { numHeads, numKeyHeads, headWidth, attentionCap }: CappedShape,
  numRows: number,
): void {
  const one = { numHeads: 1, numKeyHeads: 1, headWidth, attentionCap }
  const values = work.subarray(work.length / 2)
  const begin = new Int32Array(1)
  for (let row = 0; row < numRows; row++) {
    for (let head = 0; head < numHeads; head++) {
      const keyHead = Math.floor((head * numKeyHeads) / numHeads)
      const place = row * numHeads + head
      const at = place * headWidth
      widenHalves(work, k, first[row]!, 0, position[row]! + 1, keyHead, numKeyHeads, headWidth)
      widenHalves(values, v, first[row]!, 0, position[row]! + 1, keyHead, numKeyHeads, headWidth)
      const [into, sum] = [out.subarray(at, at + headWidth), logSum.subarray(place, place + 1)]
      cappedForward(into, sum, q.subarray(at), work, values, scores, begin, position.subarray(row), one, 1)
    }
  }
}

/**
 * Gradients by q (written) and by k and v (added, in rising order of the rows), after `attentionForward` of the same rows.
 *
 *     dv[j] += p[j] dOut        dscore[j] = p[j] (dOut · v[j] − dOut · out)
 *     dq = Σ dscore[j] k[j] / √headWidth        dk[j] += dscore[j] q / √headWidth
 */
export function attentionBackward(
  dq: Float32Array,
  dk: Float32Array,
  dv: Float32Array,
  dOut: Float32Array,
  forward: AttentionRows,
  scores: Float32Array,
  first: Int32Array,
  position: Int32Array,
  shape: AttentionShape,
  numRows: number,
): void {
  cappedBackward(dq, dk, dv, dOut, forward, scores, first, position, { ...shape, attentionCap: 0 }, numRows)
}

/** `attentionBackward` after `cappedForward`: each dscore is multiplied by 1 − tanh²(score / cap). */
export function cappedBackward(
  dq: Float32Array,
  dk: Float32Array,
  dv: Float32Array,
  dOut: Float32Array,
  forward: AttentionRows,
  _scores: Float32Array,
  first: Int32Array,
  position: Int32Array,
  shape: CappedShape,
  numRows: number,
): void {
  const { query: q, key: k, value: v, attended: out, logSum } = forward
  const { numHeads, numKeyHeads, headWidth, attentionCap: cap } = shape
  const keyRow = numKeyHeads * headWidth
  const scale = 1 / Math.sqrt(headWidth)
  for (let row = 0; row < numRows; row++) {
    for (let head = 0; head < numHeads; head++) {
      const at = (row * numHeads + head) * headWidth
      const keys = first[row]! * keyRow + Math.floor((head * numKeyHeads) / numHeads) * headWidth
      const shared = dot(dOut, at, out, at, headWidth)
      dq.fill(0, at, at + headWidth)
      for (let j = 0; j <= position[row]!; j++) {
        const key = keys + j * keyRow
        const score = scale * dot(q, at, k, key, headWidth)
        const capped = cap > 0 ? Math.tanh(score / cap) : 0
        const p = Math.exp((cap > 0 ? cap * capped : score) - logSum[row * numHeads + head]!)
        const dScore = p * (dot(dOut, at, v, key, headWidth) - shared) * scale * (1 - capped * capped)
        for (let d = 0; d < headWidth; d++) {
          dq[at + d] = dq[at + d]! + dScore * k[key + d]!
          dk[key + d] = dk[key + d]! + dScore * q[at + d]!
          dv[key + d] = dv[key + d]! + p * dOut[at + d]!
        }
      }
    }
  }
}

function dot(a: Float32Array, aAt: number, b: Float32Array, bAt: number, width: number): number {
  let sum = 0
  for (let d = 0; d < width; d++) sum += a[aAt + d]! * b[bAt + d]!
  return sum
}
