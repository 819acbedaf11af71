/**
 * Running normalization of rows of `width` dimensions: moments in f64 that take in whole batches, and f32 copies of
 * them, by which rows are normalized to mean 0 and deviation 1. The copies do not change while the moments do.
 */

/**
 * Adds the valid rows of a batch B to the moments of the rows A before it (Chan, Golub, LeVeque 1979, eq. 2.1), by
 * dimension:
 *
 *     n = n_A + n_B                                           d = mean_B − mean_A
 *     mean = mean_A + d · n_B / n                             squares = squares_A + squares_B + d² · n_A n_B / n
 *
 * `squares` is the sum of squared distances from the mean, so squares / n is the variance; count[0] is n. All are 0
 * before the first batch. The batch's own moments take two passes in f64, rows in rising order. A batch without a valid
 * row changes nothing.
 */
export function updateRunning(
  mean: Float64Array,
  squares: Float64Array,
  count: Float64Array,
  x: Float32Array | Uint8Array,
  valid: Uint8Array,
  numRows: number,
  width: number,
): void {
  let added = 0
  for (let row = 0; row < numRows; row++) if (valid[row] !== 0) added++
  if (added === 0) return
  const before = count[0]!
  const total = before + added
  for (let k = 0; k < width; k++) {
    let sum = 0
    for (let row = 0; row < numRows; row++) if (valid[row] !== 0) sum += x[row * width + k]!
    const batchMean = sum / added
    let batchSquares = 0
    for (let row = 0; row < numRows; row++) {
      if (valid[row] === 0) continue
      const distance = x[row * width + k]! - batchMean
      batchSquares += distance * distance
    }
    const apart = batchMean - mean[k]!
    mean[k] = mean[k]! + apart * (added / total)
    squares[k] = squares[k]! + (batchSquares + apart * apart * (before * (added / total)))
  }
  count[0] = total
}

/**
 * Computes the inputs of normalizeRows from the moments (width each): center = mean, deviation = √(squares / n + epsilon), in f32.
 * With epsilon > 0 a dimension that never varied has a deviation above 0. Before the first batch, center is 0 and
 * deviation 1.
 */
export function readRunning(
  center: Float32Array,
  deviation: Float32Array,
  mean: Float64Array,
  squares: Float64Array,
  count: Float64Array,
  epsilon: number,
  width: number,
): void {
  const isEmpty = count[0] === 0
  for (let k = 0; k < width; k++) {
    center[k] = isEmpty ? 0 : mean[k]!
    deviation[k] = isEmpty ? 1 : Math.sqrt(squares[k]! / count[0]! + epsilon)
  }
}

/**
 * y = (x − center) / deviation of its dimension, within [−clip, clip]: y (numRows × width, from row 0), x (from row
 * `from`), center and deviation (width). `clip` may be Infinity. NaN stays NaN. y may be x where `from` is 0.
 */
export function normalizeRows(
  y: Float32Array,
  x: Float32Array,
  center: Float32Array,
  deviation: Float32Array,
  clip: number,
  numRows: number,
  width: number,
  from: number,
): void {
  for (let row = 0; row < numRows; row++) {
    for (let k = 0; k < width; k++) {
      const normal = (x[(from + row) * width + k]! - center[k]!) / deviation[k]!
      y[row * width + k] = Math.min(Math.max(normal, -clip), clip)
    }
  }
}
