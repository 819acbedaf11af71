/** Sums and moments in f64, over the rows in four interleaved sums; the plain twin `moments.ts` has the formulas. */
import { firstLanes, flags4, highPair, load4, loadBytes, lowPair, sum2 } from '../vector.simd'

export function meanAndDeviation(moments: usize, x: usize, numRows: i32): void {
  let sum0 = f64x2.splat(0)
  let sum1 = sum0
  for (let left = numRows, at = x; left > 0; left -= 4, at += 16) {
    const x4 = load4(at, left)
    sum0 = f64x2.add(sum0, lowPair(x4))
    sum1 = f64x2.add(sum1, highPair(x4))
  }
  const mean = sum2(f64x2.add(sum0, sum1)) / <f64>numRows
  const mean2 = f64x2.splat(mean)
  sum0 = f64x2.splat(0)
  sum1 = sum0
  for (let left = numRows, at = x; left > 0; left -= 4, at += 16) {
    const x4 = load4(at, left)
    const row = firstLanes(left)
    const low = v128.and(f64x2.sub(lowPair(x4), mean2), i64x2.extend_low_i32x4_s(row))
    const high = v128.and(f64x2.sub(highPair(x4), mean2), i64x2.extend_high_i32x4_s(row))
    sum0 = f64x2.add(sum0, f64x2.mul(low, low))
    sum1 = f64x2.add(sum1, f64x2.mul(high, high))
  }
  store<f64>(moments, mean)
  store<f64>(moments + 8, numRows > 1 ? Math.sqrt(sum2(f64x2.add(sum0, sum1)) / <f64>(numRows - 1)) : 0)
}

export function explainedVariance(value: usize, returns: usize, valid: usize, numRows: i32): f64 {
  let counts = i32x4.splat(0)
  let sumReturn = f64x2.splat(0)
  let sumError = f64x2.splat(0)
  for (let left = numRows, at: usize = 0, flag = valid; left > 0; left -= 4, at += 16, flag += 4) {
    const row = flags4(loadBytes(flag, left))
    const return4 = v128.and(load4(returns + at, left), row)
    const value4 = v128.and(load4(value + at, left), row)
    const low = lowPair(return4)
    const high = highPair(return4)
    counts = i32x4.sub(counts, row)
    sumReturn = f64x2.add(f64x2.add(sumReturn, low), high)
    sumError = f64x2.add(sumError, f64x2.sub(low, lowPair(value4)))
    sumError = f64x2.add(sumError, f64x2.sub(high, highPair(value4)))
  }
  const pairs = i32x4.add(counts, v128.shuffle<i32>(counts, counts, 2, 3, 0, 1))
  const count = <f64>(i32x4.extract_lane(pairs, 0) + i32x4.extract_lane(pairs, 1))
  const meanReturn = f64x2.splat(sum2(sumReturn) / count)
  const meanError = f64x2.splat(sum2(sumError) / count)
  let varianceReturn = f64x2.splat(0)
  let varianceError = f64x2.splat(0)
  for (let left = numRows, at: usize = 0, flag = valid; left > 0; left -= 4, at += 16, flag += 4) {
    const row = flags4(loadBytes(flag, left))
    const return4 = load4(returns + at, left)
    const value4 = load4(value + at, left)
    const rowLow = i64x2.extend_low_i32x4_s(row)
    const rowHigh = i64x2.extend_high_i32x4_s(row)
    const low = lowPair(return4)
    const high = highPair(return4)
    const fromLow = v128.and(f64x2.sub(low, meanReturn), rowLow)
    const fromHigh = v128.and(f64x2.sub(high, meanReturn), rowHigh)
    const errorLow = v128.and(f64x2.sub(f64x2.sub(low, lowPair(value4)), meanError), rowLow)
    const errorHigh = v128.and(f64x2.sub(f64x2.sub(high, highPair(value4)), meanError), rowHigh)
    varianceReturn = f64x2.add(varianceReturn, f64x2.mul(fromLow, fromLow))
    varianceReturn = f64x2.add(varianceReturn, f64x2.mul(fromHigh, fromHigh))
    varianceError = f64x2.add(varianceError, f64x2.mul(errorLow, errorLow))
    varianceError = f64x2.add(varianceError, f64x2.mul(errorHigh, errorHigh))
  }
  const ofReturn = sum2(varianceReturn)
  return ofReturn == 0 ? NaN : 1 - sum2(varianceError) / ofReturn
}
