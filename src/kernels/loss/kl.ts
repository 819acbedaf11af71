/**
 * Three estimates of KL(old ‖ new) from samples of the old policy (Schulman, "Approximating KL Divergence", 2020), with
 * r = exp(logprob − oldLogprob): k1 = −log r (unbiased), k2 = ½ (log r)² (biased, low variance), k3 = r − 1 − log r
 * (unbiased, never negative but for rounding). `estimates` (3) gets their means over numRows rows, in nats.
 */
export function klEstimates(
  estimates: Float64Array,
  logprob: Float32Array,
  oldLogprob: Float32Array,
  numRows: number,
): void {
  let k1 = 0
  let k2 = 0
  let k3 = 0
  for (let row = 0; row < numRows; row++) {
    const logRatio = logprob[row]! - oldLogprob[row]!
    k1 -= logRatio
    k2 += 0.5 * logRatio * logRatio
    k3 += Math.exp(logRatio) - 1 - logRatio
  }
  estimates[0] = k1 / numRows
  estimates[1] = k2 / numRows
  estimates[2] = k3 / numRows
}
