/**
 * A Gaussian with a diagonal covariance: mean (numRows × width, from row 0), logStd (width, the same for every row),
 * action (numRows × width, from row `from`).
 *
 *     log p(a) = Σ −½ z² − logStd − ½ log 2π,   z = (a − mean) / exp(logStd)        H = Σ ½ + ½ log 2π + logStd
 *
 * logprob is computed from the stored f32 action, so that evaluating it again gives the same bits.
 */
const HALF_LOG_TWO_PI = 0.5 * Math.log(2 * Math.PI)

/** action = mean + exp(logStd) · normal (numRows × width), with its logprob. */
export function gaussianSample(
  action: Float32Array,
  logprob: Float32Array,
  mean: Float32Array,
  logStd: Float32Array,
  normal: Float32Array,
  numRows: number,
  width: number,
  from: number,
): void {
  for (let row = 0; row < numRows; row++) {
    for (let k = 0; k < width; k++) {
      action[(from + row) * width + k] = mean[row * width + k]! + Math.exp(logStd[k]!) * normal[row * width + k]!
    }
    logprob[from + row] = rowLogprob(action, mean, logStd, row, width, from)
  }
}

/** action = mean, with its logprob. */
export function gaussianMode(
  action: Float32Array,
  logprob: Float32Array,
  mean: Float32Array,
  logStd: Float32Array,
  numRows: number,
  width: number,
  from: number,
): void {
  for (let row = 0; row < numRows; row++) {
    for (let k = 0; k < width; k++) action[(from + row) * width + k] = mean[row * width + k]!
    logprob[from + row] = rowLogprob(action, mean, logStd, row, width, from)
  }
}

/** logprob and entropy (numRows, in nats) of given actions. */
export function gaussianEvaluate(
  logprob: Float32Array,
  entropy: Float32Array,
  action: Float32Array,
  mean: Float32Array,
  logStd: Float32Array,
  numRows: number,
  width: number,
  from: number,
): void {
  let rowEntropy = 0
  for (let k = 0; k < width; k++) rowEntropy += 0.5 + HALF_LOG_TWO_PI + logStd[k]!
  for (let row = 0; row < numRows; row++) {
    logprob[row] = rowLogprob(action, mean, logStd, row, width, from)
    entropy[row] = rowEntropy
  }
}

/** dMean (numRows × width) from dLogprob and dEntropy (numRows each); adds to dLogStd (width). */
export function gaussianBackward(
  dMean: Float32Array,
  dLogStd: Float32Array,
  dLogprob: Float32Array,
  dEntropy: Float32Array,
  action: Float32Array,
  mean: Float32Array,
  logStd: Float32Array,
  numRows: number,
  width: number,
  from: number,
): void {
  for (let k = 0; k < width; k++) {
    const std = Math.exp(logStd[k]!)
    let sum = 0
    for (let row = 0; row < numRows; row++) {
      const z = (action[(from + row) * width + k]! - mean[row * width + k]!) / std
      dMean[row * width + k] = (dLogprob[row]! * z) / std
      sum += dLogprob[row]! * (z * z - 1) + dEntropy[row]!
    }
    dLogStd[k] = dLogStd[k]! + sum
  }
}

function rowLogprob(
  action: Float32Array,
  mean: Float32Array,
  logStd: Float32Array,
  row: number,
  width: number,
  from: number,
): number {
  let sum = 0
  for (let k = 0; k < width; k++) {
    const z = (action[(from + row) * width + k]! - mean[row * width + k]!) / Math.exp(logStd[k]!)
    sum -= 0.5 * z * z + logStd[k]! + HALF_LOG_TWO_PI
  }
  return sum
}
