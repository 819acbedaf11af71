/**
 * Draws whole numbers below a count by a seed (mulberry32): small, and enough to choose bytes.
 * @param {number} seed
 * @returns {(count: number) => number}
 */
export function drawer(seed) {
  let state = seed >>> 0
  return (count) => {
    state = (state + 0x6d2b79f5) >>> 0
    let mixed = Math.imul(state ^ (state >>> 15), state | 1)
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61)
    return Math.floor((((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32) * count)
  }
}
