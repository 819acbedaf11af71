/**
 * How stale rollouts may be that an algorithm learns from, and what is done about it. Where rollouts are collected while others
 * are learned from, older weights than those that learn have chosen the rows.
 */
import { choice, integer, number, type SettingValues } from '../../base/settings.ts'

/** The greatest `maxStaleness` that there may be. */
export const MAX_STALENESS = 15

/** Bounds of the ratio of probabilities. */
export const vtraceSettings = {
  rhoMax: number(1, "ρ̄: bound of the ratio of probabilities in V-trace's target, or of an advantage's weight", {
    above: 0,
  }),
  cMax: number(1, 'c̄ of V-trace: bound of the ratio in its trace', { above: 0 }),
}

/** What is done about rows that other weights have chosen than those that learn. */
export const corrections = ['vtrace', 'decoupled', 'none'] as const

/** The settings that an algorithm declares which can learn from stale rollouts. */
export function stalenessSettings() {
  return {
    maxStaleness: integer(
      0,
      'η: maximum of updates between the weights that begin a rollout and the update that learns from it; 0: no collection during an update',
      { min: 0, max: MAX_STALENESS },
    ),
    correction: choice(
      'vtrace',
      corrections,
      'correction of stale rows (maxStaleness above 0) and of rows from a file: V-trace; advantages times the truncated ratio of probabilities; none',
    ),
    ...vtraceSettings,
  }
}

/** Their values. */
export type Staleness = SettingValues<ReturnType<typeof stalenessSettings>>

/** Those of an algorithm's values that say so; undefined for one that does not declare them. */
export function stalenessOf(values: Partial<Staleness>): Staleness | undefined {
  const { maxStaleness, correction, rhoMax, cMax } = values
  if (maxStaleness === undefined || correction === undefined) return undefined
  return { maxStaleness, correction, rhoMax: rhoMax ?? 1, cMax: cMax ?? 1 }
}
