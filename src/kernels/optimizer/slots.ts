/**
 * There are sixteen gradient slots for any number of threads; block b of a minibatch adds to slot b mod 16. Slots are
 * summed pairwise (0+1, 2+3, …, then 0+2, …), so the result depends only on the number of slots in use, which the data
 * determine.
 */
export const NUM_SLOTS = 16

/** Sets the first `length` elements to 0. A typed array's own `fill` takes several times as long over shared memory. */
export function clear(x: Float32Array, length: number): void {
  x.fill(0, 0, length)
}

/**
 * Sums elements from … to − 1 of `numSlots` slots of `length` elements into the first slot; the others are left with partial
 * sums.
 */
export function sumSlots(
  slots: Float32Array | Float64Array,
  numSlots: number,
  length: number,
  from: number,
  to: number,
): void {
  for (let stride = 1; stride < numSlots; stride *= 2) {
    for (let slot = 0; slot + stride < numSlots; slot += 2 * stride) {
      const into = slot * length
      const other = (slot + stride) * length
      for (let i = from; i < to; i++) slots[into + i] = slots[into + i]! + slots[other + i]!
    }
  }
}
