import type { Sliding } from './column.ts'

/**
 * Observations: observation width elements per lane.
 *
 * `current`: each lane's observation in this tick. Written by the previous step, and by reset for lanes that begin an episode. `next`:
 * its observation after the action; for an ended episode, the final observation. Written by step.
 */
export type Observation = Sliding<ObservationColumn>

/** Observations of f32, or of bytes where the environment's space says so (`type: 'u8'`). */
export type ObservationColumn = Float32Array | Uint8Array
