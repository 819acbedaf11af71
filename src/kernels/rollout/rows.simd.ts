/** Choosing, ordering, gathering and checking rows, with the plain twin's bits (`rows.ts`). */

/** As in random.ts: the stream of shuffles, the multipliers and the key's increments. */
const STREAM_SHUFFLE: u32 = 3
const MULTIPLIER_0: u64 = 0xd2511f53
const MULTIPLIER_1: u64 = 0xcd9e8d57
const WEYL_0: u32 = 0x9e3779b9
const WEYL_1: u32 = 0xbb67ae85

export function listValid(rows: usize, valid: usize, numRows: i32): i32 {
  const zero = i8x16.splat(0)
  const sixteens = numRows & ~15
  let at = rows
  let row = 0
  for (; row < sixteens; row += 16) {
    const flags = v128.load(valid + row)
    if (i8x16.all_true(flags)) {
      let four = i32x4.add(i32x4.splat(row), i32x4(0, 1, 2, 3))
      for (let i = 0; i < 4; i++) {
        v128.store(at, four)
        four = i32x4.add(four, i32x4.splat(4))
        at += 16
      }
    } else {
      let bits = ~i8x16.bitmask(i8x16.eq(flags, zero)) & 0xffff
      for (; bits != 0; bits &= bits - 1) {
        store<i32>(at, row + ctz(bits))
        at += 4
      }
    }
  }
  for (; row < numRows; row++) {
    if (load<u8>(valid + row) == 0) continue
    store<i32>(at, row)
    at += 4
  }
  return <i32>((at - rows) >> 2)
}

export function shuffleRows(rows: usize, count: i32, update: u32, epoch: u32, key0: u32, key1: u32): void {
  let block: u32 = 0
  for (let i = count - 1; i > 0; i -= 4, block++) {
    let c0 = block
    let c1 = update
    let c2 = epoch
    let c3 = STREAM_SHUFFLE
    let k0 = key0
    let k1 = key1
    for (let round = 0; round < 10; round++) {
      const product0 = <u64>c0 * MULTIPLIER_0
      const product1 = <u64>c2 * MULTIPLIER_1
      c0 = <u32>(product1 >> 32) ^ c1 ^ k0
      c1 = <u32>product1
      c2 = <u32>(product0 >> 32) ^ c3 ^ k1
      c3 = <u32>product0
      k0 += WEYL_0
      k1 += WEYL_1
    }
    swap(rows, i, c0)
    if (i > 1) swap(rows, i - 1, c1)
    if (i > 2) swap(rows, i - 2, c2)
    if (i > 3) swap(rows, i - 3, c3)
  }
}

/** Swaps row i with one of rows 0 to i: in f64 as the plain twin does, for the same rounding. */
// @ts-ignore: decorator
@inline
function swap(rows: usize, i: i32, word: u32): void {
  const j = <i32>((<f64>word * <f64>(i + 1)) / 4294967296)
  const a = rows + (<usize>i << 2)
  const b = rows + (<usize>j << 2)
  const swapped = load<i32>(a)
  store<i32>(a, load<i32>(b))
  store<i32>(b, swapped)
}

export function gatherRows(
  gathered: usize,
  gatheredElementBytes: i32,
  source: usize,
  rows: usize,
  first: i32,
  count: i32,
  width: i32,
): void {
  if (gatheredElementBytes == 1) gatherBytes(gathered, source, rows, first, count, width)
  else gatherWords(gathered, source, rows, first, count, width)
}

function gatherWords(gathered: usize, source: usize, rows: usize, first: i32, count: i32, width: i32): void {
  rows += <usize>first << 2
  const bytes = <usize>width << 2
  const end = rows + (<usize>count << 2)
  if (width == 1) {
    for (; rows < end; rows += 4, gathered += 4) store<i32>(gathered, load<i32>(source + (<usize>load<u32>(rows) << 2)))
  } else if (width == 4) {
    for (; rows < end; rows += 4, gathered += 16) {
      v128.store(gathered, v128.load(source + (<usize>load<u32>(rows) << 4)))
    }
  } else {
    for (; rows < end; rows += 4) {
      const from = source + <usize>load<u32>(rows) * bytes
      let k: usize = 0
      for (; k + 16 <= bytes; k += 16) v128.store(gathered + k, v128.load(from + k))
      for (; k < bytes; k += 4) store<i32>(gathered + k, load<i32>(from + k))
      gathered += bytes
    }
  }
}

function gatherBytes(gathered: usize, source: usize, rows: usize, first: i32, count: i32, width: i32): void {
  rows += <usize>first << 2
  const bytes = <usize>width
  for (const end = rows + (<usize>count << 2); rows < end; rows += 4) {
    memory.copy(gathered, source + <usize>load<u32>(rows) * bytes, bytes)
    gathered += bytes
  }
}

export function placeRows(into: usize, from: usize, rows: usize, count: i32, width: i32): void {
  const row = <usize>width << 2
  for (; count > 0; count--, rows += 4, from += row) memory.copy(into + <usize>load<i32>(rows) * row, from, row)
}

export function findNonFinite(x: usize, from: i32, to: i32): i32 {
  let i = from
  for (; i + 32 <= to; i += 32) {
    // x − x has no bit set where x is finite, and is NaN elsewhere.
    const at = x + (<usize>i << 2)
    const first = v128.or(v128.or(rest(at), rest(at + 16)), v128.or(rest(at + 32), rest(at + 48)))
    const last = v128.or(v128.or(rest(at + 64), rest(at + 80)), v128.or(rest(at + 96), rest(at + 112)))
    if (v128.any_true(v128.or(first, last))) break
  }
  for (; i < to; i++) {
    const element = load<f32>(x + (<usize>i << 2))
    if (element - element != 0) return i
  }
  return -1
}

/** x − x of four elements. */
// @ts-ignore: decorator
@inline
function rest(at: usize): v128 {
  const x = v128.load(at)
  return f32x4.sub(x, x)
}

export function findBeyond(x: usize, low: usize, high: usize, width: i32, from: i32, to: i32): i32 {
  const elements: usize = width
  let i: usize = <usize>from * elements
  const end: usize = <usize>to * elements
  if (width == 1) i = passWithin(x, v128.load32_splat(low), v128.load32_splat(high), i, end)
  else if (width == 2) i = passWithin(x, v128.load64_splat(low), v128.load64_splat(high), i, end)
  else if (width == 3) i = passTriples(x, low, high, i, end)
  else if (width == 4) i = passWithin(x, v128.load(low), v128.load(high), i, end)
  else i = passRows(x, low, high, elements, i, end)
  for (let k: usize = 0; i < end; i++) {
    const element = load<f32>(x + (i << 2))
    if (!(element >= load<f32>(low + (k << 2)) && element <= load<f32>(high + (k << 2)))) return <i32>i
    k = k + 1 == elements ? 0 : k + 1
  }
  return -1
}

/** All ones in the elements of x + at that are within the bounds; NaN is not. */
// @ts-ignore: decorator
@inline
function within(at: usize, low: v128, high: v128): v128 {
  const x = v128.load(at)
  return v128.and(f32x4.ge(x, low), f32x4.le(x, high))
}

/** Passes over elements sixteen at a time, of widths that divide four; returns where it stopped. */
// @ts-ignore: decorator
@inline
function passWithin(x: usize, low: v128, high: v128, i: usize, end: usize): usize {
  for (; i + 16 <= end; i += 16) {
    const at = x + (i << 2)
    const first = v128.and(within(at, low, high), within(at + 16, low, high))
    const last = v128.and(within(at + 32, low, high), within(at + 48, low, high))
    if (!i32x4.all_true(v128.and(first, last))) break
  }
  return i
}

/** As passWithin, four rows of three at a time. */
// @ts-ignore: decorator
@inline
function passTriples(x: usize, low: usize, high: usize, i: usize, end: usize): usize {
  const low0 = triple(low, 0)
  const low1 = triple(low, 4)
  const low2 = triple(low, 8)
  const high0 = triple(high, 0)
  const high1 = triple(high, 4)
  const high2 = triple(high, 8)
  for (; i + 12 <= end; i += 12) {
    const at = x + (i << 2)
    const first = v128.and(within(at, low0, high0), within(at + 16, low1, high1))
    if (!i32x4.all_true(v128.and(first, within(at + 32, low2, high2)))) break
  }
  return i
}

/** Bounds of three dimensions, beginning with the one of byte `first`, over four elements. */
// @ts-ignore: decorator
@inline
function triple(bounds: usize, first: usize): v128 {
  const b = v128.load32_splat(bounds + first)
  const c = v128.load32_splat(bounds + (first + 4) % 12)
  const d = v128.load32_splat(bounds + (first + 8) % 12)
  const pair = v128.shuffle<i32>(b, c, 0, 4, 0, 4)
  return v128.shuffle<i32>(pair, d, 0, 1, 4, 0)
}

/** Passes over whole rows of more than four elements; returns where it stopped. */
// @ts-ignore: decorator
@inline
function passRows(x: usize, low: usize, high: usize, width: usize, i: usize, end: usize): usize {
  const last = (width - 4) << 2 // The last four elements of a row, of which some may have been seen.
  for (; i < end; i += width) {
    const at = x + (i << 2)
    let all = within(at + last, v128.load(low + last), v128.load(high + last))
    for (let k: usize = 0; k < last; k += 16) {
      all = v128.and(all, within(at + k, v128.load(low + k), v128.load(high + k)))
    }
    if (!i32x4.all_true(all)) break
  }
  return i
}

export function findMiswritten(
  reward: usize,
  terminated: usize,
  truncated: usize,
  rewardMax: f32,
  from: i32,
  to: i32,
): i32 {
  const max = f32x4.splat(rewardMax)
  const others = i8x16.splat(<i8>0xfe)
  const end: usize = to
  let n: usize = from
  for (; n + 16 <= end; n += 16) {
    const at = reward + (n << 2)
    const first = v128.and(isAtMost(at, max), isAtMost(at + 16, max))
    const last = v128.and(isAtMost(at + 32, max), isAtMost(at + 48, max))
    if (!i32x4.all_true(v128.and(first, last))) break
    if (v128.any_true(v128.and(v128.or(v128.load(terminated + n), v128.load(truncated + n)), others))) break
  }
  for (; n < end; n++) {
    if (!(abs(load<f32>(reward + (n << 2))) <= rewardMax)) return <i32>n
    if ((load<u8>(terminated + n) | load<u8>(truncated + n)) > 1) return <i32>n
  }
  return -1
}

/** All ones in the elements whose absolute value is at most `max`; NaN's is not. */
// @ts-ignore: decorator
@inline
function isAtMost(at: usize, max: v128): v128 {
  return f32x4.le(f32x4.abs(v128.load(at)), max)
}

export function findOutside(x: usize, sizes: usize, width: i32, from: i32, to: i32): i32 {
  let n = from
  if (width == 1) {
    const size = v128.load32_splat(sizes)
    for (; n + 16 <= to; n += 16) {
      // Unsigned, so below 0 is above too: the largest of four says whether one of them is outside.
      const at = x + (<usize>n << 2)
      const first = i32x4.max_u(v128.load(at), v128.load(at, 16))
      const last = i32x4.max_u(v128.load(at, 32), v128.load(at, 48))
      if (v128.any_true(i32x4.ge_u(i32x4.max_u(first, last), size))) break
    }
  }
  for (; n < to; n++) {
    for (let k = 0; k < width; k++) {
      const i = n * width + k
      if (load<u32>(x + (<usize>i << 2)) >= load<u32>(sizes + (<usize>k << 2))) return i
    }
  }
  return -1
}

export function findIllegal(
  x: usize,
  mask: usize,
  phase: usize,
  ready: i32,
  sizes: usize,
  width: i32,
  from: i32,
  to: i32,
): i32 {
  const maskWidth = total(sizes, width)
  mask += <usize>from * maskWidth
  for (let n = from; n < to; n++, mask += maskWidth) {
    if (load<u8>(phase + n) != ready) continue
    let at = mask
    for (let k = 0; k < width; k++) {
      const i = n * width + k
      if (load<u8>(at + load<u32>(x + (<usize>i << 2))) == 0) return i
      at += load<u32>(sizes + (<usize>k << 2))
    }
  }
  return -1
}

export function findStuck(mask: usize, phase: usize, ready: i32, sizes: usize, width: i32, from: i32, to: i32): i32 {
  const maskWidth = total(sizes, width)
  mask += <usize>from * maskWidth
  for (let n = from; n < to; n++, mask += maskWidth) {
    if (load<u8>(phase + n) != ready) continue
    let at = mask
    for (let k = 0; k < width; k++) {
      let legal: u32 = 0
      for (const end = at + load<u32>(sizes + (<usize>k << 2)); at < end; at++) legal |= load<u8>(at)
      if (legal == 0) return n
    }
  }
  return -1
}

function total(sizes: usize, width: i32): usize {
  let sum: usize = 0
  for (let k = 0; k < width; k++) sum += load<u32>(sizes + (<usize>k << 2))
  return sum
}

export function clipRows(
  clipped: usize,
  x: usize,
  low: usize,
  high: usize,
  width: i32,
  from: i32,
  to: i32,
): void {
  let i = (<usize>from * <usize>width) << 2
  const end = (<usize>to * <usize>width) << 2
  if (width == 1) {
    const low4 = v128.load32_splat(low)
    const high4 = v128.load32_splat(high)
    for (; i + 16 <= end; i += 16) v128.store(clipped + i, f32x4.min(f32x4.max(v128.load(x + i), low4), high4))
  }
  const row = <usize>width << 2
  for (let k: usize = 0; i < end; i += 4) {
    store<f32>(clipped + i, min(max(load<f32>(x + i), load<f32>(low + k)), load<f32>(high + k)))
    k = k + 4 == row ? 0 : k + 4
  }
}
