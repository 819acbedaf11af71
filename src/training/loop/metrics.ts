import type { LearnerMetrics } from '../../algorithms/algorithm.ts'
import { MAX_STALENESS } from '../../algorithms/tokens/staleness.ts'
import type { WorkName } from '../../base/clock.ts'
import { InputError } from '../../base/errors.ts'
import { checkMetrics, type Metrics, type MetricValues } from '../../base/metrics.ts'

export const updateMetrics = {
  update: { unit: null, description: 'updates done, this one included', reduction: 'last' },
  steps: { unit: null, description: 'environment steps done, of all recorded lanes', reduction: 'last' },
  seconds: { unit: 's', description: 'time of training so far', reduction: 'last' },
  stepsPerSecond: {
    unit: '1/s',
    description: 'environment steps per second since the previous update, or since the start of the training',
    reduction: 'last',
  },
} as const satisfies Metrics

export const episodeMetrics = {
  episodes: { unit: null, description: 'episodes finished so far', reduction: 'last' },
  episodeReturn: {
    unit: null,
    description: 'mean return of the last 100 finished episodes, or of all if there are fewer; NaN if there are none',
    reduction: 'last',
  },
  episodeLength: {
    unit: 'steps',
    description: 'mean length of the same episodes; NaN if there are none',
    reduction: 'last',
  },
} as const satisfies Metrics

export const timeMetrics = {
  rolloutSeconds: { unit: 's', description: 'time of collecting the rollout', reduction: 'last' },
  updateSeconds: { unit: 's', description: 'time of learning from the rollout', reduction: 'last' },
  phaseSeconds: {
    unit: 's',
    description: "time of the caller's thread per kind of work, by name; the times add up to the whole update",
    reduction: 'last',
  },
} as const satisfies Metrics

/** Additional metrics if rollouts are collected while others are learned from. */
export const stalenessMetrics = {
  staleness: {
    unit: 'updates',
    description: 'updates between the weights that chose a row and the update that learns from it: mean over rows',
    reduction: 'last',
  },
  stalenessMax: { unit: 'updates', description: 'maximum of the staleness over rows', reduction: 'last' },
  importanceWeight: {
    unit: null,
    description:
      'probability of a row’s action under the weights before the update over its recorded probability: mean over rows; NaN without correction',
    reduction: 'last',
  },
  importanceWeightMax: { unit: null, description: 'maximum of importanceWeight over rows', reduction: 'last' },
  importanceWeightTruncated: {
    unit: null,
    description: 'mean of importanceWeight over rows, each truncated to rhoMax',
    reduction: 'last',
  },
  rolloutAge: {
    unit: 's',
    description: 'time between the start of a rollout and the update that learns from it: mean over actors',
    reduction: 'last',
  },
  rolloutAgeMax: { unit: 's', description: 'maximum of rolloutAge over actors', reduction: 'last' },
  actorWaitSeconds: {
    unit: 's',
    description:
      'time that actors waited for permission to start a rollout, since the previous update: mean over actors',
    reduction: 'last',
  },
  learnerWaitSeconds: { unit: 's', description: 'time that the learner waited for the rollout', reduction: 'last' },
} as const satisfies Metrics

/** Additional metrics of a cohort with self-play. */
export const selfPlayMetrics = {
  eloRating: {
    unit: null,
    description: 'Elo rating of the policy, from its games against its earlier versions; the initial policy has 1000',
    reduction: 'last',
  },
  eloRatingOpponents: {
    unit: null,
    description: 'mean Elo rating of the earlier versions, each fixed when it was stored',
    reduction: 'last',
  },
  opponentGames: {
    unit: null,
    description: 'games against earlier versions that ended in the rollout',
    reduction: 'last',
  },
  opponentScore: {
    unit: null,
    description: 'mean score of the policy in these games: 1 for a win, ½ for a draw; NaN if there are none',
    reduction: 'last',
  },
} as const satisfies Metrics

/** Counts a rollout's rows by staleness: how many are 0, 1 … `maxStaleness` updates stale, by metric name. */
export function staleRowMetrics(maxStaleness: number): Metrics {
  const ages = Array.from({ length: maxStaleness + 1 }, (_, age) => age)
  return Object.fromEntries(
    ages.map((age) => [
      staleRowsName(age),
      { unit: null, description: `number of trained rows that are ${age} updates stale`, reduction: 'last' as const },
    ]),
  )
}

export function staleRowsName(age: number): string {
  return `staleRows${age}`
}

/** The metrics of one cohort in an update: its episodes, and what its algorithm declares. */
export type CohortMetrics = MetricValues<typeof episodeMetrics> & LearnerMetrics

/** The metrics of an update. With several learners, the cohort metrics at the top are NaN. */
export type UpdateMetrics = MetricValues<typeof updateMetrics> &
  MetricValues<Omit<typeof timeMetrics, 'phaseSeconds'>> &
  CohortMetrics & {
    readonly phaseSeconds: Readonly<Record<WorkName, number>>
    /** By cohort name. */
    readonly cohorts: Readonly<Record<string, CohortMetrics>>
  }

/** All metrics in a line of `metrics.jsonl`, in order, for an algorithm, with `maxStaleness`, and with self-play. */
export function metricsOfRun(algorithm: Metrics, maxStaleness = 0, isSelfPlay = false): Metrics {
  const stale = maxStaleness > 0 ? { ...stalenessMetrics, ...staleRowMetrics(maxStaleness) } : {}
  const played = isSelfPlay ? selfPlayMetrics : {}
  return { ...updateMetrics, ...episodeMetrics, ...algorithm, ...stale, ...played, ...timeMetrics }
}

/** Checks an algorithm's metrics. @throws InputError for an invalid one, or a name that the trainer uses. */
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

/** An update as a line of `metrics.jsonl`: a single cohort's metrics are only at the top level. */
export function metricsLine(metrics: UpdateMetrics): object {
  const { cohorts, ...top } = metrics
  return Object.keys(cohorts).length > 1 ? metrics : top
}

/** Mean and standard deviation (n in the denominator) of the first `count` elements; NaN without any. */
export function meanAndStd(values: Float64Array, count: number): { mean: number; std: number } {
  let sum = 0
  for (let i = 0; i < count; i++) sum += values[i]!
  const mean = sum / count
  let squares = 0
  for (let i = 0; i < count; i++) squares += (values[i]! - mean) ** 2
  return { mean, std: Math.sqrt(squares / count) }
}

/** Thread 0's measurements of an update. */
export interface Measured {
  readonly cohorts: Readonly<Record<string, CohortMetrics>>
  readonly rolloutSeconds: number
  readonly updateSeconds: number
}
