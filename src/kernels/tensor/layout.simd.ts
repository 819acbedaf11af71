/** What moves, gathers and sums, four lanes at a time; the plain twin `layout.ts` says what is computed. */
import { load4, madd, store4, sum4 } from '../vector.simd'

/** Rows whose sum is kept in registers before it is added to what came before: rounding grows with their number only. */
const CHUNK_ROWS: i32 = 64

export function transposeMatrices(out: usize, x: usize, count: i32, height: i32, width: i32): void {
  const xRow = <usize>width << 2
  const outRow = <usize>height << 2
  const matrix = <usize>height * xRow
  for (; count > 0; count--, x += matrix, out += matrix) {
    let i = 0
    for (; i + 4 <= height; i += 4) {
      let at = x + <usize>i * xRow
      let to = out + (<usize>i << 2)
      let j = width
      for (; j >= 4; j -= 4, at += 16, to += outRow << 2) {
        const r0 = v128.load(at)
        const r1 = v128.load(at + xRow)
        const r2 = v128.load(at + 2 * xRow)
        const r3 = v128.load(at + 3 * xRow)
        const low01 = v128.shuffle<i32>(r0, r1, 0, 4, 1, 5)
        const low23 = v128.shuffle<i32>(r2, r3, 0, 4, 1, 5)
        const high01 = v128.shuffle<i32>(r0, r1, 2, 6, 3, 7)
        const high23 = v128.shuffle<i32>(r2, r3, 2, 6, 3, 7)
        v128.store(to, v128.shuffle<i64>(low01, low23, 0, 2))
        v128.store(to + outRow, v128.shuffle<i64>(low01, low23, 1, 3))
        v128.store(to + 2 * outRow, v128.shuffle<i64>(high01, high23, 0, 2))
        v128.store(to + 3 * outRow, v128.shuffle<i64>(high01, high23, 1, 3))
      }
      for (; j > 0; j--, at += 4, to += outRow) {
        store<i32>(to, load<i32>(at))
        store<i32>(to, load<i32>(at + xRow), 4)
        store<i32>(to, load<i32>(at + 2 * xRow), 8)
        store<i32>(to, load<i32>(at + 3 * xRow), 12)
      }
    }
    for (; i < height; i++) {
      let at = x + <usize>i * xRow
      let to = out + (<usize>i << 2)
      for (let j = width; j > 0; j--, at += 4, to += outRow) store<i32>(to, load<i32>(at))
    }
  }
}

export function copyRows(out: usize, x: usize, numRows: i32, width: i32, outRow: i32, xRow: i32): void {
  for (; numRows > 0; numRows--, out += <usize>outRow << 2, x += <usize>xRow << 2) copyRow(out, x, width)
}

// @ts-ignore: decorator
@inline
function copyRow(into: usize, x: usize, width: i32): void {
  for (let at: usize = 0; width > 0; width -= 4, at += 16) store4(into + at, load4(x + at, width), width)
}

export function sumMiddle(out: usize, x: usize, count: i32, depth: i32, width: i32): void {
  const row = <usize>width << 2
  if (width == 1) {
    for (; count > 0; count--, out += 4, x += <usize>depth << 2) store<f32>(out, <f32>sumRow(x, depth))
    return
  }
  for (; count > 0; count--, out += row) {
    memory.fill(out, 0, row)
    for (let left = depth; left > 0; left -= CHUNK_ROWS) {
      const rows = min(left, CHUNK_ROWS)
      addColumns(out, x, rows, width, row)
      x += <usize>rows * row
    }
  }
}

/** The sum of neighbors: of 256 at a time in sixteen f32 sums, and of those in f64. */
function sumRow(x: usize, length: i32): f64 {
  let total: f64 = 0
  while (length > 0) {
    let s0 = f32x4.splat(0)
    let s1 = s0
    let s2 = s0
    let s3 = s0
    let chunk = min(length, 256)
    length -= chunk
    for (; chunk >= 16; chunk -= 16, x += 64) {
      s0 = f32x4.add(s0, v128.load(x))
      s1 = f32x4.add(s1, v128.load(x, 16))
      s2 = f32x4.add(s2, v128.load(x, 32))
      s3 = f32x4.add(s3, v128.load(x, 48))
    }
    for (; chunk > 0; chunk -= 4, x += 16) s0 = f32x4.add(s0, load4(x, chunk))
    total += <f64>sum4(f32x4.add(f32x4.add(s0, s1), f32x4.add(s2, s3)))
  }
  return total
}

/** Adds the sums of the columns of x (depth × width) to `sums`. */
function addColumns(sums: usize, x: usize, depth: i32, width: i32, row: usize): void {
  let left = width
  for (; left >= 16; left -= 16, x += 64, sums += 64) {
    let s0 = f32x4.splat(0)
    let s1 = s0
    let s2 = s0
    let s3 = s0
    for (let i = depth, at = x; i > 0; i--, at += row) {
      s0 = f32x4.add(s0, v128.load(at))
      s1 = f32x4.add(s1, v128.load(at, 16))
      s2 = f32x4.add(s2, v128.load(at, 32))
      s3 = f32x4.add(s3, v128.load(at, 48))
    }
    v128.store(sums, f32x4.add(v128.load(sums), s0))
    v128.store(sums, f32x4.add(v128.load(sums, 16), s1), 16)
    v128.store(sums, f32x4.add(v128.load(sums, 32), s2), 32)
    v128.store(sums, f32x4.add(v128.load(sums, 48), s3), 48)
  }
  for (; left > 0; left -= 4, x += 16, sums += 16) {
    let sum = f32x4.splat(0)
    for (let i = depth, at = x; i > 0; i--, at += row) sum = f32x4.add(sum, load4(at, left))
    store4(sums, f32x4.add(load4(sums, left), sum), left)
  }
}

export function addToSegments(sums: usize, x: usize, segment: usize, numRows: i32, width: i32, numSegments: i32): void {
  const row = <usize>width << 2
  for (; numRows > 0; numRows--, segment += 4, x += row) {
    const into = load<u32>(segment) // A negative one is larger than any.
    if (into < <u32>numSegments) addRow(sums + <usize>into * row, x, width)
  }
}

/** into += x, over `width` elements. */
// @ts-ignore: decorator
@inline
function addRow(into: usize, x: usize, width: i32): void {
  for (let at: usize = 0; width > 0; width -= 4, at += 16) {
    store4(into + at, f32x4.add(load4(into + at, width), load4(x + at, width)), width)
  }
}

export function unfoldPatches(
  patches: usize,
  x: usize,
  count: i32,
  height: i32,
  width: i32,
  channels: i32,
  outHeight: i32,
  outWidth: i32,
  filterHeight: i32,
  filterWidth: i32,
  strideHeight: i32,
  strideWidth: i32,
  dilationHeight: i32,
  dilationWidth: i32,
  padTop: i32,
  padLeft: i32,
): void {
  const run = filterWidth * channels
  const image = <usize>(height * width * channels) << 2
  for (; count > 0; count--, x += image) {
    for (let y = 0; y < outHeight; y++) {
      for (let column = 0; column < outWidth; column++) {
        const left = column * strideWidth - padLeft
        // A row of the filter that lies on the image lies in one piece.
        const isWhole = dilationWidth == 1 && left >= 0 && left + filterWidth <= width
        for (let r = 0; r < filterHeight; r++) {
          const row = y * strideHeight - padTop + r * dilationHeight
          const isRow = <u32>row < <u32>height
          if (!isRow || isWhole) {
            if (isRow) copyRow(patches, x + ((<usize>(row * width + left) * channels) << 2), run)
            else clearRow(patches, run)
            patches += <usize>run << 2
            continue
          }
          for (let c = 0, at = left; c < filterWidth; c++, at += dilationWidth, patches += <usize>channels << 2) {
            if (<u32>at < <u32>width) copyRow(patches, x + ((<usize>(row * width + at) * channels) << 2), channels)
            else clearRow(patches, channels)
          }
        }
      }
    }
  }
}

/** `width` zeros: `memory.fill` takes longer to begin than a few pixels take. */
// @ts-ignore: decorator
@inline
function clearRow(into: usize, width: i32): void {
  for (; width > 0; width -= 4, into += 16) store4(into, f32x4.splat(0), width)
}

export function foldPatches(
  x: usize,
  patches: usize,
  count: i32,
  height: i32,
  width: i32,
  channels: i32,
  outHeight: i32,
  outWidth: i32,
  filterHeight: i32,
  filterWidth: i32,
  strideHeight: i32,
  strideWidth: i32,
  dilationHeight: i32,
  dilationWidth: i32,
  padTop: i32,
  padLeft: i32,
): void {
  const run = filterWidth * channels
  const image = <usize>(height * width * channels) << 2
  for (; count > 0; count--, x += image) {
    for (let y = 0; y < outHeight; y++) {
      for (let column = 0; column < outWidth; column++) {
        const left = column * strideWidth - padLeft
        const isWhole = dilationWidth == 1 && left >= 0 && left + filterWidth <= width
        for (let r = 0; r < filterHeight; r++) {
          const row = y * strideHeight - padTop + r * dilationHeight
          const isRow = <u32>row < <u32>height
          if (isRow && isWhole) {
            addRow(x + ((<usize>(row * width + left) * channels) << 2), patches, run)
            patches += <usize>run << 2
            continue
          }
          for (let c = 0, at = left; c < filterWidth; c++, at += dilationWidth, patches += <usize>channels << 2) {
            if (isRow && <u32>at < <u32>width) addRow(x + ((<usize>(row * width + at) * channels) << 2), patches, channels)
          }
        }
      }
    }
  }
}

export function addDepthwise(
  y: usize,
  x: usize,
  weight: usize,
  into: i32,
  multiplier: i32,
  count: i32,
  height: i32,
  width: i32,
  channels: i32,
  outHeight: i32,
  outWidth: i32,
  filterHeight: i32,
  filterWidth: i32,
  strideHeight: i32,
  strideWidth: i32,
  dilationHeight: i32,
  dilationWidth: i32,
  padTop: i32,
  padLeft: i32,
): void {
  const outChannels = channels * multiplier
  const image = <usize>(height * width * channels) << 2
  for (; count > 0; count--, x += image) {
    for (let row = 0; row < outHeight; row++) {
      for (let column = 0; column < outWidth; column++, y += <usize>outChannels << 2) {
        for (let r = 0; r < filterHeight; r++) {
          const fromRow = row * strideHeight - padTop + r * dilationHeight
          if (<u32>fromRow >= <u32>height) continue
          for (let c = 0; c < filterWidth; c++) {
            const fromColumn = column * strideWidth - padLeft + c * dilationWidth
            if (<u32>fromColumn >= <u32>width) continue
            const pixel = x + ((<usize>(fromRow * width + fromColumn) * channels) << 2)
            const tap = weight + ((<usize>(r * filterWidth + c) * outChannels) << 2)
            if (multiplier == 1) {
              if (into == 0) addProducts(y, pixel, tap, channels)
              else if (into == 1) addProducts(pixel, y, tap, channels)
              else addProducts(tap, pixel, y, channels)
            } else addSpread(y, pixel, tap, into, channels, multiplier)
          }
        }
      }
    }
  }
}

/** into += a · b, element by element. */
// @ts-ignore: decorator
@inline
function addProducts(into: usize, a: usize, b: usize, length: i32): void {
  for (let at: usize = 0; length > 0; length -= 4, at += 16) {
    store4(into + at, madd(load4(a + at, length), load4(b + at, length), load4(into + at, length)), length)
  }
}

/** As `addProducts` of `addDepthwise`, where each element of the pixel meets `multiplier` elements of the others. */
function addSpread(y: usize, pixel: usize, tap: usize, into: i32, channels: i32, multiplier: i32): void {
  for (let i = 0; i < channels; i++, pixel += 4) {
    for (let k = 0; k < multiplier; k++, y += 4, tap += 4) {
      if (into == 0) store<f32>(y, load<f32>(y) + load<f32>(pixel) * load<f32>(tap))
      else if (into == 1) store<f32>(pixel, load<f32>(pixel) + load<f32>(y) * load<f32>(tap))
      else store<f32>(tap, load<f32>(tap) + load<f32>(pixel) * load<f32>(y))
    }
  }
}
