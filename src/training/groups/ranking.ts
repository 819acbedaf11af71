/** How a sweep compares its settings: by an objective at the same length of training, within bounds of metrics. */
import { InputError, show, unknownWord } from '../../base/errors.ts'
import { explainedShare } from '../../telemetry/explained.ts'
import { figureIn } from '../../telemetry/metrics-lines.ts'
import { fractionOf, isRange, isSeveral, type Values } from './sampled-settings.ts'

/** The basis for comparing settings. */
export interface RankingOptions {
  /**
   * A metric to raise, like `episodeReturn` or `components/exact`, or with a minus to lower, like `-loss`: the mean over
   * the seeds of its last value. Default '': the return or reward, of evaluations if there are any.
   */
  readonly objective?: string
  /** Bounds of the same means of metrics, like `approxKl<0.05` or `evaluation/min>100`; settings outside rank last. */
  readonly constraints?: readonly string[]
}

interface Bound {
  readonly metric: string
  readonly isUpper: boolean
  readonly bound: number
}

/** Parses bounds. @throws InputError for an invalid bound, or a metric that runs do not have. */
export function boundsOf(texts: readonly string[], metrics: readonly string[]): Bound[] {
  return texts.map((text) => {
    const [, metric = '', sign, number] = /^([\w/.-]+)\s*([<>])\s*(.+)$/.exec(text) ?? []
    const bound = Number(number)
    if (metric === '' || number === '' || !Number.isFinite(bound))
      throw new InputError('constraints', show(text), 'bounds like approxKl<0.05')
    checkMetric('constraints', metric, metrics)
    return { metric, isUpper: sign === '<', bound }
  })
}

/** @throws InputError for a metric that runs do not have, with the nearest. */
export function checkMetric(subject: string, metric: string, metrics: readonly string[]): void {
  const [name] = metric.split('/')
  if (!metrics.includes(name!)) throw unknownWord(subject, name!, metrics)
}

type Line = Readonly<Record<string, unknown>>

/** The last known value of a metric, up to a line; NaN if there is none. */
export function lastValue(lines: readonly Line[], metric: string): number {
  return lines.map((line) => figureIn(line, metric)).findLast((value) => value !== undefined) ?? Number.NaN
}

/** A setting's worth: higher is better; −∞ without a value. */
export interface Worth {
  readonly value: number
  /** The sum of violations of bounds, as fractions of the bounds; 0 if none is violated. */
  readonly excess: number
}

/** The worth of runs that differ in their seed, by the lines of each. */
export function worthOf(runs: readonly (readonly Line[])[], objective: string, bounds: readonly Bound[]): Worth {
  const meanOf = (metric: string) => runs.reduce((sum, lines) => sum + lastValue(lines, metric), 0) / runs.length
  const isLowered = objective.startsWith('-')
  const mean = meanOf(isLowered ? objective.slice(1) : objective)
  const excess = bounds.reduce((sum, { metric, isUpper, bound }) => {
    const over = isUpper ? meanOf(metric) - bound : bound - meanOf(metric)
    if (Number.isNaN(over)) return Number.POSITIVE_INFINITY // Unknown is not within the bound.
    return sum + Math.max(0, over) / (Math.abs(bound) || 1)
  }, 0)
  return { value: Number.isNaN(mean) ? Number.NEGATIVE_INFINITY : isLowered ? -mean : mean, excess }
}

/** Orders settings: first by violations of bounds, then by length of training, then by value; the best first, the first of equals. */
export function rank(settings: readonly { readonly worth: Worth; readonly reached: number }[]): number[] {
  return [...settings.keys()].sort((a, b) => {
    const [one, other] = [settings[a]!, settings[b]!]
    const byBounds = one.worth.excess === other.worth.excess ? 0 : one.worth.excess - other.worth.excess
    const byValue = one.worth.value === other.worth.value ? 0 : other.worth.value - one.worth.value
    return byBounds || other.reached - one.reached || byValue || a - b
  })
}

/** Minimum number of settings for an estimate of importance. */
const ENOUGH = 8
/** Parts of a range. */
const PARTS = 4

/**
 * How much of the variance of the ranks each key explains alone (`explainedShare`), over the values of a list or the quarters of a
 * range. Null of fewer than 8 settings. `ranked`: the settings, the best first.
 */
export function importanceOf(
  values: ReadonlyMap<string, Values>,
  ranked: readonly Readonly<Record<string, string>>[],
): Record<string, number> | null {
  const n = ranked.length
  if (n < ENOUGH) return null
  const shares = [...values]
    .filter(([, each]) => isSeveral(each))
    .map(([key, each]) => {
      const groups = new Map<number, number[]>()
      for (const [i, setting] of ranked.entries()) {
        const at = fractionOf(each, setting[key]!)
        const part = isRange(each) ? Math.min(Math.floor(PARTS * at), PARTS - 1) : each.indexOf(setting[key]!)
        groups.set(part, [...(groups.get(part) ?? []), i])
      }
      return [key, groups.size === n ? 0 : explainedShare(groups.values())] as const
    })
  return Object.fromEntries(shares.toSorted(([, a], [, b]) => b - a))
}
