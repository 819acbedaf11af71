import type { RolloutColumns } from './rollout.ts'

/**
 * What lanes see. The two columns are numLanes × observation width. In a recorded cohort they slide along the rollout:
 * `next` of one tick is `current` of the following one.
 */
export interface Observation {
  /** What each lane sees in this tick. Written by the step before, and by reset for lanes that begin an episode. */
  current: Float32Array
  /** What each lane sees once it has acted: of an episode that ended, its final observation. Written by step. */
  next: Float32Array
}

/** The windows on a rollout's observations, one for each of its row blocks; the last `next` is `carried`. */
export function observationWindows(
  rollout: RolloutColumns,
  carried: Float32Array,
  numSteps: number,
  elements: number,
): Observation[] {
  const blocks = Array.from({ length: numSteps }, (_, t) =>
    rollout.observation.subarray(t * elements, (t + 1) * elements),
  )
  return blocks.map((current, t) => ({ current, next: blocks[t + 1] ?? carried }))
}
