/** Chooses the next settings of a sweep: from a quasi-random sequence, at random, or by the results so far. */
import { InputError, show } from '../../base/errors.ts'
import { Random, Stream } from '../../base/random.ts'
import { fractionOf, isSeveral, type Values, valueAt } from './sampled-settings.ts'
import { proposeByTpe } from './tpe.ts'

/** How a sweep with `samples` finds its settings. */
export const searches = ['quasi', 'random', 'tpe'] as const
/** One of `searches`. */
export type Search = (typeof searches)[number]

/** Draws for each setting, before the search for different ones gives up. */
const DRAWS = 50
/** Settings that are tried before tpe uses results. */
const STARTUP = 10

/** How settings are drawn. */
export interface SearchOptions {
  /** Default `quasi`. */
  readonly search?: Search
  /** Settings to try; default 0: every combination. */
  readonly samples?: number
  /** Settings that tpe proposes at once, which train together; default 4. */
  readonly batch?: number
  /** Seed of random draws; default 0. */
  readonly searchSeed?: number
}

type Setting = Record<string, string>

/** How many settings are tried before the next results are waited for. */
export function nextCount({ search = 'quasi', samples = 0, batch = 4 }: SearchOptions, tried: number): number {
  if (search !== 'tpe') return samples - tried
  return Math.min(samples - tried, tried === 0 ? STARTUP : batch)
}

/**
 * Further settings, all new. `ranked`: those that were tried, the best first. Where tpe finds only known ones, the
 * quasi-random sequence gives the others.
 * @throws InputError if there are too few; for tpe before any was tried.
 */
export function propose(
  values: ReadonlyMap<string, Values>,
  ranked: readonly Setting[],
  count: number,
  { search = 'quasi', samples = 0, searchSeed = 0 }: SearchOptions,
): Setting[] {
  const several = [...values].filter(([, each]) => isSeveral(each))
  const keys = several.map(([, each]) => each)
  const settingAt = (fractions: readonly number[]): Setting => ({
    ...Object.fromEntries([...values].map(([key, each]) => [key, valueAt(each, 0)])),
    ...Object.fromEntries(several.map(([key, each], i) => [key, valueAt(each, fractions[i]!)])),
  })
  const fractionsOf = (setting: Setting) => several.map(([key, each]) => fractionOf(each, setting[key]!))
  const known = new Set(ranked.map((setting) => JSON.stringify(setting)))
  const found: Setting[] = []
  const drawUntil = (wanted: number, draws: number, draw: (i: number) => Setting) => {
    for (let i = 0; found.length < wanted && i < draws; i++) {
      const setting = draw(i)
      const text = JSON.stringify(setting)
      if (!known.has(text)) found.push(setting)
      known.add(text)
    }
  }
  const trial = ranked.length * DRAWS
  // The first time all samples are drawn, to find out before training whether there are enough.
  const wanted = ranked.length === 0 ? Math.max(samples, count) : count
  if (search === 'random') {
    drawUntil(wanted, DRAWS * wanted, (i) => settingAt(uniforms(keys.length, searchSeed, trial + i)))
  } else {
    if (search === 'tpe' && ranked.length > 0) {
      const best = ranked.map(fractionsOf)
      const pending: number[][] = []
      drawUntil(count, DRAWS * count, (i) => {
        const setting = settingAt(proposeByTpe(keys, best, pending, searchSeed, trial + i))
        pending.push(fractionsOf(setting)) // Also of a known one, so that it is not proposed forever.
        return setting
      })
    }
    const point = quasiRandom(keys.length)
    drawUntil(wanted, DRAWS * Math.max(samples, ranked.length + count), (i) => settingAt(point(i)))
  }
  if (found.length === wanted) return found.slice(0, count)
  throw new InputError(
    'samples',
    String(samples || count),
    `at most the ${known.size} different settings of these values`,
  )
}

/** Point i of an additive quasi-random sequence (Roberts 2018, R_d), whose steps are powers of 1/φ, where φ^(d+1) = φ + 1. */
function quasiRandom(dimensions: number): (i: number) => number[] {
  let phi = 2
  for (let i = 0; i < 60; i++) phi = (1 + phi) ** (1 / (dimensions + 1))
  return (i) => Array.from({ length: dimensions }, (_, key) => (0.5 + (i + 1) * phi ** -(key + 1)) % 1)
}

function uniforms(count: number, seed: number, trial: number): number[] {
  const random = new Random(seed)
  return Array.from({ length: count }, (_, key) => {
    random.draw(Stream.search, trial, key, 0)
    return random.uniform(0)
  })
}

/** @throws InputError for options of a search that are none, or have no effect. */
export function checkSearch({ search = 'quasi', samples = 0, batch = 4, searchSeed = 0 }: SearchOptions): void {
  if (!Number.isSafeInteger(samples) || samples < 0)
    throw new InputError('samples', show(samples), 'a whole number ≥ 0')
  if (!searches.includes(search)) throw new InputError('search', show(search), `one of ${searches.join(', ')}`)
  if (search !== 'quasi' && samples === 0)
    throw new InputError('search', `${search}, with samples 0`, 'the number of settings to try, like samples=32')
  if (!Number.isSafeInteger(batch) || batch < 1) throw new InputError('batch', show(batch), 'a whole number ≥ 1')
  new Random(searchSeed)
}
