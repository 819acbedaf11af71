/** The clipped surrogate of PPO, four rows at a time in f32, its sums in f64; the plain twin `ppo.ts` has the formulas. */
import { addPairs, addTo, clamp4, exp4, expRest4, firstLanes, load4, store4, sum2 } from '../vector.simd'

export function ppoLoss(
  dLogprob: usize,
  dEntropy: usize,
  dValue: usize,
  sums: usize,
  evaluatedLogprob: usize,
  entropy: usize,
  evaluatedValue: usize,
  batchLogprob: usize,
  batchValue: usize,
  advantage: usize,
  batchReturn: usize,
  advantageMean: f64,
  advantageScale: f64,
  clipCoef: f64,
  clipValue: f64,
  entropyCoef: f64,
  valueCoef: f64,
  weight: f64,
  numRows: i32,
  from: i32,
  sumsFrom: i32,
): void {
  const one = f32x4.splat(1)
  const mean = f32x4.splat(<f32>advantageMean)
  const scale = f32x4.splat(<f32>advantageScale)
  const lowest = f32x4.splat(<f32>(1 - clipCoef))
  const highest = f32x4.splat(<f32>(1 + clipCoef))
  const clip = f32x4.splat(<f32>clipCoef)
  const clipV = f32x4.splat(<f32>clipValue)
  const weight4 = f32x4.splat(<f32>weight)
  const weightV = f32x4.splat(<f32>(weight * valueCoef))
  const byEntropy = f32x4.splat(<f32>(-weight * entropyCoef))
  let policyLossSum = f64x2.splat(0)
  let valueLossSum = f64x2.splat(0)
  let entropySum = f64x2.splat(0)
  let klSum = f64x2.splat(0)
  let clipped = i32x4.splat(0)
  const first = <usize>from << 2
  batchLogprob += first
  batchValue += first
  advantage += first
  batchReturn += first
  let at: usize = 0
  for (let left = numRows; left > 0; left -= 4) {
    // Beyond the last row all inputs are 0; the sums leave those lanes out.
    const row = firstLanes(left)
    const logRatio = f32x4.sub(load4(evaluatedLogprob + at, left), load4(batchLogprob + at, left))
    const ratio = exp4(logRatio)
    const drawback = f32x4.neg(f32x4.mul(f32x4.sub(load4(advantage + at, left), mean), scale))
    const surrogate = f32x4.mul(drawback, ratio)
    const clippedSurrogate = f32x4.mul(drawback, clamp4(ratio, lowest, highest))
    const unbound = f32x4.ge(surrogate, clippedSurrogate)
    store4(dLogprob + at, v128.and(f32x4.mul(weight4, surrogate), unbound), left)
    store4(dEntropy + at, byEntropy, left)

    const return4 = load4(batchReturn + at, left)
    const old = load4(batchValue + at, left)
    const value4 = load4(evaluatedValue + at, left)
    const error = f32x4.sub(value4, return4)
    const change = f32x4.sub(value4, old)
    const clippedError = f32x4.sub(f32x4.add(old, clamp4(change, f32x4.neg(clipV), clipV)), return4)
    const square = f32x4.mul(error, error)
    const clippedSquare = f32x4.mul(clippedError, clippedError)
    const unclipped = v128.or(f32x4.le(f32x4.abs(change), clipV), f32x4.ge(square, clippedSquare))
    store4(dValue + at, v128.and(f32x4.mul(weightV, error), unclipped), left)

    policyLossSum = addPairs(policyLossSum, v128.and(f32x4.max(surrogate, clippedSurrogate), row))
    valueLossSum = addPairs(valueLossSum, v128.and(v128.bitselect(square, clippedSquare, unclipped), row))
    entropySum = addPairs(entropySum, load4(entropy + at, left))
    klSum = addPairs(klSum, v128.and(expRest4(logRatio, ratio), row))
    const beyond = f32x4.gt(f32x4.abs(f32x4.sub(ratio, one)), clip)
    clipped = i32x4.sub(clipped, v128.and(beyond, row))
    at += 16
  }
  sums += <usize>sumsFrom << 3
  addTo(sums, sum2(policyLossSum))
  addTo(sums + 8, 0.5 * sum2(valueLossSum))
  addTo(sums + 16, sum2(entropySum))
  addTo(sums + 24, sum2(klSum))
  const counts = i32x4.add(clipped, v128.shuffle<i32>(clipped, clipped, 2, 3, 0, 1))
  addTo(sums + 32, <f64>(i32x4.extract_lane(counts, 0) + i32x4.extract_lane(counts, 1)))
}
