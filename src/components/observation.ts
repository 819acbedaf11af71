import type { Sliding } from './sliding.ts'

/**
 * What lanes see: observation width elements a lane.
 *
 * `current`: what each lane sees in this tick. Written by the step before, and by reset for lanes that begin an episode.
 * `next`: what it sees once it has acted; of an episode that ended, its final observation. Written by step.
 */
export type Observation = Sliding<Float32Array>
