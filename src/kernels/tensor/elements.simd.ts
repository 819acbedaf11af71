/** Functions of elements and pairs, four f32 lanes at a time; the plain twin `elements.ts` says what is computed. */
import { bytes4, clamp4, flags4, load4, loadBytes, log4, madd, store4, storeBytes, tanhInPlace } from '../vector.simd'

export function mapElements(y: usize, x: usize, map: i32, length: i32): void {
  if (map == 0) {
    memory.copy(y, x, <usize>length << 2)
    tanhInPlace(y, length, <f32>(map + 1))
  } else if (map == 1) {
    for (; length > 0; length -= 4, x += 16, y += 16) store4(y, expAll4(load4(x, length)), length)
  } else if (map == 2) {
    for (; length > 0; length -= 4, x += 16, y += 16) store4(y, logAll4(load4(x, length)), length)
  } else if (map == 3) {
    for (; length > 0; length -= 4, x += 16, y += 16) store4(y, softplus4(load4(x, length)), length)
  } else {
    for (; length > 0; length -= 4, x += 16, y += 16) store4(y, erf4(load4(x, length)), length)
  }
}

/**
 * eˣ over all of f32: x = n log 2 + r, a polynomial of degree 7 in r (Cephes `expf`), times 2ⁿ in two steps, so that what
 * is too large becomes infinite and what is small loses digits before it becomes 0. NaN stays NaN.
 */
// @ts-ignore: decorator
@inline
function expAll4(v: v128): v128 {
  const x = clamp4(v, f32x4.splat(-104), f32x4.splat(89))
  const n = f32x4.nearest(f32x4.mul(x, f32x4.splat(1.44269504088896341)))
  const r = madd(n, f32x4.splat(2.12194440e-4), madd(n, f32x4.splat(-0.693359375), x))
  let p = f32x4.splat(1.9875691500e-4)
  p = madd(p, r, f32x4.splat(1.3981999507e-3))
  p = madd(p, r, f32x4.splat(8.3334519073e-3))
  p = madd(p, r, f32x4.splat(4.1665795894e-2))
  p = madd(p, r, f32x4.splat(1.6666665459e-1))
  p = madd(p, r, f32x4.splat(5.0000001201e-1))
  p = f32x4.add(madd(p, f32x4.mul(r, r), r), f32x4.splat(1))
  const whole = i32x4.trunc_sat_f32x4_s(n)
  const half = i32x4.shr_s(whole, 1)
  const power0 = i32x4.shl(i32x4.add(half, i32x4.splat(127)), 23)
  const power1 = i32x4.shl(i32x4.add(i32x4.sub(whole, half), i32x4.splat(127)), 23)
  return f32x4.mul(f32x4.mul(p, power0), power1)
}

/** log x over all of f32: −∞ at 0, NaN below; what is too small for a normal number is scaled by 2²⁴ first. */
// @ts-ignore: decorator
@inline
function logAll4(x: v128): v128 {
  const tiny = f32x4.lt(x, f32x4.splat(1.17549435e-38))
  const scaled = v128.bitselect(f32x4.mul(x, f32x4.splat(16777216)), x, tiny)
  const log = f32x4.sub(log4(scaled), v128.and(tiny, f32x4.splat(16.635532333438686)))
  const infinity = f32x4.splat(Infinity)
  const high = v128.bitselect(x, log, f32x4.eq(x, infinity))
  const zero = f32x4.splat(0)
  const low = v128.bitselect(f32x4.neg(infinity), f32x4.splat(NaN), f32x4.eq(x, zero))
  return v128.bitselect(low, high, f32x4.le(x, zero))
}

/** max(x, 0) + log(1 + e) with e = exp(−|x|); the logarithm of the rounded 1 + e is made good by e / ((1 + e) − 1) (Kahan). */
// @ts-ignore: decorator
@inline
function softplus4(x: v128): v128 {
  const one = f32x4.splat(1)
  const e = expAll4(f32x4.neg(f32x4.abs(x)))
  const u = f32x4.add(one, e)
  const rest = f32x4.sub(u, one)
  const log = f32x4.mul(log4(u), f32x4.div(e, rest))
  return f32x4.add(f32x4.max(x, f32x4.splat(0)), v128.bitselect(e, log, f32x4.eq(rest, f32x4.splat(0))))
}

/** erf as a ratio of two polynomials, odd of degree 13 over even of degree 8, on |x| ≤ 4 (the coefficients of Eigen's `erf`). */
// @ts-ignore: decorator
@inline
function erf4(v: v128): v128 {
  const x = clamp4(v, f32x4.splat(-4), f32x4.splat(4))
  const s = f32x4.mul(x, x)
  let p = f32x4.splat(-2.72614225801306e-10)
  p = madd(p, s, f32x4.splat(2.77068142495902e-8))
  p = madd(p, s, f32x4.splat(-2.10102402082508e-6))
  p = madd(p, s, f32x4.splat(-5.69250639462346e-5))
  p = madd(p, s, f32x4.splat(-7.34990630326855e-4))
  p = madd(p, s, f32x4.splat(-2.954599808540250e-3))
  p = madd(p, s, f32x4.splat(-1.60960333262415e-2))
  let q = f32x4.splat(-1.45660718464996e-5)
  q = madd(q, s, f32x4.splat(-2.13374055278905e-4))
  q = madd(q, s, f32x4.splat(-1.68282697438203e-3))
  q = madd(q, s, f32x4.splat(-7.37332916720468e-3))
  q = madd(q, s, f32x4.splat(-1.42647390514189e-2))
  return f32x4.div(f32x4.mul(x, p), q)
}

export function combineRows(
  out: usize,
  a: usize,
  b: usize,
  combination: i32,
  numRows: i32,
  width: i32,
  aRow: i32,
  aStep: i32,
  bRow: i32,
  bStep: i32,
): void {
  for (; numRows > 0; numRows--, a += <usize>aRow << 2, b += <usize>bRow << 2, out += <usize>width << 2) {
    let a4 = v128.load32_splat(a)
    let b4 = v128.load32_splat(b)
    for (let left = width, at: usize = 0; left > 0; left -= 4, at += 16) {
      if (aStep != 0) a4 = load4(a + at, left)
      if (bStep != 0) b4 = load4(b + at, left)
      store4(out + at, combination == 0 ? f32x4.max(a4, b4) : f32x4.min(a4, b4), left)
    }
  }
}

export function compareRows(
  out: usize,
  a: usize,
  b: usize,
  comparison: i32,
  numRows: i32,
  width: i32,
  aRow: i32,
  aStep: i32,
  bRow: i32,
  bStep: i32,
): void {
  for (; numRows > 0; numRows--, a += <usize>aRow << 2, b += <usize>bRow << 2, out += width) {
    let a4 = v128.load32_splat(a)
    let b4 = v128.load32_splat(b)
    let to = out
    for (let left = width, at: usize = 0; left > 0; left -= 4, at += 16, to += 4) {
      if (aStep != 0) a4 = load4(a + at, left)
      if (bStep != 0) b4 = load4(b + at, left)
      storeBytes(to, bytes4(compare4(a4, b4, comparison)), left)
    }
  }
}

// @ts-ignore: decorator
@inline
function compare4(a: v128, b: v128, comparison: i32): v128 {
  if (comparison == 0) return f32x4.eq(a, b)
  if (comparison == 1) return f32x4.ne(a, b)
  if (comparison == 2) return f32x4.gt(a, b)
  if (comparison == 3) return f32x4.ge(a, b)
  if (comparison == 4) return f32x4.lt(a, b)
  return f32x4.le(a, b)
}

export function selectElements(out: usize, flag: usize, a: usize, b: usize, length: i32): void {
  for (; length > 0; length -= 4, out += 16, a += 16, b += 16, flag += 4) {
    store4(out, v128.bitselect(load4(a, length), load4(b, length), flags4(loadBytes(flag, length))), length)
  }
}

export function flagsToFloats(out: usize, flag: usize, length: i32): void {
  const one = f32x4.splat(1)
  for (; length > 0; length -= 4, out += 16, flag += 4) {
    store4(out, v128.and(flags4(loadBytes(flag, length)), one), length)
  }
}
