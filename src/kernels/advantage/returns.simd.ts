/** Discounted returns to go, four lanes at a time in f32; the plain twin `returns.ts` has the formulas. */
import { flags4, load4, loadBytes, madd, store4 } from '../vector.simd'

export function discountedReturns(
  rolloutReturn: usize,
  carry: usize,
  reward: usize,
  nextValue: usize,
  terminated: usize,
  truncated: usize,
  valid: usize,
  gamma: f64,
  numSteps: i32,
  numLanes: i32,
): void {
  const discount = f32x4.splat(<f32>gamma)
  const none = f32x4.splat(NaN) // No later row yet.
  for (let left = numLanes, at = carry; left > 0; left -= 4, at += 16) store4(at, none, left)
  for (let t = numSteps - 1; t >= 0; t--) {
    const row = <usize>t * <usize>numLanes
    let flag = row
    let at = row << 2
    let sum = carry
    for (let left = numLanes; left > 0; left -= 4) {
      const later = load4(sum, left)
      const counts = flags4(loadBytes(valid + flag, left))
      const cut = v128.or(flags4(loadBytes(truncated + flag, left)), f32x4.ne(later, later))
      const rest = v128.bitselect(load4(nextValue + at, left), later, cut)
      const terminal = flags4(loadBytes(terminated + flag, left))
      const now = madd(discount, v128.andnot(rest, terminal), load4(reward + at, left))
      store4(sum, v128.bitselect(now, later, counts), left)
      store4(rolloutReturn + at, v128.and(now, counts), left)
      flag += 4
      at += 16
      sum += 16
    }
  }
}
