/** The loss of advantage actor-critic, four rows at a time in f32, its sums in f64; the plain twin `a2c.ts` has the formulas. */
import { addPairs, addTo, firstLanes, load4, store4, sum2 } from '../vector.simd'

export function a2cLoss(
  dLogprob: usize,
  dEntropy: usize,
  dValue: usize,
  sums: usize,
  evaluatedLogprob: usize,
  entropy: usize,
  evaluatedValue: usize,
  advantage: usize,
  batchReturn: usize,
  advantageMean: f64,
  advantageScale: f64,
  entropyCoef: f64,
  valueCoef: f64,
  weight: f64,
  numRows: i32,
  from: i32,
  sumsFrom: i32,
): void {
  const mean = f32x4.splat(<f32>advantageMean)
  const scale = f32x4.splat(<f32>advantageScale)
  const weight4 = f32x4.splat(<f32>weight)
  const weightV = f32x4.splat(<f32>(weight * valueCoef))
  const byEntropy = f32x4.splat(<f32>(-weight * entropyCoef))
  let policyLossSum = f64x2.splat(0)
  let valueLossSum = f64x2.splat(0)
  let entropySum = f64x2.splat(0)
  const first = <usize>from << 2
  advantage += first
  batchReturn += first
  let at: usize = 0
  for (let left = numRows; left > 0; left -= 4) {
    // Beyond the last row all inputs are 0; the sums leave those lanes out.
    const row = firstLanes(left)
    const drawback = f32x4.neg(f32x4.mul(f32x4.sub(load4(advantage + at, left), mean), scale))
    const error = f32x4.sub(load4(evaluatedValue + at, left), load4(batchReturn + at, left))
    store4(dLogprob + at, f32x4.mul(weight4, drawback), left)
    store4(dEntropy + at, byEntropy, left)
    store4(dValue + at, f32x4.mul(weightV, error), left)
    policyLossSum = addPairs(policyLossSum, v128.and(f32x4.mul(drawback, load4(evaluatedLogprob + at, left)), row))
    valueLossSum = addPairs(valueLossSum, v128.and(f32x4.mul(error, error), row))
    entropySum = addPairs(entropySum, load4(entropy + at, left))
    at += 16
  }
  sums += <usize>sumsFrom << 3
  addTo(sums, sum2(policyLossSum))
  addTo(sums + 8, 0.5 * sum2(valueLossSum))
  addTo(sums + 16, sum2(entropySum))
}
