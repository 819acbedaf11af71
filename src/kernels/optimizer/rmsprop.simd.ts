/** RMSprop in f32, four weights at a time; the plain twin `rmsprop.ts` has the formulas. */
import { load4, madd, store4 } from '../vector.simd'

export function rmspropStep(
  weight: usize,
  moment: usize,
  squareMoment: usize,
  gradient: usize,
  gradientScale: f64,
  learningRate: f64,
  alpha: f64,
  momentum: f64,
  epsilon: f64,
  weightDecay: f64,
  length: i32,
): void {
  const scale = f32x4.splat(<f32>gradientScale)
  const keepSquare = f32x4.splat(<f32>alpha)
  const takeSquare = f32x4.splat(<f32>(1 - alpha))
  const keep = f32x4.splat(<f32>momentum)
  const epsilon4 = f32x4.splat(<f32>epsilon)
  const decay = f32x4.splat(<f32>weightDecay)
  const descent = f32x4.splat(<f32>-learningRate)
  for (; length > 0; length -= 4) {
    const g = f32x4.mul(load4(gradient, length), scale)
    const v = madd(keepSquare, load4(squareMoment, length), f32x4.mul(takeSquare, f32x4.mul(g, g)))
    const direction = f32x4.div(g, f32x4.add(f32x4.sqrt(v), epsilon4))
    const m = madd(keep, load4(moment, length), direction)
    const w = load4(weight, length)
    store4(squareMoment, v, length)
    store4(moment, m, length)
    store4(weight, madd(descent, madd(decay, w, m), w), length)
    weight += 16
    moment += 16
    squareMoment += 16
    gradient += 16
  }
}
