/** Weights in bf16, the upper half of an f32 each: half the bytes, without a scale. */
import { matmulColumn } from './matmul.ts'

/** The first `length` weights in f32. */
export function widenWeights(x: Float32Array, values: Uint16Array, length: number): void {
  const bits = new Uint32Array(x.buffer, x.byteOffset, length)
  for (let i = 0; i < length; i++) bits[i] = values[i]! << 16
}

/** Row i of x: the weights of row `index[i]`. */
export function gatherBf16(
  x: Float32Array,
  values: Uint16Array,
  index: Uint32Array,
  numRows: number,
  width: number,
): void {
  const bits = new Uint32Array(x.buffer, x.byteOffset, numRows * width)
  for (let i = 0; i < numRows; i++) {
    const from = index[i]! * width
    for (let k = 0; k < width; k++) bits[i * width + k] = values[from + k]! << 16
  }
}

/**
 * C (numRows × numColumns) = A (numRows × depth) · Bᵀ, where B (numColumns × depth) is in bf16: the bits of `matmul` with the same
 * weights in f32. `bias`, `accumulate`, `dequantized` and `scratch` are as in `matmulQuantized`.
 */
export function matmulBf16(
  c: Float32Array,
  a: Float32Array,
  values: Uint16Array,
  bias: Float32Array,
  dequantized: Float32Array,
  _scratch: Float32Array,
  numRows: number,
  numColumns: number,
  depth: number,
  accumulate: boolean,
): void {
  for (let column = 0; column < numColumns; column++) {
    widenWeights(dequantized, values.subarray(column * depth), depth)
    matmulColumn(c, a, dequantized, bias, numRows, numColumns, depth, column, accumulate)
  }
}
