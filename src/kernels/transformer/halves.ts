/**
 * Numbers in bf16, two in a word: keys and values of a cache in half the bytes. They are rounded when they are computed
 * (`roundToHalves`), in evaluation and in decoding, so the cache keeps them exactly.
 */
import { narrowBf16 } from '../../base/half.ts'

/** Rounds the first `length` numbers to bf16: to the nearest, ties to even. */
export function roundToHalves(x: Float32Array, length: number): void {
  const bits = new Uint32Array(x.buffer, x.byteOffset, length)
  const rounded = narrowBf16(x.subarray(0, length))
  for (let i = 0; i < length; i++) bits[i] = rounded[i]! << 16
}

/**
 * Writes row i of x (numRows × numHeads · headWidth, in bf16 already) to row `index[i]` of `out`, which has half a word for each number:
 * word j of a head has number j in its lower half, and number j + headWidth / 2 in its upper one.
 */
export function placeHalves(
  out: Uint32Array,
  x: Float32Array,
  index: Int32Array,
  numRows: number,
  numHeads: number,
  headWidth: number,
): void {
  const bits = new Uint32Array(x.buffer, x.byteOffset, numRows * numHeads * headWidth)
  const half = headWidth / 2
  for (let row = 0; row < numRows; row++) {
    for (let head = 0; head < numHeads; head++) {
      const from = (row * numHeads + head) * headWidth
      const to = (index[row]! * numHeads + head) * half
      for (let j = 0; j < half; j++) out[to + j] = (bits[from + j]! >>> 16) | (bits[from + half + j]! & 0xffff0000)
    }
  }
}

/** The numbers of one head in rows `begin` to `end`, as f32: row r goes to row r of `out`, headWidth numbers each. */
export function widenHalves(
  out: Float32Array,
  x: Uint32Array,
  first: number,
  begin: number,
  end: number,
  head: number,
  numHeads: number,
  headWidth: number,
): void {
  const bits = new Uint32Array(out.buffer, out.byteOffset, end * headWidth)
  const half = headWidth / 2
  for (let row = begin; row < end; row++) {
    const from = ((first + row) * numHeads + head) * half
    for (let j = 0; j < half; j++) {
      bits[row * headWidth + j] = x[from + j]! << 16
      bits[row * headWidth + half + j] = x[from + j]! & 0xffff0000
    }
  }
}
