/** Generalized advantage estimation, four lanes at a time in f32; the plain twin `gae.ts` has the formulas. */
import { flags4, load4, loadBytes, madd, store4 } from '../vector.simd'

export function gae(
  advantage: usize,
  rolloutReturn: usize,
  carry: usize,
  reward: usize,
  value: usize,
  nextValue: usize,
  terminated: usize,
  truncated: usize,
  valid: usize,
  gamma: f64,
  lambda: f64,
  numSteps: i32,
  numLanes: i32,
): void {
  const discount = f32x4.splat(<f32>gamma)
  const mixed = f32x4.splat(<f32>(gamma * lambda))
  const zero = f32x4.splat(0)
  for (let left = numLanes, at = carry; left > 0; left -= 4, at += 16) store4(at, zero, left)
  for (let t = numSteps - 1; t >= 0; t--) {
    const row = <usize>t * <usize>numLanes
    const bytes = row << 2
    let n: usize = 0
    let left = numLanes
    for (; left >= 4; left -= 4, n += 4) {
      const at = bytes + (n << 2)
      const flag = row + n
      step(advantage + at, rolloutReturn + at, carry + (n << 2), reward + at, value + at, nextValue + at, terminated + flag, truncated + flag, valid + flag, discount, mixed, 4)
    }
    if (left > 0) {
      const at = bytes + (n << 2)
      const flag = row + n
      step(advantage + at, rolloutReturn + at, carry + (n << 2), reward + at, value + at, nextValue + at, terminated + flag, truncated + flag, valid + flag, discount, mixed, left)
    }
  }
}

/** One step of four lanes, or of the fewer that are left. */
// @ts-ignore: decorator
@inline
function step(
  advantage: usize,
  rolloutReturn: usize,
  carry: usize,
  reward: usize,
  value: usize,
  nextValue: usize,
  terminated: usize,
  truncated: usize,
  valid: usize,
  discount: v128,
  mixed: v128,
  left: i32,
): void {
  const terminal = loadBytes(terminated, left)
  const over = flags4(v128.or(terminal, loadBytes(truncated, left)))
  const counts = flags4(loadBytes(valid, left))
  const bootstrap = v128.andnot(load4(nextValue, left), flags4(terminal))
  const value4 = load4(value, left)
  const delta = f32x4.sub(madd(discount, bootstrap, load4(reward, left)), value4)
  const later = load4(carry, left)
  const now = madd(mixed, v128.andnot(later, over), delta)
  const advantage4 = v128.and(now, counts)
  store4(carry, v128.bitselect(now, later, counts), left)
  store4(advantage, advantage4, left)
  store4(rolloutReturn, f32x4.add(advantage4, value4), left)
}
