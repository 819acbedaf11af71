/**
 * Gaussians with a diagonal covariance, four rows at a time, one a lane, in f32; the plain twin `gaussian.ts` has the
 * formulas. One function gives the logprob to all kernels, from the stored action, so what was sampled and what is
 * evaluated have the same bits.
 */
import { exp4, gather4, load4, madd, scatter4, store4, sum4 } from '../vector.simd'

const HALF_LOG_TWO_PI: f32 = 0.918938533204672742

export function gaussianSample(
  action: usize,
  logprob: usize,
  mean: usize,
  logStd: usize,
  normal: usize,
  numRows: i32,
  width: i32,
  from: i32,
): void {
  const row = <usize>width << 2
  action += <usize>from * row
  logprob += <usize>from << 2
  for (let left = numRows; left > 0; left -= 4) {
    const r1 = left > 1 ? row : 0
    const r2 = left > 2 ? 2 * row : 0
    const r3 = left > 3 ? 3 * row : 0
    let sum = f32x4.splat(0)
    for (let k: usize = 0; k < row; k += 4) {
      const std = v128.load32_splat(logStd + k)
      const mean4 = gather4(mean + k, r1, r2, r3)
      const action4 = madd(exp4(std), gather4(normal + k, r1, r2, r3), mean4)
      scatter4(action + k, row, action4, left)
      sum = f32x4.sub(sum, surprise(action4, mean4, std))
    }
    store4(logprob, sum, left)
    action += row << 2
    mean += row << 2
    normal += row << 2
    logprob += 16
  }
}

export function gaussianMode(
  action: usize,
  logprob: usize,
  mean: usize,
  logStd: usize,
  numRows: i32,
  width: i32,
  from: i32,
): void {
  const row = <usize>width << 2
  action += <usize>from * row
  logprob += <usize>from << 2
  for (let left = numRows; left > 0; left -= 4) {
    const r1 = left > 1 ? row : 0
    const r2 = left > 2 ? 2 * row : 0
    const r3 = left > 3 ? 3 * row : 0
    let sum = f32x4.splat(0)
    for (let k: usize = 0; k < row; k += 4) {
      const mean4 = gather4(mean + k, r1, r2, r3)
      scatter4(action + k, row, mean4, left)
      sum = f32x4.sub(sum, surprise(mean4, mean4, v128.load32_splat(logStd + k)))
    }
    store4(logprob, sum, left)
    action += row << 2
    mean += row << 2
    logprob += 16
  }
}

export function gaussianEvaluate(
  logprob: usize,
  entropy: usize,
  action: usize,
  mean: usize,
  logStd: usize,
  numRows: i32,
  width: i32,
  from: i32,
): void {
  const row = <usize>width << 2
  action += <usize>from * row
  let rowEntropy: f32 = 0
  for (let k: usize = 0; k < row; k += 4) rowEntropy += 0.5 + HALF_LOG_TWO_PI + load<f32>(logStd + k)
  const entropy4 = f32x4.splat(rowEntropy)
  for (let left = numRows; left > 0; left -= 4) {
    const r1 = left > 1 ? row : 0
    const r2 = left > 2 ? 2 * row : 0
    const r3 = left > 3 ? 3 * row : 0
    let sum = f32x4.splat(0)
    for (let k: usize = 0; k < row; k += 4) {
      const action4 = gather4(action + k, r1, r2, r3)
      const mean4 = gather4(mean + k, r1, r2, r3)
      sum = f32x4.sub(sum, surprise(action4, mean4, v128.load32_splat(logStd + k)))
    }
    store4(logprob, sum, left)
    store4(entropy, entropy4, left)
    action += row << 2
    mean += row << 2
    logprob += 16
    entropy += 16
  }
}

/** The sum for dLogStd goes over the block's rows in four interleaved parts. */
export function gaussianBackward(
  dMean: usize,
  dLogStd: usize,
  dLogprob: usize,
  dEntropy: usize,
  action: usize,
  mean: usize,
  logStd: usize,
  numRows: i32,
  width: i32,
  from: i32,
): void {
  const row = <usize>width << 2
  const one = f32x4.splat(1)
  action += <usize>from * row
  for (let k: usize = 0; k < row; k += 4) {
    const perStd = exp4(f32x4.neg(v128.load32_splat(logStd + k)))
    let sum = f32x4.splat(0)
    let block = k
    let at: usize = 0
    for (let left = numRows; left > 0; left -= 4) {
      const r1 = left > 1 ? row : 0
      const r2 = left > 2 ? 2 * row : 0
      const r3 = left > 3 ? 3 * row : 0
      const byLogprob = load4(dLogprob + at, left) // 0 beyond the last row, as is byEntropy: those lanes add nothing.
      const byEntropy = load4(dEntropy + at, left)
      const z = f32x4.mul(f32x4.sub(gather4(action + block, r1, r2, r3), gather4(mean + block, r1, r2, r3)), perStd)
      scatter4(dMean + block, row, f32x4.mul(f32x4.mul(byLogprob, z), perStd), left)
      sum = f32x4.add(sum, madd(byLogprob, f32x4.sub(f32x4.mul(z, z), one), byEntropy))
      block += row << 2
      at += 16
    }
    store<f32>(dLogStd + k, load<f32>(dLogStd + k) + sum4(sum))
  }
}

/** −log p of one element: ½ z² + logStd + ½ log 2π. */
// @ts-ignore: decorator
@inline
function surprise(action: v128, mean: v128, logStd: v128): v128 {
  const z = f32x4.mul(f32x4.sub(action, mean), exp4(f32x4.neg(logStd)))
  return madd(f32x4.mul(z, f32x4.splat(0.5)), z, f32x4.add(logStd, f32x4.splat(HALF_LOG_TWO_PI)))
}
