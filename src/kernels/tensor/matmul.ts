/** Elements of workspace that `matmul` needs for any sizes: a part of B, a block of C, and a part of A. */
export const MATMUL_SCRATCH = 256 * 512 + 64 + 96 * 256

/**
 * C (numRows × numColumns) = A · B, all row-major. A is numRows × depth, or depth × numRows where `aTransposed`; B is
 * depth × numColumns, or numColumns × depth where `bTransposed`. Each sum starts from `bias` (numColumns elements, or
 * none for zeros), or with `accumulate` from the value in C. `scratch` (MATMUL_SCRATCH) is workspace. Each element is
 * summed in f64 in ascending order of the depth, then rounded once, so a row's result depends only on that row.
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

/** Column `column` of `matmul` with a transposed B, from that row of B alone. */
export function matmulColumn(
  c: Float32Array,
  a: Float32Array,
  row: Float32Array,
  bias: Float32Array,
  numRows: number,
  numColumns: number,
  depth: number,
  column: number,
  accumulate: boolean,
): void {
  for (let i = 0; i < numRows; i++) {
    const at = i * numColumns + column
    let sum = accumulate ? c[at]! : bias.length > 0 ? bias[column]! : 0
    for (let k = 0; k < depth; k++) sum += a[i * depth + k]! * row[k]!
    c[at] = sum
  }
}

/** Weights that are not f32 become so for as many columns of a product at a time, so that workspace has room for their rows. */
export const RESTORED_COLUMNS = 512
