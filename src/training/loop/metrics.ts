import type { LearnerMetrics } from '../../algorithms/algorithm.ts'
import { MAX_STALENESS } from '../../algorithms/tokens/staleness.ts'
import type { WorkName } from '../../base/clock.ts'
import { InputError } from '../../base/errors.ts'
import { checkMetrics, type Metrics, type MetricValues } from '../../base/metrics.ts'

/** What a trainer tells of each update. */
export const updateMetrics = {
  update: { unit: null, description: 'updates done, this one included', reduction: 'last' },
  steps: { unit: null, description: 'environment steps done, of all recorded lanes', reduction: 'last' },
  seconds: { unit: 's', description: 'of training so far', reduction: 'last' },
  stepsPerSecond: {
    unit: '1/s',
    description: "of this update: its steps over its rollout's and its learning's seconds",
    reduction: 'last',
  },
} as const satisfies Metrics

/** What a trainer tells of a cohort's episodes. */
export const episodeMetrics = {
  episodes: { unit: null, description: 'episodes finished so far', reduction: 'last' },
  episodeReturn: {
    unit: null,
    description: 'mean return of the last 100 finished episodes (of all, while they are fewer); NaN before the first',
    reduction: 'last',
  },
  episodeLength: { unit: 'steps', description: 'their mean length; NaN before the first', reduction: 'last' },
} as const satisfies Metrics

/** Where an update's time went. */
export const timeMetrics = {
  rolloutSeconds: { unit: 's', description: "of this update's rollout", reduction: 'last' },
  updateSeconds: { unit: 's', description: "of this update's learning", reduction: 'last' },
  phaseSeconds: {
    unit: 's',
    description: "that the caller's thread spent on each kind of work, by its name; they add up to the whole update",
    reduction: 'last',
  },
} as const satisfies Metrics

/** What a trainer tells besides where rollouts are collected while others are learned from. */
export const stalenessMetrics = {
  staleness: {
    unit: 'updates',
    description: 'between the weights that chose a row and the update that learns from it: mean over rows',
    reduction: 'last',
  },
  stalenessMax: { unit: 'updates', description: 'of the row that is most stale', reduction: 'last' },
  importanceWeight: {
    unit: null,
    description:
      'how likely the weights before the update would have chosen the same: mean ratio; NaN without correction',
    reduction: 'last',
  },
  importanceWeightMax: { unit: null, description: 'the largest of these ratios', reduction: 'last' },
  importanceWeightTruncated: { unit: null, description: 'mean of the ratios, each at most rhoMax', reduction: 'last' },
  rolloutAge: {
    unit: 's',
    description: 'between the beginning of a rollout and the update that learns from it: mean over actors',
    reduction: 'last',
  },
  rolloutAgeMax: { unit: 's', description: 'of the actor that began first', reduction: 'last' },
  actorWaitSeconds: {
    unit: 's',
    description: 'that actors waited until they might begin a rollout, since the update before: mean over actors',
    reduction: 'last',
  },
  learnerWaitSeconds: { unit: 's', description: 'that those who learn waited for the rollout', reduction: 'last' },
} as const satisfies Metrics

/** What a trainer tells besides of a cohort that plays against earlier selves. */
export const selfPlayMetrics = {
  eloRating: {
    unit: null,
    description: 'of the policy, by its games against earlier selves; the first policy had 1000',
    reduction: 'last',
  },
  eloRatingOpponents: { unit: null, description: 'mean of the earlier selves, as they were frozen', reduction: 'last' },
  opponentGames: { unit: null, description: 'against earlier selves that ended in the rollout', reduction: 'last' },
  opponentScore: {
    unit: null,
    description: 'mean score of these games: 1 for one that the policy won, ½ for a draw; NaN of none',
    reduction: 'last',
  },
} as const satisfies Metrics

/** The rows of a rollout by their staleness: how many are 0, 1 … `maxStaleness` updates stale, by the names of these metrics. */
export function staleRowMetrics(maxStaleness: number): Metrics {
  const ages = Array.from({ length: maxStaleness + 1 }, (_, age) => age)
  return Object.fromEntries(
    ages.map((age) => [
      staleRowsName(age),
      { unit: null, description: `rows learned from that are ${age} updates stale`, reduction: 'last' as const },
    ]),
  )
}

/** The name of the metric that counts rows of this staleness. */
export function staleRowsName(age: number): string {
  return `staleRows${age}`
}

/** What an update did to one cohort: its episodes, and what its algorithm declares, which is read by name. */
export type CohortMetrics = MetricValues<typeof episodeMetrics> & LearnerMetrics

/**
 * What an update did: `updateMetrics`, `timeMetrics`, and the figures of the cohort where there is one learner. With several
 * these are NaN, and found in `cohorts`.
 */
export type UpdateMetrics = MetricValues<typeof updateMetrics> &
  MetricValues<Omit<typeof timeMetrics, 'phaseSeconds'>> &
  CohortMetrics & {
    readonly phaseSeconds: Readonly<Record<WorkName, number>>
    /** By cohort name. */
    readonly cohorts: Readonly<Record<string, CohortMetrics>>
  }

/**
 * All that a line of `metrics.jsonl` says of a run by an algorithm with these metrics, in its order; where `maxStaleness` is above
 * 0 rollouts are collected while others are learned from, and there is more to say, as there is of self-play.
 */
export function metricsOfRun(algorithm: Metrics, maxStaleness = 0, isSelfPlay = false): Metrics {
  const stale = maxStaleness > 0 ? { ...stalenessMetrics, ...staleRowMetrics(maxStaleness) } : {}
  const played = isSelfPlay ? selfPlayMetrics : {}
  return { ...updateMetrics, ...episodeMetrics, ...algorithm, ...stale, ...played, ...timeMetrics }
}

/**
 * Refuses metrics of an algorithm that are none, or that have a name of the trainer's own.
 * @throws InputError that names the metric.
 */
export function checkAlgorithmMetrics({ id, metrics }: { readonly id: string; readonly metrics: Metrics }): void {
  checkMetrics(`${id} metrics`, metrics)
  const taken = ['cohorts', ...Object.keys(metricsOfRun({}, MAX_STALENESS, true))]
  for (const name of Object.keys(metrics)) {
    if (taken.includes(name)) {
      throw new InputError(`${id} metrics`, name, `names that the trainer has not taken (${taken.join(', ')})`)
    }
  }
}

/** The figures of no cohort in particular. */
export function noMetrics(algorithms: Iterable<{ readonly metrics: Metrics }>): CohortMetrics {
  const names = [episodeMetrics, ...[...algorithms].map(({ metrics }) => metrics)].flatMap(Object.keys)
  return Object.fromEntries(names.map((name) => [name, Number.NaN])) as CohortMetrics
}

/** What a line of `metrics.jsonl` says: a single cohort stands at the top alone. */
export function metricsLine(metrics: UpdateMetrics): object {
  const { cohorts, ...top } = metrics
  return Object.keys(cohorts).length > 1 ? metrics : top
}

/** Mean and standard deviation (n in the denominator) of the first `count` elements; NaN of none. */
export function meanAndStd(values: Float64Array, count: number): { mean: number; std: number } {
  let sum = 0
  for (let i = 0; i < count; i++) sum += values[i]!
  const mean = sum / count
  let squares = 0
  for (let i = 0; i < count; i++) squares += (values[i]! - mean) ** 2
  return { mean, std: Math.sqrt(squares / count) }
}

/** What thread 0 measured in an update. */
export interface Measured {
  readonly cohorts: Readonly<Record<string, CohortMetrics>>
  readonly rolloutSeconds: number
  /** Until the rollout was there: as many, or fewer where actors collect while others learn. */
  readonly waitSeconds: number
  readonly updateSeconds: number
}
