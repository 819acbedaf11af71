/**
 * Causal attention; the plain twin `attention.ts` says what is computed. Scores are made four keys at a time, each with four
 * partial sums over the head's width that are added in the order of `sum4`: the same operations as one key at a time, which
 * the last one to three take. The row's exponentials are summed in four partial sums too, with zeros where keys end.
 */
import { exp4, load4, loadPart, log4, madd, store4, sum4 } from '../vector.simd'

/** Below every score, and no infinity. */
const LOWEST: f32 = -1e30

export function attentionForward(
  out: usize,
  logSum: usize,
  q: usize,
  k: usize,
  v: usize,
  scores: usize,
  first: usize,
  position: usize,
  numRows: i32,
  numHeads: i32,
  numKeyHeads: i32,
  headWidth: i32,
): void {
  const headBytes = <usize>headWidth << 2
  const keyRow = <usize>numKeyHeads * headBytes
  const scale = <f32>1 / sqrt<f32>(<f32>headWidth)
  for (; numRows > 0; numRows--, first += 4, position += 4) {
    const count = load<i32>(position) + 1
    const row = <usize>load<i32>(first) * keyRow
    for (let head = 0; head < numHeads; head++, q += headBytes, out += headBytes, logSum += 4) {
      const keys = row + <usize>((head * numKeyHeads) / numHeads) * headBytes
      dots(scores, q, k + keys, keyRow, count, headWidth, scale)
      let highest = f32x4.splat(LOWEST)
      for (let left = count, at = scores; left > 0; left -= 4, at += 16) highest = f32x4.max(highest, v128.load(at))
      const max = max4(highest)
      let sums = f32x4.splat(0)
      for (let left = count, at = scores; left > 0; left -= 4, at += 16) {
        const e = exp4(f32x4.sub(v128.load(at), max))
        sums = f32x4.add(sums, e)
        v128.store(at, e)
      }
      const sum = f32x4.splat(sum4(sums))
      store<f32>(logSum, f32x4.extract_lane(f32x4.add(max, log4(sum)), 0))
      weightedSum(out, scores, v + keys, keyRow, count, headWidth, f32x4.div(f32x4.splat(1), sum))
    }
  }
}

export function attentionBackward(
  dq: usize,
  dk: usize,
  dv: usize,
  dOut: usize,
  attended: usize,
  query: usize,
  key: usize,
  value: usize,
  logSum: usize,
  scores: usize,
  first: usize,
  position: usize,
  numRows: i32,
  numHeads: i32,
  numKeyHeads: i32,
  headWidth: i32,
): void {
  const headBytes = <usize>headWidth << 2
  const keyRow = <usize>numKeyHeads * headBytes
  const scale = <f32>1 / sqrt<f32>(<f32>headWidth)
  const scales = f32x4.splat(scale)
  for (; numRows > 0; numRows--, first += 4, position += 4) {
    const count = load<i32>(position) + 1
    const row = <usize>load<i32>(first) * keyRow
    const dScores = scores + (<usize>((count + 3) & ~3) << 2)
    for (let head = 0; head < numHeads; head++) {
      const keys = row + <usize>((head * numKeyHeads) / numHeads) * headBytes
      dots(scores, query, key + keys, keyRow, count, headWidth, scale)
      dots(dScores, dOut, value + keys, keyRow, count, headWidth, 1)
      let products = f32x4.splat(0)
      for (let left = headWidth, at: usize = 0; left > 0; left -= 4, at += 16) {
        products = madd(load4(dOut + at, left), load4(attended + at, left), products)
      }
      const shared = f32x4.splat(sum4(products))
      const whole = v128.load32_splat(logSum)
      for (let left = count, at: usize = 0; left > 0; left -= 4, at += 16) {
        const p = exp4(f32x4.sub(v128.load(scores + at), whole))
        v128.store(scores + at, p)
        const gradient = f32x4.mul(p, f32x4.sub(v128.load(dScores + at), shared))
        v128.store(dScores + at, f32x4.mul(gradient, scales))
      }
      weightedSum(dq, dScores, key + keys, keyRow, count, headWidth, f32x4.splat(1))
      addOuter(dk + keys, keyRow, dScores, query, count, headWidth)
      addOuter(dv + keys, keyRow, scores, dOut, count, headWidth)
      dq += headBytes
      dOut += headBytes
      attended += headBytes
      query += headBytes
      logSum += 4
    }
  }
}

/** scores[j] = scale · (q · keys[j]); up to the next multiple of four they are LOWEST. */
function dots(scores: usize, q: usize, keys: usize, keyRow: usize, count: i32, headWidth: i32, scale: f32): void {
  const scales = f32x4.splat(scale)
  for (; count >= 4; count -= 4, scores += 16, keys += keyRow << 2) {
    let k0 = keys
    let k1 = keys + keyRow
    let k2 = k1 + keyRow
    let k3 = k2 + keyRow
    let s0 = f32x4.splat(0)
    let s1 = s0
    let s2 = s0
    let s3 = s0
    let at = q
    let left = headWidth
    for (; left >= 4; left -= 4) {
      const e = v128.load(at)
      s0 = madd(e, v128.load(k0), s0)
      s1 = madd(e, v128.load(k1), s1)
      s2 = madd(e, v128.load(k2), s2)
      s3 = madd(e, v128.load(k3), s3)
      at += 16
      k0 += 16
      k1 += 16
      k2 += 16
      k3 += 16
    }
    if (left > 0) {
      const e = loadPart(at, left)
      s0 = madd(e, loadPart(k0, left), s0)
      s1 = madd(e, loadPart(k1, left), s1)
      s2 = madd(e, loadPart(k2, left), s2)
      s3 = madd(e, loadPart(k3, left), s3)
    }
    const low01 = v128.shuffle<i32>(s0, s1, 0, 4, 1, 5)
    const low23 = v128.shuffle<i32>(s2, s3, 0, 4, 1, 5)
    const high01 = v128.shuffle<i32>(s0, s1, 2, 6, 3, 7)
    const high23 = v128.shuffle<i32>(s2, s3, 2, 6, 3, 7)
    const even = f32x4.add(v128.shuffle<i64>(low01, low23, 0, 2), v128.shuffle<i64>(high01, high23, 0, 2))
    const odd = f32x4.add(v128.shuffle<i64>(low01, low23, 1, 3), v128.shuffle<i64>(high01, high23, 1, 3))
    v128.store(scores, f32x4.mul(f32x4.add(even, odd), scales))
  }
  if (count > 0) {
    v128.store(scores, f32x4.splat(LOWEST))
    for (; count > 0; count--, scores += 4, keys += keyRow) {
      let sum = f32x4.splat(0)
      for (let left = headWidth, at: usize = 0; left > 0; left -= 4, at += 16) {
        sum = madd(load4(q + at, left), load4(keys + at, left), sum)
      }
      store<f32>(scores, sum4(sum) * scale)
    }
  }
}

/** out = scale · Σ weights[j] · rows[j], in rising order of j. */
function weightedSum(
  out: usize,
  weights: usize,
  rows: usize,
  rowBytes: usize,
  count: i32,
  headWidth: i32,
  scale: v128,
): void {
  let left = headWidth
  for (; left >= 16; left -= 16, out += 64, rows += 64) {
    let s0 = f32x4.splat(0)
    let s1 = s0
    let s2 = s0
    let s3 = s0
    for (let j = 0, w = weights, at = rows; j < count; j++, w += 4, at += rowBytes) {
      const e = v128.load32_splat(w)
      s0 = madd(e, v128.load(at), s0)
      s1 = madd(e, v128.load(at, 16), s1)
      s2 = madd(e, v128.load(at, 32), s2)
      s3 = madd(e, v128.load(at, 48), s3)
    }
    v128.store(out, f32x4.mul(s0, scale))
    v128.store(out, f32x4.mul(s1, scale), 16)
    v128.store(out, f32x4.mul(s2, scale), 32)
    v128.store(out, f32x4.mul(s3, scale), 48)
  }
  for (; left > 0; left -= 4, out += 16, rows += 16) {
    let sum = f32x4.splat(0)
    for (let j = 0, w = weights, at = rows; j < count; j++, w += 4, at += rowBytes) {
      sum = madd(v128.load32_splat(w), load4(at, left), sum)
    }
    store4(out, f32x4.mul(sum, scale), left)
  }
}

/** rows[j] += weights[j] · x. */
function addOuter(rows: usize, rowBytes: usize, weights: usize, x: usize, count: i32, headWidth: i32): void {
  let left = headWidth
  for (; left >= 16; left -= 16, rows += 64, x += 64) {
    const x0 = v128.load(x)
    const x1 = v128.load(x, 16)
    const x2 = v128.load(x, 32)
    const x3 = v128.load(x, 48)
    for (let j = 0, w = weights, at = rows; j < count; j++, w += 4, at += rowBytes) {
      const e = v128.load32_splat(w)
      v128.store(at, madd(e, x0, v128.load(at)))
      v128.store(at, madd(e, x1, v128.load(at, 16)), 16)
      v128.store(at, madd(e, x2, v128.load(at, 32)), 32)
      v128.store(at, madd(e, x3, v128.load(at, 48)), 48)
    }
  }
  for (; left > 0; left -= 4, rows += 16, x += 16) {
    const part = load4(x, left)
    for (let j = 0, w = weights, at = rows; j < count; j++, w += 4, at += rowBytes) {
      store4(at, madd(v128.load32_splat(w), part, load4(at, left)), left)
    }
  }
}

/** The largest lane, in each. */
// @ts-ignore: decorator
@inline
function max4(v: v128): v128 {
  const pairs = f32x4.max(v, v128.shuffle<i32>(v, v, 2, 3, 0, 1))
  return f32x4.max(pairs, v128.shuffle<i32>(pairs, pairs, 1, 0, 3, 2))
}
