/** Elements of workspace that `matmul` needs, whatever the sizes: a part of B, a block of C, and a part of A. */
export const MATMUL_SCRATCH = 256 * 512 + 64 + 96 * 256

/**
 * C (numRows × numColumns) = A · B, all row-major. A is numRows × depth, or depth × numRows where `aTransposed`; B is
 * depth × numColumns, or numColumns × depth where `bTransposed`. Each row of C begins with `bias` (numColumns elements, or
 * none for zeros), or with what C holds where `accumulate`. `scratch` (MATMUL_SCRATCH) is workspace. Each element is summed
 * in f64 in rising order of the depth, then rounded once: a row's result depends on that row alone.
 */
export function matmul(
  c: Float32Array,
  a: Float32Array,
  b: Float32Array,
  bias: Float32Array,
  _scratch: Float32Array,
  numRows: number,
  numColumns: number,
  depth: number,
  aTransposed: boolean,
  bTransposed: boolean,
  accumulate: boolean,
): void {
  const [aRow, aStep] = aTransposed ? [1, numRows] : [depth, 1]
  const [bColumn, bStep] = bTransposed ? [depth, 1] : [1, numColumns]
  for (let row = 0; row < numRows; row++) {
    for (let column = 0; column < numColumns; column++) {
      const at = row * numColumns + column
      let sum = accumulate ? c[at]! : bias.length > 0 ? bias[column]! : 0
      for (let k = 0; k < depth; k++) sum += a[row * aRow + k * aStep]! * b[column * bColumn + k * bStep]!
      c[at] = sum
    }
  }
}
