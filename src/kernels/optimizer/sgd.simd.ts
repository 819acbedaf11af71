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
  for (; length > 0; length -= 4) {
    const m = madd(keep, load4(moment, length), f32x4.mul(load4(gradient, length), scale))
    const w = load4(weight, length)
    store4(moment, m, length)
    store4(weight, madd(descent, madd(decay, w, m), w), length)
    weight += 16
    moment += 16
    gradient += 16
  }
}
