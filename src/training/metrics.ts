import type { LearnerMetrics } from '../algorithms/algorithm.ts'
import type { WorkName } from '../clock.ts'

/** What an update did to one cohort. */
export interface CohortMetrics extends LearnerMetrics {
  /** Episodes finished so far. */
  episodes: number
  /** Mean return of the last 100 finished episodes (of all, while they are fewer); NaN before the first. */
  episodeReturn: number
  /** Their mean length in steps; NaN before the first. */
  episodeLength: number
}

/**
 * What an update did. The cohort's figures stand at the top where there is one learner; with several they are NaN there,
 * and found in `cohorts`.
 */
export interface UpdateMetrics extends CohortMetrics {
  /** Updates done, this one included. */
  update: number
  /** Environment steps done, of all recorded lanes. */
  steps: number
  /** Seconds of training so far. */
  seconds: number
  /** Of this update: its steps over its rollout and update seconds. */
  stepsPerSecond: number
  /** Seconds of this update's rollout. */
  rolloutSeconds: number
  /** Seconds of this update's learning. */
  updateSeconds: number
  /** Seconds that the caller's thread spent on each kind of work; they add up to the whole update. */
  phaseSeconds: Readonly<Record<WorkName, number>>
  /** By cohort name. */
  cohorts: Readonly<Record<string, CohortMetrics>>
}

/** The figures of no cohort in particular. */
export function noMetrics(): CohortMetrics {
  const none = Number.NaN
  return {
    episodes: none,
    episodeReturn: none,
    episodeLength: none,
    policyLoss: none,
    valueLoss: none,
    entropy: none,
    approxKl: none,
    clipFraction: none,
    explainedVariance: none,
    gradNorm: none,
    learningRate: none,
  }
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
