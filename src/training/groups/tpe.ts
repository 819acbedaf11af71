/**
 * A tree-structured Parzen estimator (Bergstra, Bardenet, Bengio, Kégl 2011), with the choices of Optuna's sampler: each
 * key has a density of the best tenth of the settings and one of the others, and of 24 draws of the first that with the
 * highest ratio of both is tried. Settings that are still without a result count as bad, so that those proposed
 * together differ.
 */
import { Random, Stream } from '../../base/random.ts'
import { isRange, type Values } from './sampled-settings.ts'

/** Draws of the density of good settings. */
const CANDIDATES = 24
/** The best settings: this part of them, and at most this many. */
const BEST_PART = 0.1
const BEST_MOST = 25
/** Weight of the prior, in settings. */
const PRIOR = 1

/** A density of fractions in [0, 1). */
interface Density {
  draw(uniform: () => number): number
  log(at: number): number
}

/**
 * A proposal as fractions, one a key, from the fractions of settings that were tried, the best first, and of those
 * without a result yet. `trial` numbers the proposal: the same arguments give the same one.
 */
export function proposeByTpe(
  keys: readonly Values[],
  ranked: readonly (readonly number[])[],
  pending: readonly (readonly number[])[],
  seed: number,
  trial: number,
): number[] {
  const numBest = Math.min(Math.ceil(BEST_PART * ranked.length), BEST_MOST)
  const random = new Random(seed)
  return keys.map((values, key) => {
    let drawn = 0
    const uniform = () => {
      if (drawn % 4 === 0) random.draw(Stream.search, trial, key, drawn / 4)
      return random.uniform(drawn++ % 4)
    }
    const of = (settings: readonly (readonly number[])[]) => settings.map((setting) => setting[key]!)
    const good = densityOf(values, of(ranked.slice(0, numBest)))
    const bad = densityOf(values, of([...ranked.slice(numBest), ...pending]))
    let [best, highest] = [0, Number.NEGATIVE_INFINITY]
    for (let i = 0; i < CANDIDATES; i++) {
      const at = good.draw(uniform)
      const ratio = good.log(at) - bad.log(at)
      if (ratio > highest) [best, highest] = [at, ratio]
    }
    return best
  })
}

function densityOf(values: Values, points: readonly number[]): Density {
  return isRange(values) ? parzen(points) : counted(points, values.length)
}

/** Frequencies of a list's values, with the prior divided among them. */
function counted(points: readonly number[], size: number): Density {
  const weights = Array.from({ length: size }, () => PRIOR / size)
  for (const point of points) weights[Math.floor(point * size)]! += 1
  const total = points.length + PRIOR
  return {
    draw(uniform) {
      let left = uniform() * total
      const at = weights.findIndex((weight) => {
        left -= weight
        return left < 0
      })
      return ((at < 0 ? size - 1 : at) + 0.5) / size
    },
    log: (at) => Math.log(weights[Math.floor(at * size)]! / total),
  }
}

/** Normal densities around the points, each as wide as the larger gap beside it, and one around the middle. */
function parzen(points: readonly number[]): Density {
  const sorted = [...points, 0.5].sort((a, b) => a - b)
  const narrowest = 1 / Math.min(100, 1 + sorted.length)
  const prior = sorted.indexOf(0.5)
  const kernels = sorted.map((mean, i) => {
    const [before, after] = [sorted[i - 1] ?? 0, sorted[i + 1] ?? 1]
    const gap = Math.max(mean - before, after - mean)
    const width = i === prior ? 1 : Math.min(Math.max(gap, narrowest), 1)
    return { mean, width, inside: normalBelow((1 - mean) / width) - normalBelow(-mean / width) }
  })
  return {
    draw(uniform) {
      const { mean, width } = kernels[Math.min(Math.floor(uniform() * kernels.length), kernels.length - 1)]!
      for (;;) {
        const radius = Math.sqrt(-2 * Math.log(1 - uniform()))
        const at = mean + width * radius * Math.cos(2 * Math.PI * uniform())
        if (at >= 0 && at < 1) return at
      }
    },
    log(at) {
      const sum = kernels.reduce((total, { mean, width, inside }) => {
        return total + Math.exp(-0.5 * ((at - mean) / width) ** 2) / (width * inside)
      }, 0)
      return Math.log(sum / (kernels.length * Math.sqrt(2 * Math.PI)))
    },
  }
}

/** The standard normal distribution below x, within 8e-8 (Abramowitz and Stegun 1964, 26.2.17). */
function normalBelow(x: number): number {
  const t = 1 / (1 + 0.2316419 * Math.abs(x))
  const series = t * (0.31938153 + t * (-0.356563782 + t * (1.781477937 + t * (-1.821255978 + t * 1.330274429))))
  const above = (Math.exp(-0.5 * x * x) / Math.sqrt(2 * Math.PI)) * series
  return x >= 0 ? 1 - above : above
}
