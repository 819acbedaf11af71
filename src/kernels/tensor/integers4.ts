/** Products of weights in 4 bits (`quantized4.ts`) with inputs in 8 bits, as `integers.ts` does them with weights in 8 bits. */
import { INPUT_BLOCK } from './integers.ts'
import { blockOf, multipleOf, scaleOf } from './quantized4.ts'

/**
 * C (numRows × numColumns) = from + Σ over blocks of (inputScale · scale) · (whole sum of multiples · input), where `values`
 * (numColumns × depth) are in 4 bits, `input` and `inputScale` are as `quantizeInputs` leaves them, and `from` is C itself
 * (`accumulate`), else the bias, else 0. All builds leave the same bits, as in `integers.ts`.
 */
export function matmulIntegers4(
  c: Float32Array,
  input: Uint8Array,
  inputScale: Float32Array,
  values: Uint8Array,
  bias: Float32Array,
  numRows: number,
  numColumns: number,
  depth: number,
  accumulate: boolean,
): void {
  const { fround } = Math
  const numBlocks = Math.ceil(depth / INPUT_BLOCK)
  for (let row = 0; row < numRows; row++) {
    for (let column = 0; column < numColumns; column++) {
      let sum = 0
      for (let block = 0; block < numBlocks; block++) {
        const inputBlock = row * numBlocks + block
        const at = blockOf(column, block, numBlocks)
        let whole = 0
        for (let k = 0; k < INPUT_BLOCK; k++) {
          whole += multipleOf(values, at, column, k) * ((input[inputBlock * INPUT_BLOCK + k]! << 24) >> 24)
        }
        sum = fround(sum + fround(fround(inputScale[inputBlock]! * scaleOf(values, at, column)) * whole))
      }
      const place = row * numColumns + column
      const from = accumulate ? c[place]! : bias.length > 0 ? bias[column]! : 0
      c[place] = from + sum
    }
  }
}
