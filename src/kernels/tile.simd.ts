/**
 * The register block of all matrix products: `rows` rows (6, 4 or 1) by 4 · `vectors` columns of C = from + A · B, one loop
 * over the depth whose sums stay in registers. Element (row, k) of A is at a + row · aRow + k · aStep, element (k, j) of B at
 * b + k · bStep + 4 j. Row r of `from` is at from + r · fromRow.
 *
 * The language has no arrays in registers, so what a block has at most is spelled out: two vectors of six rows, or eight of
 * one. `rows`, `vectors`, `beside` and `masks` are constants where it is called, and what they rule out is not compiled. It is
 * called by functions that do nothing else, because several call those. What measured slower under V8, which then spills: the
 * loop unrolled by hand, the block inlined into its caller, a branch after the loop.
 *
 * `beside`: the rows of A stand side by side (aRow is 4), and one address serves all. `masks`: of `from` only the bits of
 * `kept` count.
 */
import { madd } from './vector.simd'

/** Numbers as types, by the size of an instance: a function over one is compiled for each of them by itself. */
// @ts-ignore: decorator
@unmanaged
export class One {
  a: u8
}
// @ts-ignore: decorator
@unmanaged
export class Two extends One {
  b: u8
}
// @ts-ignore: decorator
@unmanaged
export class Three extends Two {
  c: u8
}
// @ts-ignore: decorator
@unmanaged
export class Four extends Three {
  d: u8
}
// @ts-ignore: decorator
@unmanaged
export class Six extends Four {
  e: u8
  f: u8
}
// @ts-ignore: decorator
@unmanaged
export class Eight extends Six {
  g: u8
  h: u8
}

// @ts-ignore: decorator
@inline
function first(masks: bool, kept: v128, from: v128): v128 {
  return masks ? v128.and(from, kept) : from
}

// @ts-ignore: decorator
@inline
export function tile(
  rows: i32,
  vectors: i32,
  beside: bool,
  masks: bool,
  c: usize,
  cRow: usize,
  from: usize,
  fromRow: usize,
  kept: v128,
  a: usize,
  aRow: usize,
  aStep: usize,
  b: usize,
  bStep: usize,
  depth: i32,
): void {
  let a0 = a
  let a1 = a + aRow
  let a2 = a + 2 * aRow
  let a3 = a + 3 * aRow
  let a4 = a + 4 * aRow
  let a5 = a + 5 * aRow
  let c00 = first(masks, kept, v128.load(from))
  let c01 = c00
  let c02 = c00
  let c03 = c00
  let c04 = c00
  let c05 = c00
  let c06 = c00
  let c07 = c00
  let c10 = c00
  let c11 = c00
  let c20 = c00
  let c21 = c00
  let c30 = c00
  let c31 = c00
  let c40 = c00
  let c41 = c00
  let c50 = c00
  let c51 = c00
  if (vectors > 1) c01 = first(masks, kept, v128.load(from, 16))
  if (vectors > 2) {
    c02 = first(masks, kept, v128.load(from, 32))
    c03 = first(masks, kept, v128.load(from, 48))
    c04 = first(masks, kept, v128.load(from, 64))
    c05 = first(masks, kept, v128.load(from, 80))
    c06 = first(masks, kept, v128.load(from, 96))
    c07 = first(masks, kept, v128.load(from, 112))
  }
  if (rows > 1) {
    c10 = first(masks, kept, v128.load(from + fromRow))
    if (vectors > 1) c11 = first(masks, kept, v128.load(from + fromRow, 16))
    c20 = first(masks, kept, v128.load(from + 2 * fromRow))
    if (vectors > 1) c21 = first(masks, kept, v128.load(from + 2 * fromRow, 16))
    c30 = first(masks, kept, v128.load(from + 3 * fromRow))
    if (vectors > 1) c31 = first(masks, kept, v128.load(from + 3 * fromRow, 16))
  }
  if (rows > 4) {
    c40 = first(masks, kept, v128.load(from + 4 * fromRow))
    if (vectors > 1) c41 = first(masks, kept, v128.load(from + 4 * fromRow, 16))
    c50 = first(masks, kept, v128.load(from + 5 * fromRow))
    if (vectors > 1) c51 = first(masks, kept, v128.load(from + 5 * fromRow, 16))
  }
  for (; depth > 0; depth--) {
    const b0 = v128.load(b)
    const b1 = vectors > 1 ? v128.load(b, 16) : b0
    const e0 = v128.load32_splat(a0)
    c00 = madd(e0, b0, c00)
    if (vectors > 1) c01 = madd(e0, b1, c01)
    if (vectors > 2) {
      c02 = madd(e0, v128.load(b, 32), c02)
      c03 = madd(e0, v128.load(b, 48), c03)
      c04 = madd(e0, v128.load(b, 64), c04)
      c05 = madd(e0, v128.load(b, 80), c05)
      c06 = madd(e0, v128.load(b, 96), c06)
      c07 = madd(e0, v128.load(b, 112), c07)
    }
    if (rows > 1) {
      const e1 = beside ? v128.load32_splat(a0, 4) : v128.load32_splat(a1)
      c10 = madd(e1, b0, c10)
      if (vectors > 1) c11 = madd(e1, b1, c11)
      const e2 = beside ? v128.load32_splat(a0, 8) : v128.load32_splat(a2)
      c20 = madd(e2, b0, c20)
      if (vectors > 1) c21 = madd(e2, b1, c21)
      const e3 = beside ? v128.load32_splat(a0, 12) : v128.load32_splat(a3)
      c30 = madd(e3, b0, c30)
      if (vectors > 1) c31 = madd(e3, b1, c31)
    }
    if (rows > 4) {
      const e4 = beside ? v128.load32_splat(a0, 16) : v128.load32_splat(a4)
      c40 = madd(e4, b0, c40)
      if (vectors > 1) c41 = madd(e4, b1, c41)
      const e5 = beside ? v128.load32_splat(a0, 20) : v128.load32_splat(a5)
      c50 = madd(e5, b0, c50)
      if (vectors > 1) c51 = madd(e5, b1, c51)
    }
    a0 += aStep
    if (rows > 1 && !beside) {
      a1 += aStep
      a2 += aStep
      a3 += aStep
    }
    if (rows > 4 && !beside) {
      a4 += aStep
      a5 += aStep
    }
    b += bStep
  }
  v128.store(c, c00)
  if (vectors > 1) v128.store(c, c01, 16)
  if (vectors > 2) {
    v128.store(c, c02, 32)
    v128.store(c, c03, 48)
    v128.store(c, c04, 64)
    v128.store(c, c05, 80)
    v128.store(c, c06, 96)
    v128.store(c, c07, 112)
  }
  if (rows > 1) {
    v128.store(c + cRow, c10)
    if (vectors > 1) v128.store(c + cRow, c11, 16)
    v128.store(c + 2 * cRow, c20)
    if (vectors > 1) v128.store(c + 2 * cRow, c21, 16)
    v128.store(c + 3 * cRow, c30)
    if (vectors > 1) v128.store(c + 3 * cRow, c31, 16)
  }
  if (rows > 4) {
    v128.store(c + 4 * cRow, c40)
    if (vectors > 1) v128.store(c + 4 * cRow, c41, 16)
    v128.store(c + 5 * cRow, c50)
    if (vectors > 1) v128.store(c + 5 * cRow, c51, 16)
  }
}
