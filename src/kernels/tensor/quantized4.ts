/**
 * Weights in 4 bits: the numbers of llama.cpp's Q4_0 (Gerganov et al., ggml-quants.c). 32 neighbors of a row share a
 * scale in f16, and each is −8 … 7 times that scale. Sixteen rows are stored together, so that all builds read a matrix
 * (numRows × width) from its first byte to its last: for each 32 columns 4 words of 4 bytes per row, then the sixteen
 * scales. Byte i of a row's 16 bytes has multiple i, plus 8, in its lower half, and multiple i + 16 in its upper one.
 * Rows and columns of padding are zeros.
 */

import { narrowF16 } from '../../base/half.ts'
import { INPUT_BLOCK } from './integers.ts'
import { matmulColumn } from './matmul.ts'

/** Rows that lie together. */
const TOGETHER = 16
/** Bytes of the nibbles of a block of 32 columns, without and with the scales. */
const [NIBBLE_BYTES, BLOCK_BYTES] = [TOGETHER * 16, TOGETHER * 18]
/** The largest magnitude of a weight in 4 bits: eight times the largest f16. */
export const LARGEST_4_BITS = 8 * 65_504

/** Bytes of a matrix in 4 bits. */
export function bytesIn4Bits(numRows: number, width: number): number {
  return Math.ceil(numRows / TOGETHER) * Math.ceil(width / INPUT_BLOCK) * BLOCK_BYTES
}

/**
 * Rounds each 32 neighbors of a row as Q4_0 does: the largest magnitude becomes −8 times the scale, and weights of the
 * opposite sign at most 7 times the scale. The weights that the bytes represent give the same bytes again. No weight may be larger than
 * `LARGEST_4_BITS`.
 */
export function quantizeRows4(values: Uint8Array, x: Float32Array, numRows: number, width: number): void {
  const { fround } = Math
  const numBlocks = Math.ceil(width / INPUT_BLOCK)
  const scales = new Float32Array(numBlocks)
  for (let row = 0; row < Math.ceil(numRows / TOGETHER) * TOGETHER; row++) {
    const end = row < numRows ? width : 0
    for (let block = 0; block < numBlocks; block++) {
      let largest = 0
      for (let k = block * INPUT_BLOCK; k < Math.min(end, (block + 1) * INPUT_BLOCK); k++) {
        const value = x[row * width + k]!
        if (Math.abs(value) > Math.abs(largest)) largest = value
      }
      scales[block] = largest / -8
    }
    const halves = narrowF16(scales)
    for (let block = 0; block < numBlocks; block++) {
      const at = blockOf(row, block, numBlocks)
      const scaleAt = at + NIBBLE_BYTES + 2 * (row % TOGETHER)
      values[scaleAt] = halves[block]!
      values[scaleAt + 1] = halves[block]! >> 8
      const inverse = scales[block] === 0 ? 0 : fround(1 / scales[block]!)
      const nibble = (k: number) => {
        const multiple = k < end ? fround(x[row * width + k]! * inverse) : 0
        return Math.min(15, Math.trunc(fround(multiple + 8.5)))
      }
      for (let i = 0; i < 16; i++) {
        const k = block * INPUT_BLOCK + i
        values[byteOf(at, row, i)] = nibble(k) | (nibble(k + 16) << 4)
      }
    }
  }
}

/** The weights that the bytes stand for. */
export function dequantizeRows4(x: Float32Array, values: Uint8Array, numRows: number, width: number): void {
  for (let row = 0; row < numRows; row++) restoreRow(x, row, values, row, width)
}

/** Row i of x: the weights of row `index[i]`. */
export function gatherQuantized4(
  x: Float32Array,
  values: Uint8Array,
  index: Uint32Array,
  numRows: number,
  width: number,
): void {
  for (let i = 0; i < numRows; i++) restoreRow(x, i, values, index[i]!, width)
}

function restoreRow(x: Float32Array, to: number, values: Uint8Array, row: number, width: number): void {
  const numBlocks = Math.ceil(width / INPUT_BLOCK)
  for (let block = 0; block < numBlocks; block++) {
    const at = blockOf(row, block, numBlocks)
    const scale = scaleOf(values, at, row)
    const first = block * INPUT_BLOCK
    for (let k = 0; k < Math.min(INPUT_BLOCK, width - first); k++) {
      x[to * width + first + k] = multipleOf(values, at, row, k) * scale
    }
  }
}

/**
 * C (numRows × numColumns) = A (numRows × depth) · Bᵀ, where B (numColumns × depth) is in 4 bits: the bits of `matmul` with the
 * weights that the bytes stand for. `bias`, `accumulate`, `dequantized` and `scratch` are as in `matmulQuantized`.
 */
export function matmulQuantized4(
  c: Float32Array,
  a: Float32Array,
  values: Uint8Array,
  bias: Float32Array,
  dequantized: Float32Array,
  _scratch: Float32Array,
  numRows: number,
  numColumns: number,
  depth: number,
  accumulate: boolean,
): void {
  for (let column = 0; column < numColumns; column++) {
    restoreRow(dequantized, 0, values, column, depth)
    matmulColumn(c, a, dequantized, bias, numRows, numColumns, depth, column, accumulate)
  }
}

/** Where the bytes of the sixteen rows with `row` begin in a block. */
export function blockOf(row: number, block: number, numBlocks: number): number {
  return (Math.floor(row / TOGETHER) * numBlocks + block) * BLOCK_BYTES
}

/** Where byte `i` of the 16 of a row lies. */
function byteOf(at: number, row: number, i: number): number {
  return at + (i >> 2) * 4 * TOGETHER + (row % TOGETHER) * 4 + (i & 3)
}

/** −8 … 7. */
export function multipleOf(values: Uint8Array, at: number, row: number, k: number): number {
  const byte = values[byteOf(at, row, k % 16)]!
  return (k < 16 ? byte & 15 : byte >> 4) - 8
}

/** An f16 that is finite. */
export function scaleOf(values: Uint8Array, at: number, row: number): number {
  const place = at + NIBBLE_BYTES + 2 * (row % TOGETHER)
  const bits = values[place]! | (values[place + 1]! << 8)
  const exponent = (bits >> 10) & 31
  const fraction = bits & 1023
  const size = exponent === 0 ? fraction * 2 ** -24 : (1024 + fraction) * 2 ** (exponent - 25)
  return bits & 0x8000 ? -size : size
}
