/** Adam in f32, four weights at a time; the plain twin `adam.ts` has the formulas. */
import { highPair, load4, loadPart, lowPair, madd, storePart, sum2 } from '../vector.simd'

/**
 * Moments nearer to 0 than this are 0. They move no weight; left alone, those of a unit that relu has silenced would end
 * as denormal numbers, which never reach 0 and cost a hundred cycles each.
 */
const LEAST: f32 = 1e-30

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
  const least = f32x4.splat(LEAST)
  // Whole vectors first: the same lines, for the compiler without the question how many lanes there are.
  for (; length >= 4; length -= 4) {
    const g = f32x4.mul(v128.load(gradient), scale)
    const m = settle(madd(keep1, v128.load(moment), f32x4.mul(take1, g)), least)
    const v = settle(madd(keep2, v128.load(squareMoment), f32x4.mul(take2, f32x4.mul(g, g))), least)
    const root = f32x4.add(f32x4.sqrt(f32x4.mul(v, perCorrection2)), epsilon4)
    const direction = f32x4.div(f32x4.mul(m, perCorrection1), root)
    const w = v128.load(weight)
    v128.store(moment, m)
    v128.store(squareMoment, v)
    v128.store(weight, madd(descent, madd(decay, w, direction), w))
    weight += 16
    moment += 16
    squareMoment += 16
    gradient += 16
  }
  if (length > 0) {
    const g = f32x4.mul(loadPart(gradient, length), scale)
    const m = settle(madd(keep1, loadPart(moment, length), f32x4.mul(take1, g)), least)
    const v = settle(madd(keep2, loadPart(squareMoment, length), f32x4.mul(take2, f32x4.mul(g, g))), least)
    const root = f32x4.add(f32x4.sqrt(f32x4.mul(v, perCorrection2)), epsilon4)
    const direction = f32x4.div(f32x4.mul(m, perCorrection1), root)
    const w = loadPart(weight, length)
    storePart(moment, m, length)
    storePart(squareMoment, v, length)
    storePart(weight, madd(descent, madd(decay, w, direction), w), length)
  }
}

/** What of a moment is kept; NaN stays NaN. */
// @ts-ignore: decorator
@inline
function settle(moment: v128, least: v128): v128 {
  return v128.andnot(moment, f32x4.lt(f32x4.abs(moment), least))
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
