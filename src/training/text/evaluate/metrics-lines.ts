/** The parts of `metrics.jsonl` that run summaries read. */
import { type Metrics, metric } from '../../../base/metrics.ts'
import type { RlMetrics, TextMetrics } from './metrics.ts'

/** Fields of a `metrics.jsonl` line besides the phases' metrics. */
export const lineMetrics = {
  checkpoint: metric('number of a checkpoint at this point: ticks, supervised steps and updates done', 'last'),
} as const satisfies Metrics

/** A step's metrics by name; those of preferences, or an update's own, are beside those of every step. */
export function metricsLine({ rl, preference, ...top }: TextMetrics): Readonly<Record<string, unknown>> {
  return { ...top, ...preference, ...rl }
}

/** Groups over which the summary's rewards are averaged. */
export const SUMMARY_GROUPS = 100

/** The fields of a line that summaries read. */
export interface MetricsLine extends Pick<TextMetrics, 'phase' | 'step' | 'loss'>, Omit<RlMetrics, 'components'> {
  readonly checkpoint: number
}

/** The sum of a count over updates. */
export function total(
  updates: readonly MetricsLine[],
  name: 'trajectories' | 'cutTurns' | 'droppedReplies' | 'rewrites',
): number {
  return updates.reduce((sum, line) => sum + (line[name] ?? 0), 0) // Older lines lack some.
}

/** Tokens sampled and trained on per second of sampling and learning. */
export function rates(updates: readonly MetricsLine[]): { rollout: number; update: number } {
  const sum = (of: (line: MetricsLine) => number) => updates.reduce((total, line) => total + of(line), 0)
  return {
    rollout: sum(({ sampledTokens }) => sampledTokens) / sum(({ rolloutSeconds }) => rolloutSeconds),
    update: sum(({ trainedTokens }) => trainedTokens) / sum(({ updateSeconds }) => updateSeconds),
  }
}

export function mean(values: readonly number[]): number {
  return values.reduce((sum, value) => sum + value, 0) / values.length
}
