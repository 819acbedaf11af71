/** Which settings a sweep tries next: a quasi-random sequence, random ones, or those that results propose. */
import { InputError, show } from '../../base/errors.ts'
import { Random, Stream } from '../../base/random.ts'
import { DRAWS, fractionOf, isSeveral, sampleSettings, type Values, valueAt } from './sampled-settings.ts'
import { proposeByTpe } from './tpe.ts'

/** How a sweep with `samples` finds its settings. */
export const searches = ['quasi', 'random', 'tpe'] as const
/** One of `searches`. */
export type Search = (typeof searches)[number]

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
  const quasi = () => sampleSettings(values, Math.max(samples, ranked.length + count))
  // All samples are drawn, to find out before training whether there are enough.
  if (search === 'quasi' || (search === 'tpe' && ranked.length === 0)) return quasi().slice(0, count)
  const several = [...values].filter(([, each]) => isSeveral(each))
  const settingOf = (fractions: readonly number[]): Setting => ({
    ...Object.fromEntries([...values].map(([key, each]) => [key, valueAt(each, 0)])),
    ...Object.fromEntries(several.map(([key, each], i) => [key, valueAt(each, fractions[i]!)])),
  })
  const fractionsOf = (setting: Setting) => several.map(([key, each]) => fractionOf(each, setting[key]!))
  const known = new Set(ranked.map((setting) => JSON.stringify(setting)))
  const best = ranked.map(fractionsOf)
  const found: Setting[] = []
  const pending: number[][] = []
  for (let i = 0; found.length < count && i < DRAWS * count; i++) {
    const trial = ranked.length * DRAWS + i
    const fractions =
      search === 'tpe'
        ? proposeByTpe(
            several.map(([, each]) => each),
            best,
            pending,
            searchSeed,
            trial,
          )
        : uniforms(several.length, searchSeed, trial)
    const setting = settingOf(fractions)
    pending.push(fractionsOf(setting)) // Also of a known one, so that it is not proposed forever.
    const text = JSON.stringify(setting)
    if (known.has(text)) continue
    known.add(text)
    found.push(setting)
  }
  if (search === 'tpe' && found.length < count) {
    const others = quasi().filter((setting) => !known.has(JSON.stringify(setting)))
    found.push(...others.slice(0, count - found.length))
  }
  if (found.length === count) return found
  throw new InputError('samples', String(samples), `at most the ${known.size} different settings of these values`)
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
