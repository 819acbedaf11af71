/** What summaries of runs read in `metrics.jsonl`. */
import type { RlMetrics, TextMetrics } from './metrics.ts'

/** Groups over which the summary's rewards are averaged. */
export const SUMMARY_GROUPS = 100

/** A line of `metrics.jsonl`, as far as summaries read it. */
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

/** Tokens sampled a second while sampling, and trained on a second while learning. */
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
