import type { Sliding } from './column.ts'

/**
 * Memory of a recurrent policy: the policy's memory width elements per lane, empty for other policies.
 *
 * `current`: each lane's memory in this tick, zero at the start of an episode. Written by the previous infer, zeroed by reset. `next`:
 * its memory from the next tick on. Written by infer.
 */
export type Memory = Sliding<Float32Array>
