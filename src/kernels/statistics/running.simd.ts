/** Running normalization, four dimensions or elements at a time; the plain twin `running.ts` has the formulas. */
import { clamp4, highPair, load4, lowPair, store4 } from '../vector.simd'

/** With the plain twin's bits: each dimension sums its rows in the same order, in f64. */
export function updateRunning(
  mean: usize,
  squares: usize,
  count: usize,
  x: usize,
  valid: usize,
  numRows: i32,
  width: i32,
): void {
  let added = 0
  for (let row = 0; row < numRows; row++) added += i32(load<u8>(valid + row) != 0)
  if (added == 0) return
  const before = load<f64>(count)
  const total = before + <f64>added
  const share = f64x2.splat(<f64>added / total)
  const between = f64x2.splat(before * (<f64>added / total))
  const divisor = f64x2.splat(<f64>added)
  const bytes = <usize>width << 2
  for (let left = width; left > 0; left -= 4) {
    let low = f64x2.splat(0)
    let high = low
    for (let row = 0, at = x; row < numRows; row++, at += bytes) {
      if (load<u8>(valid + row) == 0) continue
      const x4 = load4(at, left)
      low = f64x2.add(low, lowPair(x4))
      high = f64x2.add(high, highPair(x4))
    }
    const lowMean = f64x2.div(low, divisor)
    const highMean = f64x2.div(high, divisor)
    low = f64x2.splat(0)
    high = low
    for (let row = 0, at = x; row < numRows; row++, at += bytes) {
      if (load<u8>(valid + row) == 0) continue
      const x4 = load4(at, left)
      const fromLow = f64x2.sub(lowPair(x4), lowMean)
      const fromHigh = f64x2.sub(highPair(x4), highMean)
      low = f64x2.add(low, f64x2.mul(fromLow, fromLow))
      high = f64x2.add(high, f64x2.mul(fromHigh, fromHigh))
    }
    merge2(mean, squares, lowMean, low, share, between, left)
    if (left > 2) merge2(mean + 16, squares + 16, highMean, high, share, between, left - 2)
    x += 16
    mean += 32
    squares += 32
  }
  store<f64>(count, total)
}

/** Merges the batch's moments of two dimensions, or of the one that is left. */
// @ts-ignore: decorator
@inline
function merge2(
  mean: usize,
  squares: usize,
  batchMean: v128,
  batchSquares: v128,
  share: v128,
  between: v128,
  left: i32,
): void {
  const isPair = left >= 2
  const oldMean = isPair ? v128.load(mean) : v128.load64_zero(mean)
  const oldSquares = isPair ? v128.load(squares) : v128.load64_zero(squares)
  const apart = f64x2.sub(batchMean, oldMean)
  const newMean = f64x2.add(oldMean, f64x2.mul(apart, share))
  const merged = f64x2.add(batchSquares, f64x2.mul(f64x2.mul(apart, apart), between))
  const newSquares = f64x2.add(oldSquares, merged)
  if (isPair) {
    v128.store(mean, newMean)
    v128.store(squares, newSquares)
  } else {
    v128.store64_lane(mean, newMean, 0)
    v128.store64_lane(squares, newSquares, 0)
  }
}

export function readRunning(
  center: usize,
  deviation: usize,
  mean: usize,
  squares: usize,
  count: usize,
  epsilon: f64,
  width: i32,
): void {
  const rows = load<f64>(count)
  for (let k = 0; k < width; k++) {
    store<f32>(center, rows == 0 ? 0 : <f32>load<f64>(mean))
    store<f32>(deviation, rows == 0 ? 1 : <f32>Math.sqrt(load<f64>(squares) / rows + epsilon))
    center += 4
    deviation += 4
    mean += 8
    squares += 8
  }
}

export function normalizeRows(
  y: usize,
  x: usize,
  center: usize,
  deviation: usize,
  clip: f64,
  numRows: i32,
  width: i32,
  from: i32,
): void {
  const high = f32x4.splat(<f32>clip)
  const low = f32x4.neg(high)
  x += (<usize>from * <usize>width) << 2
  if (width <= 4) {
    // Twelve elements are whole rows of any of these widths: the dimensions repeat every three vectors.
    const center0 = repeat4(center, width, 0)
    const center1 = repeat4(center, width, 4)
    const center2 = repeat4(center, width, 8)
    const deviation0 = repeat4(deviation, width, 0)
    const deviation1 = repeat4(deviation, width, 4)
    const deviation2 = repeat4(deviation, width, 8)
    let left = numRows * width
    for (; left >= 12; left -= 12, x += 48, y += 48) {
      const y0 = normalize4(v128.load(x), center0, deviation0, low, high)
      const y1 = normalize4(v128.load(x, 16), center1, deviation1, low, high)
      const y2 = normalize4(v128.load(x, 32), center2, deviation2, low, high)
      v128.store(y, y0)
      v128.store(y, y1, 16)
      v128.store(y, y2, 32)
    }
    if (left > 0) store4(y, normalize4(load4(x, left), center0, deviation0, low, high), left)
    if (left > 4) store4(y + 16, normalize4(load4(x + 16, left - 4), center1, deviation1, low, high), left - 4)
    if (left > 8) store4(y + 32, normalize4(load4(x + 32, left - 8), center2, deviation2, low, high), left - 8)
    return
  }
  for (let row = 0; row < numRows; row++) {
    let k: usize = 0
    for (let left = width; left > 0; left -= 4, k += 16) {
      const center4 = load4(center + k, left)
      store4(y + k, normalize4(load4(x + k, left), center4, load4(deviation + k, left), low, high), left)
    }
    x += <usize>width << 2
    y += <usize>width << 2
  }
}

/** Elements first to first + 3 of a column of `width` that repeats without end. */
function repeat4(at: usize, width: i32, first: i32): v128 {
  let v = v128.load32_zero(at + (<usize>(first % width) << 2))
  v = v128.load32_lane(at + (<usize>((first + 1) % width) << 2), v, 1)
  v = v128.load32_lane(at + (<usize>((first + 2) % width) << 2), v, 2)
  return v128.load32_lane(at + (<usize>((first + 3) % width) << 2), v, 3)
}

// @ts-ignore: decorator
@inline
function normalize4(x: v128, center: v128, deviation: v128, low: v128, high: v128): v128 {
  return clamp4(f32x4.div(f32x4.sub(x, center), deviation), low, high)
}
