/**
 * Weights in 8 bits (Dettmers et al. 2022, without their outliers): each row of a matrix (numRows × width) is whole numbers
 * from −127 to 127, a byte each in two's complement, times one scale.
 */

import { matmulColumn } from './matmul.ts'

/** Leaves 17 of a number's 53 bits (Veltkamp's splitting). */
const SPLIT = 2 ** 36 + 1

/**
 * Rounds each row to the nearest multiples of scale = max |row| / 127, itself rounded to 17 bits. So the multiples are
 * exact in f32, and rounding the restored weights gives the same bytes again. A row of zeros has the scale 0.
 */
export function quantizeRows(
  values: Uint8Array,
  scale: Float32Array,
  x: Float32Array,
  numRows: number,
  width: number,
): void {
  for (let row = 0; row < numRows; row++) {
    let largest = 0
    for (let k = 0; k < width; k++) largest = Math.max(largest, Math.abs(x[row * width + k]!))
    const wide = (largest / 127) * SPLIT
    const step = wide - (wide - largest / 127)
    scale[row] = step
    for (let k = 0; k < width; k++) {
      const whole = step > 0 ? Math.round(x[row * width + k]! / step) : 0
      values[row * width + k] = Math.max(-127, Math.min(127, whole))
    }
  }
}

/** The weights that the bytes stand for. */
export function dequantizeRows(
  x: Float32Array,
  values: Uint8Array,
  scale: Float32Array,
  numRows: number,
  width: number,
): void {
  for (let row = 0; row < numRows; row++) restoreRow(x, row, values, scale, row, width)
}

/** Row i of x: the weights of row `index[i]`. */
export function gatherQuantized(
  x: Float32Array,
  values: Uint8Array,
  scale: Float32Array,
  index: Uint32Array,
  numRows: number,
  width: number,
): void {
  for (let i = 0; i < numRows; i++) restoreRow(x, i, values, scale, index[i]!, width)
}

function restoreRow(
  x: Float32Array,
  to: number,
  values: Uint8Array,
  scale: Float32Array,
  row: number,
  width: number,
): void {
  for (let k = 0; k < width; k++) x[to * width + k] = ((values[row * width + k]! << 24) >> 24) * scale[row]!
}

/**
 * C (numRows × numColumns) = A (numRows × depth) · Bᵀ, where B (numColumns × depth) is in 8 bits: the bits of `matmul` with the
 * weights that the bytes stand for. `bias`, `accumulate` and `scratch` are as there, `dequantized` (depth for each column, up to
 * RESTORED_COLUMNS of them) is workspace.
 */
export function matmulQuantized(
  c: Float32Array,
  a: Float32Array,
  values: Uint8Array,
  scale: Float32Array,
  bias: Float32Array,
  dequantized: Float32Array,
  _scratch: Float32Array,
  numRows: number,
  numColumns: number,
  depth: number,
  accumulate: boolean,
): void {
  for (let column = 0; column < numColumns; column++) {
    restoreRow(dequantized, 0, values, scale, column, depth)
    matmulColumn(c, a, dequantized, bias, numRows, numColumns, depth, column, accumulate)
  }
}
