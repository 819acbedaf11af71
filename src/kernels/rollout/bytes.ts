/** The first byte of lanes `from` to `to` that is outside its dimension's bounds (low[k] ≤ x ≤ high[k]), or −1. */
export function findByteBeyond(
  x: Uint8Array,
  low: Uint8Array,
  high: Uint8Array,
  width: number,
  from: number,
  to: number,
): number {
  for (let n = from; n < to; n++) {
    for (let k = 0; k < width; k++) {
      const byte = x[n * width + k]!
      if (byte < low[k]! || byte > high[k]!) return n * width + k
    }
  }
  return -1
}
