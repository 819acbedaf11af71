import type { Column } from './column.ts'

/**
 * Values that lanes carry from one tick to the next: two windows of numLanes × width elements. In a recorded cohort they slide along the
 * rollout, so that `next` of one tick is `current` of the following one, without a copy.
 */
export interface Sliding<C extends Column> {
  current: C
  next: C
}

/** The windows on a column of the rollout, one for each of its row blocks; the last `next` is `carried`. */
export function slidingWindows<C extends Float32Array | Uint8Array>(
  rollout: C,
  carried: C,
  numSteps: number,
): Sliding<C>[] {
  const elements = carried.length
  const blocks = Array.from({ length: numSteps }, (_, t) => rollout.subarray(t * elements, (t + 1) * elements) as C)
  return blocks.map((current, t) => ({ current, next: blocks[t + 1] ?? carried }))
}
