/** Estimates of KL, four rows at a time, summed in f64; the plain twin `kl.ts` has the formulas. */
import { addPairs, exp4, expRest4, firstLanes, load4, sum2 } from '../vector.simd'

export function klEstimates(estimates: usize, logprob: usize, oldLogprob: usize, numRows: i32): void {
  let k1 = f64x2.splat(0)
  let k2 = f64x2.splat(0)
  let k3 = f64x2.splat(0)
  for (let left = numRows; left > 0; left -= 4) {
    const logRatio = f32x4.sub(load4(logprob, left), load4(oldLogprob, left))
    const rest = expRest4(logRatio, exp4(logRatio))
    k1 = addPairs(k1, logRatio)
    k2 = addPairs(k2, f32x4.mul(logRatio, logRatio))
    k3 = addPairs(k3, v128.and(rest, firstLanes(left)))
    logprob += 16
    oldLogprob += 16
  }
  store<f64>(estimates, -sum2(k1) / <f64>numRows)
  store<f64>(estimates + 8, (0.5 * sum2(k2)) / <f64>numRows)
  store<f64>(estimates + 16, sum2(k3) / <f64>numRows)
}
