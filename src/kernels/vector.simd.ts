/**
 * What the SIMD bodies share: four f32 lanes at a time. Every function takes the same operations for each lane, so an
 * element's result does not depend on its neighbors; the last, partial vector of a column is loaded padded and stored in
 * part, and goes through the same functions as the full ones.
 */

/** a · b + c: fused where the build has relaxed SIMD, else rounded twice. Never mixed within one build. */
// @ts-ignore: decorator
@inline
export function madd(a: v128, b: v128, c: v128): v128 {
  return ASC_FEATURE_RELAXED_SIMD ? v128.relaxed_madd<f32>(a, b, c) : f32x4.add(f32x4.mul(a, b), c)
}

/** Four elements from `at` on; of the last vector only `count` < 4, the others 0. */
// @ts-ignore: decorator
@inline
export function loadPart(at: usize, count: i32): v128 {
  let v = v128.load32_zero(at)
  if (count > 1) v = v128.load32_lane(at, v, 1, 4)
  if (count > 2) v = v128.load32_lane(at, v, 2, 8)
  return v
}

/** Stores the first `count` < 4 lanes. */
// @ts-ignore: decorator
@inline
export function storePart(at: usize, v: v128, count: i32): void {
  v128.store32_lane(at, v, 0)
  if (count > 1) v128.store32_lane(at, v, 1, 4)
  if (count > 2) v128.store32_lane(at, v, 2, 8)
}

/** Four elements from `at` on, or fewer where fewer are left. */
// @ts-ignore: decorator
@inline
export function load4(at: usize, left: i32): v128 {
  return left >= 4 ? v128.load(at) : loadPart(at, left)
}

// @ts-ignore: decorator
@inline
export function store4(at: usize, v: v128, left: i32): void {
  if (left >= 4) v128.store(at, v)
  else storePart(at, v, left)
}

/** Four elements, one a row: `row1` to `row3` are the distances of rows 1 to 3 from row 0. */
// @ts-ignore: decorator
@inline
export function gather4(at: usize, row1: usize, row2: usize, row3: usize): v128 {
  let v = v128.load32_zero(at)
  v = v128.load32_lane(at + row1, v, 1)
  v = v128.load32_lane(at + row2, v, 2)
  return v128.load32_lane(at + row3, v, 3)
}

/** Stores the first `left` lanes, one a row, `row` bytes apart. */
// @ts-ignore: decorator
@inline
export function scatter4(at: usize, row: usize, v: v128, left: i32): void {
  v128.store32_lane(at, v, 0)
  if (left > 1) v128.store32_lane(at + row, v, 1)
  if (left > 2) v128.store32_lane(at + 2 * row, v, 2)
  if (left > 3) v128.store32_lane(at + 3 * row, v, 3)
}

/** Lanes 0 and 1 in f64. */
// @ts-ignore: decorator
@inline
export function lowPair(v: v128): v128 {
  return f64x2.promote_low_f32x4(v)
}

/** Lanes 2 and 3 in f64. */
// @ts-ignore: decorator
@inline
export function highPair(v: v128): v128 {
  return f64x2.promote_low_f32x4(v128.shuffle<i64>(v, v, 1, 1))
}

/** sum + v0 + v2 in its first lane, sum + v1 + v3 in its second, in f64. */
// @ts-ignore: decorator
@inline
export function addPairs(sum: v128, v: v128): v128 {
  return f64x2.add(f64x2.add(sum, lowPair(v)), highPair(v))
}

// @ts-ignore: decorator
@inline
export function sum2(v: v128): f64 {
  return f64x2.extract_lane(v, 0) + f64x2.extract_lane(v, 1)
}

/** A mask of the first `left` lanes. */
// @ts-ignore: decorator
@inline
export function firstLanes(left: i32): v128 {
  return i32x4.lt_s(i32x4(0, 1, 2, 3), i32x4.splat(left))
}

/** Four bytes from `at` on, or fewer where fewer are left. */
// @ts-ignore: decorator
@inline
export function loadBytes(at: usize, left: i32): v128 {
  if (left >= 4) return v128.load32_zero(at)
  let bytes = v128.load8_lane(at, i32x4.splat(0), 0)
  if (left > 1) bytes = v128.load8_lane(at, bytes, 1, 1)
  if (left > 2) bytes = v128.load8_lane(at, bytes, 2, 2)
  return bytes
}

/** A mask of the lanes whose byte, of the first four, is not 0. */
// @ts-ignore: decorator
@inline
export function flags4(bytes: v128): v128 {
  return i32x4.ne(i32x4.extend_low_i16x8_u(i16x8.extend_low_i8x16_u(bytes)), i32x4.splat(0))
}

/** A byte for each lane of a mask, in the first four: 1 where it is set, else 0. */
// @ts-ignore: decorator
@inline
export function bytes4(mask: v128): v128 {
  const halves = i16x8.narrow_i32x4_s(mask, mask)
  return i8x16.abs(i8x16.narrow_i16x8_s(halves, halves))
}

/** Stores the first `left` bytes, four at most. */
// @ts-ignore: decorator
@inline
export function storeBytes(at: usize, bytes: v128, left: i32): void {
  if (left >= 4) v128.store32_lane(at, bytes, 0)
  else {
    v128.store8_lane(at, bytes, 0)
    if (left > 1) v128.store8_lane(at, bytes, 1, 1)
    if (left > 2) v128.store8_lane(at, bytes, 2, 2)
  }
}

/** (v0 + v2) + (v1 + v3). */
// @ts-ignore: decorator
@inline
export function sum4(v: v128): f32 {
  const pairs = f32x4.add(v, v128.shuffle<i32>(v, v, 2, 3, 0, 1))
  return f32x4.extract_lane(pairs, 0) + f32x4.extract_lane(pairs, 1)
}

/** At most `high`, at least `low`; NaN stays NaN. */
// @ts-ignore: decorator
@inline
export function clamp4(v: v128, low: v128, high: v128): v128 {
  return f32x4.pmin(f32x4.pmax(v, low), high)
}

/**
 * tanh in place over `length` elements, as x · P(x²) / Q(x²), P of degree 3 and Q of degree 4, on |x| ≤ 7.9, where tanh is
 * 1 but for 3e-7 (minimax of the relative error, 1.3e-7, found with linear programs). With rounding the error is at most
 * seven units in the last place; NaN stays NaN.
 *
 * `one` is 1, which the compiler must not know: V8 would build every constant anew at each use.
 */
export function tanhInPlace(at: usize, length: i32, one: f32): void {
  const high = f32x4.splat(one * 7.9)
  const signs = f32x4.splat(one * -0.0)
  const p3 = f32x4.splat(one * 46.26529307466246)
  const p2 = f32x4.splat(one * 11877.315846099367)
  const p1 = f32x4.splat(one * 518924.58856003074)
  const p0 = f32x4.splat(one * 4011967.2638858575)
  const q3 = f32x4.splat(one * 962.919594741476)
  const q2 = f32x4.splat(one * 95701.77987539067)
  const q1 = f32x4.splat(one * 1856242.906143549)
  const q0 = f32x4.splat(one * 4011967.788810167)
  for (; length >= 8; length -= 8, at += 32) {
    const y0 = tanh4(v128.load(at), high, signs, p3, p2, p1, p0, q3, q2, q1, q0)
    const y1 = tanh4(v128.load(at, 16), high, signs, p3, p2, p1, p0, q3, q2, q1, q0)
    v128.store(at, y0)
    v128.store(at, y1, 16)
  }
  for (; length > 0; length -= 4, at += 16) {
    store4(at, tanh4(load4(at, length), high, signs, p3, p2, p1, p0, q3, q2, q1, q0), length)
  }
}

// @ts-ignore: decorator
@inline
function tanh4(
  v: v128,
  high: v128,
  signs: v128,
  p3: v128,
  p2: v128,
  p1: v128,
  p0: v128,
  q3: v128,
  q2: v128,
  q1: v128,
  q0: v128,
): v128 {
  const sign = v128.and(v, signs)
  const x = f32x4.pmin(v128.xor(v, sign), high)
  const s = f32x4.mul(x, x)
  const p = madd(s, madd(s, madd(s, p3, p2), p1), p0)
  const q = madd(s, madd(s, madd(s, f32x4.add(s, q3), q2), q1), q0)
  return v128.or(f32x4.div(f32x4.mul(x, p), q), sign)
}

/** eˣ: x = n log 2 + r with |r| ≤ ½ log 2, a polynomial of degree 7 in r (Cephes `expf`), times 2ⁿ. 0 below −87.3; never infinite. */
// @ts-ignore: decorator
@inline
export function exp4(v: v128): v128 {
  const low = f32x4.splat(-87.3)
  const x = clamp4(v, low, f32x4.splat(88))
  const n = f32x4.nearest(f32x4.mul(x, f32x4.splat(1.44269504088896341)))
  const r = madd(n, f32x4.splat(2.12194440e-4), madd(n, f32x4.splat(-0.693359375), x))
  let p = f32x4.splat(1.9875691500e-4)
  p = madd(p, r, f32x4.splat(1.3981999507e-3))
  p = madd(p, r, f32x4.splat(8.3334519073e-3))
  p = madd(p, r, f32x4.splat(4.1665795894e-2))
  p = madd(p, r, f32x4.splat(1.6666665459e-1))
  p = madd(p, r, f32x4.splat(5.0000001201e-1))
  p = f32x4.add(madd(p, f32x4.mul(r, r), r), f32x4.splat(1))
  const power = i32x4.shl(i32x4.add(i32x4.trunc_sat_f32x4_s(n), i32x4.splat(127)), 23)
  return v128.andnot(f32x4.mul(p, power), f32x4.lt(v, low))
}

/** eˣ − 1 − x, given e = eˣ: for small |x| by the same polynomial, where the differences would leave nothing but rounding. */
// @ts-ignore: decorator
@inline
export function expRest4(x: v128, e: v128): v128 {
  let p = f32x4.splat(1.9875691500e-4)
  p = madd(p, x, f32x4.splat(1.3981999507e-3))
  p = madd(p, x, f32x4.splat(8.3334519073e-3))
  p = madd(p, x, f32x4.splat(4.1665795894e-2))
  p = madd(p, x, f32x4.splat(1.6666665459e-1))
  p = madd(p, x, f32x4.splat(5.0000001201e-1))
  const small = f32x4.lt(f32x4.abs(x), f32x4.splat(0.34))
  return v128.bitselect(f32x4.mul(p, f32x4.mul(x, x)), f32x4.sub(f32x4.sub(e, f32x4.splat(1)), x), small)
}

/** log x of normal x > 0 (NaN stays NaN): x = 2ᵉ m with √½ ≤ m < √2, a polynomial of degree 9 in m − 1 (Cephes `logf`). */
// @ts-ignore: decorator
@inline
export function log4(v: v128): v128 {
  const one = f32x4.splat(1)
  const half = v128.or(v128.and(v, i32x4.splat(0x007fffff)), i32x4.splat(0x3f000000)) // In [½, 1).
  const small = f32x4.lt(half, f32x4.splat(0.707106781186547524))
  const exponent = i32x4.add(i32x4.sub(i32x4.shr_u(v, 23), i32x4.splat(126)), small) // The mask is −1 where it is true.
  const e = f32x4.convert_i32x4_s(exponent)
  const x = f32x4.add(f32x4.sub(half, one), v128.and(half, small))
  const z = f32x4.mul(x, x)
  let p = f32x4.splat(7.0376836292e-2)
  p = madd(p, x, f32x4.splat(-1.1514610310e-1))
  p = madd(p, x, f32x4.splat(1.1676998740e-1))
  p = madd(p, x, f32x4.splat(-1.2420140846e-1))
  p = madd(p, x, f32x4.splat(1.4249322787e-1))
  p = madd(p, x, f32x4.splat(-1.6668057665e-1))
  p = madd(p, x, f32x4.splat(2.0000714765e-1))
  p = madd(p, x, f32x4.splat(-2.4999993993e-1))
  p = madd(p, x, f32x4.splat(3.3333331174e-1))
  p = f32x4.mul(f32x4.mul(p, x), z)
  p = madd(e, f32x4.splat(-2.12194440e-4), p)
  p = madd(z, f32x4.splat(-0.5), p)
  return v128.bitselect(madd(e, f32x4.splat(0.693359375), f32x4.add(x, p)), v, f32x4.eq(v, v))
}

/**
 * Sine and cosine by quarter turns: x = q · ½π + r with |r| ≤ ¼π, the multiple of ½π taken away in three parts (Cody and
 * Waite), polynomials in r (Cephes `sinf`, `cosf`), and q says which of them, with which sign. Good to |x| of some
 * thousands; beyond, what is left of r is rounding.
 */
// @ts-ignore: decorator
@inline
export function quarterTurns(x: v128): v128 {
  return f32x4.nearest(f32x4.mul(x, f32x4.splat(0.636619772367581343)))
}

/** x − q · ½π. */
// @ts-ignore: decorator
@inline
export function withinQuarter(x: v128, q: v128): v128 {
  const r = madd(q, f32x4.splat(-4.837512969970703125e-4), madd(q, f32x4.splat(-1.5703125), x))
  return madd(q, f32x4.splat(-7.54978995489188216e-8), r)
}

/** Of sine and cosine for |r| ≤ ¼π (Cephes `sinf`, `cosf`): what the powers of r from the third on are multiplied by. */
export const SIN_3: f32 = -1.6666654611e-1
export const SIN_5: f32 = 8.3321608736e-3
export const SIN_7: f32 = -1.9515295891e-4
export const COS_4: f32 = 4.166664568298827e-2
export const COS_6: f32 = -1.388731625493765e-3
export const COS_8: f32 = 2.443315711809948e-5

/** sin r for |r| ≤ ¼π. */
// @ts-ignore: decorator
@inline
export function sinQuarter(r: v128): v128 {
  return sinSeries(r, f32x4.mul(r, r), f32x4.splat(SIN_7), f32x4.splat(SIN_5), f32x4.splat(SIN_3))
}

/** cos r for |r| ≤ ¼π. */
// @ts-ignore: decorator
@inline
export function cosQuarter(r: v128): v128 {
  const cos2 = f32x4.splat(-0.5)
  return cosSeries(f32x4.mul(r, r), f32x4.splat(COS_8), f32x4.splat(COS_6), f32x4.splat(COS_4), cos2, f32x4.splat(1))
}

/** sin r, given z = r² and the coefficients, which a loop may keep. */
// @ts-ignore: decorator
@inline
export function sinSeries(r: v128, z: v128, sin7: v128, sin5: v128, sin3: v128): v128 {
  return madd(f32x4.mul(madd(madd(sin7, z, sin5), z, sin3), z), r, r)
}

/** cos r, given z = r² and the coefficients, which a loop may keep. */
// @ts-ignore: decorator
@inline
export function cosSeries(z: v128, cos8: v128, cos6: v128, cos4: v128, cos2: v128, one: v128): v128 {
  return madd(f32x4.mul(madd(madd(cos8, z, cos6), z, cos4), z), z, madd(z, cos2, one))
}

/** sin(r + (q + shift) · ½π) from sin r and cos r: shift 0 for the sine of x, 1 for its cosine. */
// @ts-ignore: decorator
@inline
export function turn(sin: v128, cos: v128, q: v128, shift: i32): v128 {
  const turns = i32x4.add(i32x4.trunc_sat_f32x4_s(q), i32x4.splat(shift))
  const odd = i32x4.shr_s(i32x4.shl(turns, 31), 31)
  const sign = i32x4.shl(i32x4.shr_u(turns, 1), 31)
  return v128.xor(v128.bitselect(cos, sin, odd), sign)
}

/** Adds to the f64 at an address. */
// @ts-ignore: decorator
@inline
export function addTo(at: usize, sum: f64): void {
  store<f64>(at, load<f64>(at) + sum)
}
