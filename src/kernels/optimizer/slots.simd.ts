/** Sums of slots in the plain twin's order, and so with its bits: four elements at a time for f32, two for f64. */
import { load4, store4 } from '../vector.simd'

export function sumSlots(
  slots: usize,
  slotsElementBytes: i32,
  numSlots: i32,
  length: i32,
  from: i32,
  to: i32,
): void {
  const first = slots + <usize>from * slotsElementBytes
  const slotBytes = <usize>length * slotsElementBytes
  if (slotsElementBytes == 8) sumSlots64(first, numSlots, slotBytes, to - from)
  else sumSlots32(first, numSlots, slotBytes, to - from)
}

export function clear(x: usize, length: i32): void {
  memory.fill(x, 0, <usize>length << 2)
}

function sumSlots32(slots: usize, numSlots: i32, slotBytes: usize, length: i32): void {
  for (let stride = 1; stride < numSlots; stride <<= 1) {
    for (let slot = 0; slot + stride < numSlots; slot += 2 * stride) {
      let into = slots + <usize>slot * slotBytes
      let from = into + <usize>stride * slotBytes
      for (let left = length; left > 0; left -= 4) {
        store4(into, f32x4.add(load4(into, left), load4(from, left)), left)
        into += 16
        from += 16
      }
    }
  }
}

function sumSlots64(slots: usize, numSlots: i32, slotBytes: usize, length: i32): void {
  for (let stride = 1; stride < numSlots; stride <<= 1) {
    for (let slot = 0; slot + stride < numSlots; slot += 2 * stride) {
      let into = slots + <usize>slot * slotBytes
      let from = into + <usize>stride * slotBytes
      let left = length
      for (; left >= 2; left -= 2) {
        v128.store(into, f64x2.add(v128.load(into), v128.load(from)))
        into += 16
        from += 16
      }
      if (left > 0) store<f64>(into, load<f64>(into) + load<f64>(from))
    }
  }
}
