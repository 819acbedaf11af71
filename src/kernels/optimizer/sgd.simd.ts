/** Stochastic gradient descent in f32, four weights at a time; the plain twin `sgd.ts` has the formulas. */
import { load4, madd, store4 } from '../vector.simd'

export function sgdStep(
  weight: usize,
  moment: usize,
  gradient: usize,
  gradientScale: f64,
  learningRate: f64,
  momentum: f64,
  weightDecay: f64,
  length: i32,
): void {
  const scale = f32x4.splat(<f32>gradientScale)
  const keep = f32x4.splat(<f32>momentum)
  const decay = f32x4.splat(<f32>weightDecay)
  const descent = f32x4.splat(<f32>-learningRate)
  // Whole vectors first: the same lines, for the compiler without the question how many lanes there are.
  for (; length >= 4; length -= 4) {
    step4(weight, moment, gradient, scale, keep, decay, descent, 4)
    weight += 16
    moment += 16
    gradient += 16
  }
  if (length > 0) step4(weight, moment, gradient, scale, keep, decay, descent, length)
}

// @ts-ignore: decorator
@inline
function step4(
  weight: usize,
  moment: usize,
  gradient: usize,
  scale: v128,
  keep: v128,
  decay: v128,
  descent: v128,
  left: i32,
): void {
  const m = madd(keep, load4(moment, left), f32x4.mul(load4(gradient, left), scale))
  const w = load4(weight, left)
  store4(moment, m, left)
  store4(weight, madd(descent, madd(decay, w, m), w), left)
}
