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
  // Whole vectors first: the same lines, for the compiler without the question how many lanes there are.
  for (; length >= 4; length -= 4) {
    step4(weight, moment, squareMoment, gradient, scale, keepSquare, takeSquare, keep, epsilon4, decay, descent, 4)
    weight += 16
    moment += 16
    squareMoment += 16
    gradient += 16
  }
  if (length > 0)
    step4(weight, moment, squareMoment, gradient, scale, keepSquare, takeSquare, keep, epsilon4, decay, descent, length)
}

// @ts-ignore: decorator
@inline
function step4(
  weight: usize,
  moment: usize,
  squareMoment: usize,
  gradient: usize,
  scale: v128,
  keepSquare: v128,
  takeSquare: v128,
  keep: v128,
  epsilon: v128,
  decay: v128,
  descent: v128,
  left: i32,
): void {
  const g = f32x4.mul(load4(gradient, left), scale)
  const v = madd(keepSquare, load4(squareMoment, left), f32x4.mul(takeSquare, f32x4.mul(g, g)))
  const direction = f32x4.div(g, f32x4.add(f32x4.sqrt(v), epsilon))
  const m = madd(keep, load4(moment, left), direction)
  const w = load4(weight, left)
  store4(squareMoment, v, left)
  store4(moment, m, left)
  store4(weight, madd(descent, madd(decay, w, m), w), left)
}
