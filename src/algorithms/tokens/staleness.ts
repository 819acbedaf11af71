/** Staleness of rollouts: if rollouts are collected during updates, older weights than the trained ones chose the rows. */
import { choice, integer, number, type SettingValues } from '../../base/settings.ts'

/** Upper limit of `maxStaleness`. */
export const MAX_STALENESS = 15

export const vtraceSettings = {
  rhoMax: number(1, "ρ̄: bound of the ratio of probabilities in V-trace's target, or of an advantage's weight", {
    above: 0,
  }),
  cMax: number(1, 'c̄ of V-trace: bound of the ratio in its trace', { above: 0 }),
}

/** Corrections of rows that other weights chose. */
export const corrections = ['vtrace', 'decoupled', 'none'] as const

/** The settings of an algorithm that can learn from stale rollouts. */
export function stalenessSettings() {
  return {
    maxStaleness: integer(
      0,
      "η: most updates between a rollout's weights and the update that learns from it; 0: no collection during updates",
      { min: 0, max: MAX_STALENESS },
    ),
    correction: choice(
      'vtrace',
      corrections,
      'correction of stale rows (maxStaleness above 0) and of rows from a file: vtrace; decoupled, which multiplies advantages by the truncated ratio of probabilities; none',
    ),
    ...vtraceSettings,
  }
}

/** Values of the staleness settings. */
export type Staleness = SettingValues<ReturnType<typeof stalenessSettings>>

/** Selects the staleness settings; undefined if the algorithm does not declare them. */
export function stalenessOf(values: Partial<Staleness>): Staleness | undefined {
  const { maxStaleness, correction, rhoMax, cMax } = values
  if (maxStaleness === undefined || correction === undefined) return undefined
  return { maxStaleness, correction, rhoMax: rhoMax ?? 1, cMax: cMax ?? 1 }
}
