/** V-trace, four lanes at a time in f32; the plain twin `vtrace.ts` has the formulas. */
import { exp4, flags4, load4, loadBytes, madd, store4 } from '../vector.simd'

export function vtrace(
  advantage: usize,
  rolloutReturn: usize,
  carry: usize,
  logprob: usize,
  rolloutLogprob: usize,
  reward: usize,
  value: usize,
  nextValue: usize,
  terminated: usize,
  truncated: usize,
  valid: usize,
  gamma: f64,
  lambda: f64,
  rhoMax: f64,
  cMax: f64,
  numSteps: i32,
  numLanes: i32,
): void {
  const discount = f32x4.splat(<f32>gamma)
  const mixed = f32x4.splat(<f32>(gamma * lambda))
  const rhoMax4 = f32x4.splat(<f32>rhoMax)
  const cMax4 = f32x4.splat(<f32>cMax)
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
      step(advantage + at, rolloutReturn + at, carry + (n << 2), logprob + at, rolloutLogprob + at, reward + at, value + at, nextValue + at, terminated + flag, truncated + flag, valid + flag, discount, mixed, rhoMax4, cMax4, 4)
    }
    if (left > 0) {
      const at = bytes + (n << 2)
      const flag = row + n
      step(advantage + at, rolloutReturn + at, carry + (n << 2), logprob + at, rolloutLogprob + at, reward + at, value + at, nextValue + at, terminated + flag, truncated + flag, valid + flag, discount, mixed, rhoMax4, cMax4, left)
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
  logprob: usize,
  rolloutLogprob: usize,
  reward: usize,
  value: usize,
  nextValue: usize,
  terminated: usize,
  truncated: usize,
  valid: usize,
  discount: v128,
  mixed: v128,
  rhoMax: v128,
  cMax: v128,
  left: i32,
): void {
  const terminal = loadBytes(terminated, left)
  const over = flags4(v128.or(terminal, loadBytes(truncated, left)))
  const counts = flags4(loadBytes(valid, left))
  const bootstrap = v128.andnot(load4(nextValue, left), flags4(terminal))
  const reward4 = load4(reward, left)
  const value4 = load4(value, left)
  const carried = load4(carry, left)
  const later = v128.andnot(carried, over)
  const ratio = exp4(f32x4.sub(load4(logprob, left), load4(rolloutLogprob, left)))
  const rho = f32x4.min(rhoMax, ratio)
  const c = f32x4.mul(mixed, f32x4.min(cMax, ratio))
  const delta = f32x4.mul(rho, f32x4.sub(madd(discount, bootstrap, reward4), value4))
  const gain = f32x4.mul(rho, f32x4.sub(madd(discount, f32x4.add(bootstrap, later), reward4), value4))
  const now = madd(c, later, delta)
  store4(carry, v128.bitselect(now, carried, counts), left)
  store4(advantage, v128.and(gain, counts), left)
  store4(rolloutReturn, f32x4.add(v128.and(now, counts), value4), left)
}
