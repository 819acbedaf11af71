/** Student's t-tests: whether two samples of scores have the same mean. */
import { assert, checkGiven, InputError } from '../../base/errors.ts'

/** The result of a t-test. */
export interface TTest {
  /** Mean of the second sample minus mean of the first. */
  readonly difference: number
  readonly statistic: number
  readonly degreesOfFreedom: number
  /** Two-sided p-value: the probability of a difference at least as large by chance. */
  readonly pValue: number
  /** The confidence interval of the difference, at level `confidence`. */
  readonly interval: readonly [number, number]
  /** The difference in standard deviations (Cohen's d). */
  readonly effectSize: number
}

function momentsOf(values: readonly number[]): { count: number; mean: number; variance: number } {
  const count = values.length
  if (count < 2) throw new InputError('sample of a t-test', `${count} values`, 'at least two')
  const mean = values.reduce((sum, value) => sum + value, 0) / count
  const variance = values.reduce((sum, value) => sum + (value - mean) ** 2, 0) / (count - 1)
  return { count, mean, variance }
}

/**
 * Student's paired t-test: two scores per task. The effect size is the mean difference divided by the standard
 * deviation of the differences.
 * @throws InputError if the samples differ in length or have fewer than two values.
 */
export function pairedTTest(before: readonly number[], after: readonly number[], confidence = 0.95): TTest {
  checkGiven('before of pairedTTest', before, 'a list')
  checkGiven('after of pairedTTest', after, 'a list')
  if (before.length !== after.length) {
    throw new InputError('paired samples', `${before.length} and ${after.length} values`, 'as many of each')
  }
  const { count, mean, variance } = momentsOf(after.map((value, i) => value - before[i]!))
  return testOf(mean, Math.sqrt(variance / count), count - 1, Math.sqrt(variance), confidence)
}

/**
 * Welch's test of two independent samples with different variances (Welch 1947). The effect size is the difference of
 * the means divided by the root of the mean variance.
 * @throws InputError if a sample has fewer than two values.
 */
export function welchTTest(before: readonly number[], after: readonly number[], confidence = 0.95): TTest {
  checkGiven('before of welchTTest', before, 'a list')
  checkGiven('after of welchTTest', after, 'a list')
  const [a, b] = [momentsOf(before), momentsOf(after)]
  const [p, q] = [a.variance / a.count, b.variance / b.count]
  const freedom = p + q === 0 ? a.count + b.count - 2 : (p + q) ** 2 / (p ** 2 / (a.count - 1) + q ** 2 / (b.count - 1))
  return testOf(b.mean - a.mean, Math.sqrt(p + q), freedom, Math.sqrt((a.variance + b.variance) / 2), confidence)
}

function testOf(difference: number, error: number, freedom: number, deviation: number, confidence: number): TTest {
  const statistic = difference === 0 ? 0 : difference / error // ±∞ if both variances are 0.
  const reach = error === 0 ? 0 : quantile(confidence, freedom) * error
  return {
    difference,
    statistic,
    degreesOfFreedom: freedom,
    pValue: twoSided(statistic, freedom),
    interval: [difference - reach, difference + reach],
    effectSize: difference === 0 ? 0 : difference / deviation,
  }
}

/** P(|T| ≥ |t|) for Student's t with `freedom` degrees: I_x(ν/2, 1/2) with x = ν / (ν + t²). */
function twoSided(t: number, freedom: number): number {
  return t === 0 ? 1 : incompleteBeta(freedom / (freedom + t * t), freedom / 2, 0.5)
}

/** The t with P(|T| < t) = confidence, by bisection. */
function quantile(confidence: number, freedom: number): number {
  let low = 0
  let high = 1
  while (twoSided(high, freedom) > 1 - confidence) high *= 2
  for (let i = 0; i < 100; i++) {
    const middle = (low + high) / 2
    if (twoSided(middle, freedom) > 1 - confidence) low = middle
    else high = middle
  }
  return high
}

/** The regularized incomplete beta function I_x(a, b), by its continued fraction (modified Lentz). */
function incompleteBeta(x: number, a: number, b: number): number {
  if (x <= 0) return 0
  if (x >= 1) return 1
  // The fraction converges quickly only below the mean; above it, use the symmetry.
  if (x > (a + 1) / (a + b + 2)) return 1 - incompleteBeta(1 - x, b, a)
  const TINY = 1e-300
  const front = Math.exp(logGamma(a + b) - logGamma(a) - logGamma(b) + a * Math.log(x) + b * Math.log1p(-x)) / a
  let c = 1
  let d = 1 / (1 - ((a + b) * x) / (a + 1) || TINY)
  let fraction = d
  for (let m = 1; m <= 10_000; m++) {
    const even = (m * (b - m) * x) / ((a + 2 * m - 1) * (a + 2 * m))
    d = 1 / (1 + even * d || TINY)
    c = 1 + even / c || TINY
    fraction *= c * d
    const odd = (-(a + m) * (a + b + m) * x) / ((a + 2 * m) * (a + 2 * m + 1))
    d = 1 / (1 + odd * d || TINY)
    c = 1 + odd / c || TINY
    fraction *= c * d
    if (Math.abs(c * d - 1) < 1e-15) return front * fraction
  }
  assert(false, `the incomplete beta function does not converge at ${x}, ${a}, ${b}`)
}

/** log Γ(x) for x > 0, by Stirling's series after shifting x above 15. */
function logGamma(x: number): number {
  let shift = 0
  let y = x
  for (; y < 15; y++) shift += Math.log(y)
  const z = 1 / (y * y)
  const series = (1 / 12 - z * (1 / 360 - z * (1 / 1260 - z * (1 / 1680 - z / 1188)))) / y
  return (y - 0.5) * Math.log(y) - y + 0.5 * Math.log(2 * Math.PI) + series - shift
}
