/**
 * Root-mean-square norm (Zhang and Sennrich 2019) of each row of x (numRows × width):
 *
 *     y = x · r · weight        r = 1 / √(mean x² + epsilon)
 *
 * Sums are in f64 and rounded once, so a row's result depends only on that row.
 */

/** y (numRows × width), and r (numRows) in `inverseRms`. */
export function rmsNormForward(
  y: Float32Array,
  inverseRms: Float32Array,
  x: Float32Array,
  weight: Float32Array,
  epsilon: number,
  numRows: number,
  width: number,
): void {
  for (let row = 0; row < numRows; row++) {
    const at = row * width
    let squares = 0
    for (let k = 0; k < width; k++) squares += x[at + k]! * x[at + k]!
    const inverse = Math.fround(1 / Math.sqrt(squares / width + epsilon))
    inverseRms[row] = inverse
    for (let k = 0; k < width; k++) y[at + k] = x[at + k]! * inverse * weight[k]!
  }
}

/**
 * dx from dy, added to dx with `accumulate`; dx may be dy. Adds the weight's gradient to dWeight.
 *
 *     dx = r (dy · weight − x r² · mean(dy · weight · x))        dWeight += Σ rows dy · x · r
 */
export function rmsNormBackward(
  dx: Float32Array,
  dWeight: Float32Array,
  dy: Float32Array,
  x: Float32Array,
  weight: Float32Array,
  inverseRms: Float32Array,
  numRows: number,
  width: number,
  accumulate: boolean,
): void {
  for (let row = 0; row < numRows; row++) {
    const at = row * width
    const inverse = inverseRms[row]!
    let projected = 0
    for (let k = 0; k < width; k++) projected += dy[at + k]! * weight[k]! * x[at + k]!
    const common = (projected / width) * inverse * inverse
    for (let k = 0; k < width; k++) {
      const into = accumulate ? dx[at + k]! : 0
      const output = dy[at + k]!
      dx[at + k] = into + inverse * (output * weight[k]! - x[at + k]! * common)
      dWeight[k] = dWeight[k]! + output * x[at + k]! * inverse
    }
  }
}
