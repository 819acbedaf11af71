/** Generalized advantage estimation, four lanes at a time in f32; the plain twin `gae.ts` has the formulas. */
import { flags4, load4, loadBytes, madd, store4 } from '../vector.simd'

export function gae(
  advantage: usize,
  returns: usize,
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
    let flag = row
    let at = row << 2
    let sum = carry
    for (let left = numLanes; left > 0; left -= 4) {
      const terminal = loadBytes(terminated + flag, left)
      const over = flags4(v128.or(terminal, loadBytes(truncated + flag, left)))
      const counts = flags4(loadBytes(valid + flag, left))
      const bootstrap = v128.andnot(load4(nextValue + at, left), flags4(terminal))
      const value4 = load4(value + at, left)
      const delta = f32x4.sub(madd(discount, bootstrap, load4(reward + at, left)), value4)
      const later = load4(sum, left)
      const now = madd(mixed, v128.andnot(later, over), delta)
      const advantage4 = v128.and(now, counts)
      store4(sum, v128.bitselect(now, later, counts), left)
      store4(advantage + at, advantage4, left)
      store4(returns + at, f32x4.add(advantage4, value4), left)
      flag += 4
      at += 16
      sum += 16
    }
  }
}
