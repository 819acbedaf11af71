import type { Sliding } from './sliding.ts'

/**
 * What a recurrent policy keeps of each lane's past: the policy's memory width elements a lane, none for other policies.
 *
 * `current`: what each lane remembers in this tick; zeros at the start of an episode. Written by the infer before, zeroed
 * by reset. `next`: its memory from the following tick on. Written by infer.
 */
export type Memory = Sliding<Float32Array>
