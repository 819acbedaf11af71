/** Ranges of code points, and their UTF-8 bytes. */

/** Ranges that include both ends, in ascending order. */
export type Ranges = readonly (readonly [from: number, to: number])[]

const [FIRST_SURROGATE, LAST_SURROGATE, LAST] = [0xd800, 0xdfff, 0x10ffff]
/** All characters, so no surrogates. */
export const ALL: Ranges = [
  [0, FIRST_SURROGATE - 1],
  [LAST_SURROGATE + 1, LAST],
]

/** The ranges minus the characters of others. */
export function without(ranges: Ranges, others: Ranges): Ranges {
  const sorted = [...others].sort(([a], [b]) => a - b)
  const left: (readonly [number, number])[] = []
  let next = 0
  for (const [from, to] of ranges) {
    let at = from
    // `ranges` ascend, so no later one meets what ends before this one.
    while (next < sorted.length && sorted[next]![1] < from) next++
    for (let i = next; i < sorted.length && sorted[i]![0] <= to; i++) {
      if (sorted[i]![0] > at) left.push([at, sorted[i]![0] - 1])
      at = Math.max(at, sorted[i]![1] + 1)
    }
    if (at <= to) left.push([at, to])
  }
  return left
}

/** The characters of the ranges in UTF-8: each sequence gives a range for every byte of a character. */
export function utf8Sequences(ranges: Ranges): Ranges[] {
  return without(ranges, [[FIRST_SURROGATE, LAST_SURROGATE]]).flatMap(([from, to]) => sequencesOf(from, to))
}

/** The last characters that take one, two, three and four bytes. */
const LIMITS = [0x7f, 0x7ff, 0xffff, LAST]

function sequencesOf(from: number, to: number): Ranges[] {
  for (const limit of LIMITS) {
    if (from <= limit && to > limit) return [...sequencesOf(from, limit), ...sequencesOf(limit + 1, to)]
  }
  // Each byte after the first has six bits: split ranges that are not whole blocks of them.
  for (let bits = 6; bits < 24; bits += 6) {
    const mask = (1 << bits) - 1
    if (to <= 0x7f || from >> bits === to >> bits) continue
    if ((from & mask) !== 0) return [...sequencesOf(from, from | mask), ...sequencesOf((from | mask) + 1, to)]
    if ((to & mask) !== mask) return [...sequencesOf(from, (to & ~mask) - 1), ...sequencesOf(to & ~mask, to)]
  }
  const [low, high] = [bytesOf(from), bytesOf(to)]
  return [low.map((byte, i): readonly [number, number] => [byte, high[i]!])]
}

function bytesOf(code: number): number[] {
  const rest = (shift: number) => 0x80 | ((code >> shift) & 0x3f)
  if (code <= 0x7f) return [code]
  if (code <= 0x7ff) return [0xc0 | (code >> 6), rest(0)]
  if (code <= 0xffff) return [0xe0 | (code >> 12), rest(6), rest(0)]
  return [0xf0 | (code >> 18), rest(12), rest(6), rest(0)]
}
