/**
 * Sixteen gradient slots exist whatever the number of threads; block b of a minibatch adds to slot b mod 16. Slots are
 * summed pairwise (0+1, 2+3, …, then 0+2, …), so the result depends on the number of slots in use, which the data fix.
 */
export const NUM_SLOTS = 16

/** Sums `numSlots` slots of `length` elements into the first; the others are left with partial sums. */
export function sumSlots(slots: Float32Array | Float64Array, numSlots: number, length: number): void {
  for (let stride = 1; stride < numSlots; stride *= 2) {
    for (let slot = 0; slot + stride < numSlots; slot += 2 * stride) {
      const into = slot * length
      const from = (slot + stride) * length
      for (let i = 0; i < length; i++) slots[into + i] = slots[into + i]! + slots[from + i]!
    }
  }
}
