/** Adam in f32, four weights at a time; the plain twin `adam.ts` has the formulas. */
import { load4, lowPair, highPair, madd, store4, sum2 } from '../vector.simd'

export function adamStep(
  weight: usize,
  moment: usize,
  squareMoment: usize,
  gradient: usize,
  gradientScale: f64,
  learningRate: f64,
  beta1: f64,
  beta2: f64,
  epsilon: f64,
  weightDecay: f64,
  correction1: f64,
  correction2: f64,
  length: i32,
): void {
  const scale = f32x4.splat(<f32>gradientScale)
  const keep1 = f32x4.splat(<f32>beta1)
  const keep2 = f32x4.splat(<f32>beta2)
  const take1 = f32x4.splat(<f32>(1 - beta1))
  const take2 = f32x4.splat(<f32>(1 - beta2))
  const perCorrection1 = f32x4.splat(<f32>(1 / correction1))
  const perCorrection2 = f32x4.splat(<f32>(1 / correction2))
  const epsilon4 = f32x4.splat(<f32>epsilon)
  const decay = f32x4.splat(<f32>weightDecay)
  const descent = f32x4.splat(<f32>-learningRate)
  for (let left = length; left > 0; left -= 4) {
    const g = f32x4.mul(load4(gradient, left), scale)
    const m = madd(keep1, load4(moment, left), f32x4.mul(take1, g))
    const v = madd(keep2, load4(squareMoment, left), f32x4.mul(take2, f32x4.mul(g, g)))
    const w = load4(weight, left)
    const root = f32x4.add(f32x4.sqrt(f32x4.mul(v, perCorrection2)), epsilon4)
    const direction = f32x4.div(f32x4.mul(m, perCorrection1), root)
    store4(moment, m, left)
    store4(squareMoment, v, left)
    store4(weight, madd(descent, madd(decay, w, direction), w), left)
    weight += 16
    moment += 16
    squareMoment += 16
    gradient += 16
  }
}

/** In f64, in four interleaved sums. */
export function globalNorm(x: usize, length: i32): f64 {
  let sum0 = f64x2.splat(0)
  let sum1 = sum0
  for (let left = length; left > 0; left -= 4, x += 16) {
    const x4 = load4(x, left)
    const low = lowPair(x4)
    const high = highPair(x4)
    sum0 = f64x2.add(sum0, f64x2.mul(low, low))
    sum1 = f64x2.add(sum1, f64x2.mul(high, high))
  }
  return Math.sqrt(sum2(f64x2.add(sum0, sum1)))
}
