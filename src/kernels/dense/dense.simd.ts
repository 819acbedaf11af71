/**
 * Dense layers, four f32 lanes at a time; the plain twin `dense.ts` says what each kernel computes.
 *
 * All three products are C = A · B with different strides, in register blocks of 6 × 8 elements of C (twelve
 * accumulators, two vectors of B and one broadcast element of A fill the sixteen vector registers of x64), then 4 × 8 and
 * 1 × 8 for the rows that are left, 4 and 2 wide for the columns. Whatever the block, an element of C is one f32 sum in rising
 * order of the depth, so a row's result depends on that row alone.
 *
 * The last column of an odd number is a dot product: four partial sums over the depth, added at the end. It too takes the
 * same operations for every row. In the weights' gradient the last one to three columns have the inputs for lanes.
 */
import { load4, loadPart, madd, store4, sum4, tanhInPlace } from '../vector.simd'

/** As `Activation` in the plain twin. */
const TANH: i32 = 1
const RELU: i32 = 2

/** Rows of a block whose inputs and gradients stay in the first-level cache while the weights' gradient is summed. */
const CHUNK_ROWS: i32 = 64

export function denseForward(
  y: usize,
  x: usize,
  weight: usize,
  bias: usize,
  numRows: i32,
  numInputs: i32,
  numOutputs: i32,
  activation: i32,
  yFrom: i32,
  xFrom: i32,
): void {
  const yRow = <usize>numOutputs << 2
  const xRow = <usize>numInputs << 2
  y += <usize>yFrom * yRow
  x += <usize>xFrom * xRow
  const all = i32x4.splat(-1)
  for (let left = numRows; left > 0; ) {
    const rows = blockRows(left)
    multiplyRows(y, yRow, bias, 0, all, x, xRow, 4, weight, yRow, rows, numInputs, numOutputs)
    if ((numOutputs & 1) != 0) {
      const column = <usize>(numOutputs - 1) << 2
      dotRows(y + column, yRow, x, xRow, weight + column, yRow, load<f32>(bias + column), rows, numInputs, false)
    }
    activate(y, rows * numOutputs, activation)
    y += <usize>rows * yRow
    x += <usize>rows * xRow
    left -= rows
  }
}

export function activationBackward(dy: usize, y: usize, length: i32, activation: i32): void {
  if (activation == TANH) {
    const one = f32x4.splat(<f32>activation) // 1, which the compiler must not know; see `tanhInPlace`.
    for (; length >= 16; length -= 16, dy += 64, y += 64) {
      const y0 = v128.load(y)
      const y1 = v128.load(y, 16)
      const y2 = v128.load(y, 32)
      const y3 = v128.load(y, 48)
      v128.store(dy, f32x4.mul(v128.load(dy), f32x4.sub(one, f32x4.mul(y0, y0))))
      v128.store(dy, f32x4.mul(v128.load(dy, 16), f32x4.sub(one, f32x4.mul(y1, y1))), 16)
      v128.store(dy, f32x4.mul(v128.load(dy, 32), f32x4.sub(one, f32x4.mul(y2, y2))), 32)
      v128.store(dy, f32x4.mul(v128.load(dy, 48), f32x4.sub(one, f32x4.mul(y3, y3))), 48)
    }
    for (; length > 0; length -= 4, dy += 16, y += 16) {
      const out = load4(y, length)
      store4(dy, f32x4.mul(load4(dy, length), f32x4.sub(one, f32x4.mul(out, out))), length)
    }
  }
  if (activation == RELU) {
    const zero = f32x4.splat(0)
    for (; length > 0; length -= 4, dy += 16, y += 16) {
      store4(dy, v128.and(load4(dy, length), f32x4.gt(load4(y, length), zero)), length)
    }
  }
}

/** In chunks of rows: each chunk's sum, from the first row to the last, is added to dWeight and dBias. */
export function denseBackwardWeights(
  dWeight: usize,
  dBias: usize,
  dy: usize,
  x: usize,
  numRows: i32,
  numInputs: i32,
  numOutputs: i32,
  xFrom: i32,
): void {
  const yRow = <usize>numOutputs << 2
  const xRow = <usize>numInputs << 2
  x += <usize>xFrom * xRow
  const all = i32x4.splat(-1)
  for (let left = numRows; left > 0; left -= CHUNK_ROWS) {
    const depth = min(left, CHUNK_ROWS)
    for (let k = 0; k < numInputs; ) {
      const rows = blockRows(numInputs - k)
      const at = <usize>k << 2
      const into = dWeight + <usize>k * yRow
      multiplyRows(into, yRow, into, yRow, all, x + at, 4, xRow, dy, yRow, rows, depth, numOutputs & ~3)
      k += rows
    }
    for (let j = numOutputs & ~3; j < numOutputs; j++) {
      const column = <usize>j << 2
      addOuter(dWeight + column, yRow, x, xRow, dy + column, yRow, depth, numInputs)
    }
    addRows(dBias, dy, depth, numOutputs)
    dy += <usize>CHUNK_ROWS * yRow
    x += <usize>CHUNK_ROWS * xRow
  }
}

export function denseBackwardInput(
  dx: usize,
  dy: usize,
  weight: usize,
  transposed: usize,
  numRows: i32,
  numInputs: i32,
  numOutputs: i32,
  accumulate: bool,
): void {
  const yRow = <usize>numOutputs << 2
  const xRow = <usize>numInputs << 2
  const kept = i32x4.splat(accumulate ? -1 : 0)
  transpose(transposed, weight, numInputs, numOutputs)
  for (let left = numRows; left > 0; ) {
    const rows = blockRows(left)
    multiplyRows(dx, xRow, dx, xRow, kept, dy, yRow, 4, transposed, xRow, rows, numOutputs, numInputs)
    if ((numInputs & 1) != 0) {
      const k: usize = numInputs - 1
      dotRows(dx + (k << 2), xRow, dy, yRow, weight + k * yRow, 4, 0, rows, numOutputs, accumulate)
    }
    dx += <usize>rows * xRow
    dy += <usize>rows * yRow
    left -= rows
  }
}

/** How many of the rows that are left the next block takes: 6, 4 or 1. */
// @ts-ignore: decorator
@inline
function blockRows(left: i32): i32 {
  return left >= 6 ? 6 : left >= 4 ? 4 : 1
}

/** y = activation(y) in place, over `length` elements. */
function activate(y: usize, length: i32, activation: i32): void {
  if (activation == TANH) tanhInPlace(y, length, <f32>activation)
  if (activation == RELU) {
    const zero = f32x4.splat(0)
    for (; length > 0; length -= 4, y += 16) store4(y, f32x4.pmax(load4(y, length), zero), length)
  }
}

/**
 * The columns of C, but for the last of an odd number, for one block of `rows` rows. Element (row, k) of A is at
 * a + row · aRow + k · aStep, element (k, j) of B at b + k · bStep + 4 j. The sums begin with what is at `from`
 * (from + row · fromRow; for a bias fromRow is 0), or with 0 where the mask `kept` is clear: a branch after the loop, or a
 * null address, would cost the loop its registers.
 */
// @ts-ignore: decorator
@inline
function multiplyRows(
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
  rows: i32,
  depth: i32,
  numColumns: i32,
): void {
  let left = numColumns
  let at: usize = 0
  for (; left >= 8; left -= 8, at += 32) {
    if (rows == 6) tile6x8(c + at, cRow, from + at, fromRow, kept, a, aRow, aStep, b + at, bStep, depth)
    else if (rows == 4) tile4x8(c + at, cRow, from + at, fromRow, kept, a, aRow, aStep, b + at, bStep, depth)
    else if (left >= 32) {
      tile1x32(c + at, cRow, from + at, fromRow, kept, a, aRow, aStep, b + at, bStep, depth)
      at += 96
      left -= 24
    } else tile1x8(c + at, cRow, from + at, fromRow, kept, a, aRow, aStep, b + at, bStep, depth)
  }
  if ((left & 4) != 0) {
    if (rows == 6) tile6x4(c + at, cRow, from + at, fromRow, kept, a, aRow, aStep, b + at, bStep, depth)
    else if (rows == 4) tile4x4(c + at, cRow, from + at, fromRow, kept, a, aRow, aStep, b + at, bStep, depth)
    else tile1x4(c + at, cRow, from + at, fromRow, kept, a, aRow, aStep, b + at, bStep, depth)
    at += 16
  }
  if ((left & 2) != 0) {
    if (rows == 6) tile6x2(c + at, cRow, from + at, fromRow, kept, a, aRow, aStep, b + at, bStep, depth)
    else if (rows == 4) tile4x2(c + at, cRow, from + at, fromRow, kept, a, aRow, aStep, b + at, bStep, depth)
    else tile1x2(c + at, cRow, from + at, fromRow, kept, a, aRow, aStep, b + at, bStep, depth)
  }
}

/** One column of C for one block of rows: dot products over a contiguous depth of A, with any step of B. */
function dotRows(
  c: usize,
  cRow: usize,
  a: usize,
  aRow: usize,
  b: usize,
  bStep: usize,
  start: f32,
  rows: i32,
  depth: i32,
  add: bool,
): void {
  if (rows == 6) dot6(c, cRow, a, aRow, b, bStep, start, depth, add)
  else if (rows == 4) dot4(c, cRow, a, aRow, b, bStep, start, depth, add)
  else dot1(c, cRow, a, aRow, b, bStep, start, depth, add)
}

/** Adds Aᵀ · b to one column of C: A is depth × numRows and contiguous along the rows of C, which are the lanes here. */
function addOuter(
  c: usize,
  cRow: usize,
  a: usize,
  aStep: usize,
  b: usize,
  bStep: usize,
  depth: i32,
  numRows: i32,
): void {
  let left = numRows
  for (; left >= 32; left -= 32) {
    lanes8(c, cRow, a, aStep, b, bStep, depth)
    c += cRow << 5
    a += 128
  }
  for (; left >= 4; left -= 4) {
    lanes1(c, cRow, a, aStep, b, bStep, depth)
    c += cRow << 2
    a += 16
  }
  if (left > 0) {
    let sum = f32x4.splat(0)
    for (; depth > 0; depth--) {
      sum = madd(load4(a, left), v128.load32_splat(b), sum)
      a += aStep
      b += bStep
    }
    addStrided(c, cRow, sum, left)
  }
}

/** Adds the sums of the columns of `x` (depth × width) to `sums`. */
function addRows(sums: usize, x: usize, depth: i32, width: i32): void {
  const row = <usize>width << 2
  let left = width
  for (; left >= 16; left -= 16) {
    let s0 = f32x4.splat(0)
    let s1 = s0
    let s2 = s0
    let s3 = s0
    for (let i = 0, at = x; i < depth; i++, at += row) {
      s0 = f32x4.add(s0, v128.load(at))
      s1 = f32x4.add(s1, v128.load(at, 16))
      s2 = f32x4.add(s2, v128.load(at, 32))
      s3 = f32x4.add(s3, v128.load(at, 48))
    }
    put(sums, s0, 0, true)
    put(sums, s1, 16, true)
    put(sums, s2, 32, true)
    put(sums, s3, 48, true)
    sums += 64
    x += 64
  }
  for (; left > 0; left -= 4) {
    let sum = f32x4.splat(0)
    for (let i = 0, at = x; i < depth; i++, at += row) sum = f32x4.add(sum, load4(at, left))
    store4(sums, f32x4.add(load4(sums, left), sum), left)
    sums += 16
    x += 16
  }
}

/** into (width × height) = from (height × width), transposed. */
function transpose(into: usize, from: usize, height: i32, width: i32): void {
  const fromRow = <usize>width << 2
  const intoRow = <usize>height << 2
  for (let i = 0; i < height; i += 4) {
    let at = from + <usize>i * fromRow
    let to = into + (<usize>i << 2)
    if (height - i >= 4) {
      let j = width
      for (; j >= 4; j -= 4) {
        const r0 = v128.load(at)
        const r1 = v128.load(at + fromRow)
        const r2 = v128.load(at + 2 * fromRow)
        const r3 = v128.load(at + 3 * fromRow)
        const low01 = v128.shuffle<i32>(r0, r1, 0, 4, 1, 5)
        const low23 = v128.shuffle<i32>(r2, r3, 0, 4, 1, 5)
        const high01 = v128.shuffle<i32>(r0, r1, 2, 6, 3, 7)
        const high23 = v128.shuffle<i32>(r2, r3, 2, 6, 3, 7)
        v128.store(to, v128.shuffle<i64>(low01, low23, 0, 2))
        v128.store(to + intoRow, v128.shuffle<i64>(low01, low23, 1, 3))
        v128.store(to + 2 * intoRow, v128.shuffle<i64>(high01, high23, 0, 2))
        v128.store(to + 3 * intoRow, v128.shuffle<i64>(high01, high23, 1, 3))
        at += 16
        to += intoRow << 2
      }
      for (; j > 0; j--, at += 4, to += intoRow) v128.store(to, strided4(at, fromRow, 4))
    } else {
      for (let j = 0; j < width; j++, at += 4, to += intoRow) {
        store4(to, strided4(at, fromRow, height - i), height - i)
      }
    }
  }
}

/** Four elements `step` bytes apart, or fewer where fewer are left, the others 0. */
// @ts-ignore: decorator
@inline
function strided4(at: usize, step: usize, left: i32): v128 {
  if (step == 4) return load4(at, left)
  let v = v128.load32_zero(at)
  if (left > 1) v = v128.load32_lane(at + step, v, 1)
  if (left > 2) v = v128.load32_lane(at + 2 * step, v, 2)
  if (left > 3) v = v128.load32_lane(at + 3 * step, v, 3)
  return v
}

/** Adds the first `count` ≤ 4 lanes to elements `step` bytes apart. */
function addStrided(at: usize, step: usize, v: v128, count: i32): void {
  store<f32>(at, load<f32>(at) + f32x4.extract_lane(v, 0))
  if (count > 1) store<f32>(at + step, load<f32>(at + step) + f32x4.extract_lane(v, 1))
  if (count > 2) store<f32>(at + 2 * step, load<f32>(at + 2 * step) + f32x4.extract_lane(v, 2))
  if (count > 3) store<f32>(at + 3 * step, load<f32>(at + 3 * step) + f32x4.extract_lane(v, 3))
}

// @ts-ignore: decorator
@inline
function put(at: usize, v: v128, offset: usize, add: bool): void {
  at += offset
  v128.store(at, add ? f32x4.add(v128.load(at), v) : v)
}

// @ts-ignore: decorator
@inline
function put1(at: usize, sum: f32, add: bool): void {
  store<f32>(at, add ? load<f32>(at) + sum : sum)
}

// The register blocks. Each is one loop over the depth with its accumulators spelled out: the language has no arrays in
// registers. Each stays a function of its own, because several call it. What measured slower under V8, which then spills:
// the loop unrolled by hand, the block inlined into its caller, a branch after the loop.

function tile6x8(
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
  let c00 = v128.and(v128.load(from), kept)
  let c01 = v128.and(v128.load(from, 16), kept)
  let c10 = v128.and(v128.load(from + fromRow), kept)
  let c11 = v128.and(v128.load(from + fromRow, 16), kept)
  let c20 = v128.and(v128.load(from + 2 * fromRow), kept)
  let c21 = v128.and(v128.load(from + 2 * fromRow, 16), kept)
  let c30 = v128.and(v128.load(from + 3 * fromRow), kept)
  let c31 = v128.and(v128.load(from + 3 * fromRow, 16), kept)
  let c40 = v128.and(v128.load(from + 4 * fromRow), kept)
  let c41 = v128.and(v128.load(from + 4 * fromRow, 16), kept)
  let c50 = v128.and(v128.load(from + 5 * fromRow), kept)
  let c51 = v128.and(v128.load(from + 5 * fromRow, 16), kept)
  for (; depth > 0; depth--) {
    const b0 = v128.load(b)
    const b1 = v128.load(b, 16)
    const e0 = v128.load32_splat(a0)
    c00 = madd(e0, b0, c00)
    c01 = madd(e0, b1, c01)
    const e1 = v128.load32_splat(a1)
    c10 = madd(e1, b0, c10)
    c11 = madd(e1, b1, c11)
    const e2 = v128.load32_splat(a2)
    c20 = madd(e2, b0, c20)
    c21 = madd(e2, b1, c21)
    const e3 = v128.load32_splat(a3)
    c30 = madd(e3, b0, c30)
    c31 = madd(e3, b1, c31)
    const e4 = v128.load32_splat(a4)
    c40 = madd(e4, b0, c40)
    c41 = madd(e4, b1, c41)
    const e5 = v128.load32_splat(a5)
    c50 = madd(e5, b0, c50)
    c51 = madd(e5, b1, c51)
    a0 += aStep
    a1 += aStep
    a2 += aStep
    a3 += aStep
    a4 += aStep
    a5 += aStep
    b += bStep
  }
  v128.store(c, c00)
  v128.store(c, c01, 16)
  v128.store(c + cRow, c10)
  v128.store(c + cRow, c11, 16)
  v128.store(c + 2 * cRow, c20)
  v128.store(c + 2 * cRow, c21, 16)
  v128.store(c + 3 * cRow, c30)
  v128.store(c + 3 * cRow, c31, 16)
  v128.store(c + 4 * cRow, c40)
  v128.store(c + 4 * cRow, c41, 16)
  v128.store(c + 5 * cRow, c50)
  v128.store(c + 5 * cRow, c51, 16)
}

function tile4x8(
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
  let c00 = v128.and(v128.load(from), kept)
  let c01 = v128.and(v128.load(from, 16), kept)
  let c10 = v128.and(v128.load(from + fromRow), kept)
  let c11 = v128.and(v128.load(from + fromRow, 16), kept)
  let c20 = v128.and(v128.load(from + 2 * fromRow), kept)
  let c21 = v128.and(v128.load(from + 2 * fromRow, 16), kept)
  let c30 = v128.and(v128.load(from + 3 * fromRow), kept)
  let c31 = v128.and(v128.load(from + 3 * fromRow, 16), kept)
  for (; depth > 0; depth--) {
    const b0 = v128.load(b)
    const b1 = v128.load(b, 16)
    const e0 = v128.load32_splat(a0)
    c00 = madd(e0, b0, c00)
    c01 = madd(e0, b1, c01)
    const e1 = v128.load32_splat(a1)
    c10 = madd(e1, b0, c10)
    c11 = madd(e1, b1, c11)
    const e2 = v128.load32_splat(a2)
    c20 = madd(e2, b0, c20)
    c21 = madd(e2, b1, c21)
    const e3 = v128.load32_splat(a3)
    c30 = madd(e3, b0, c30)
    c31 = madd(e3, b1, c31)
    a0 += aStep
    a1 += aStep
    a2 += aStep
    a3 += aStep
    b += bStep
  }
  v128.store(c, c00)
  v128.store(c, c01, 16)
  v128.store(c + cRow, c10)
  v128.store(c + cRow, c11, 16)
  v128.store(c + 2 * cRow, c20)
  v128.store(c + 2 * cRow, c21, 16)
  v128.store(c + 3 * cRow, c30)
  v128.store(c + 3 * cRow, c31, 16)
}

function tile6x4(
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
  let c00 = v128.and(v128.load(from), kept)
  let c10 = v128.and(v128.load(from + fromRow), kept)
  let c20 = v128.and(v128.load(from + 2 * fromRow), kept)
  let c30 = v128.and(v128.load(from + 3 * fromRow), kept)
  let c40 = v128.and(v128.load(from + 4 * fromRow), kept)
  let c50 = v128.and(v128.load(from + 5 * fromRow), kept)
  for (; depth > 0; depth--) {
    const b0 = v128.load(b)
    const e0 = v128.load32_splat(a0)
    c00 = madd(e0, b0, c00)
    const e1 = v128.load32_splat(a1)
    c10 = madd(e1, b0, c10)
    const e2 = v128.load32_splat(a2)
    c20 = madd(e2, b0, c20)
    const e3 = v128.load32_splat(a3)
    c30 = madd(e3, b0, c30)
    const e4 = v128.load32_splat(a4)
    c40 = madd(e4, b0, c40)
    const e5 = v128.load32_splat(a5)
    c50 = madd(e5, b0, c50)
    a0 += aStep
    a1 += aStep
    a2 += aStep
    a3 += aStep
    a4 += aStep
    a5 += aStep
    b += bStep
  }
  v128.store(c, c00)
  v128.store(c + cRow, c10)
  v128.store(c + 2 * cRow, c20)
  v128.store(c + 3 * cRow, c30)
  v128.store(c + 4 * cRow, c40)
  v128.store(c + 5 * cRow, c50)
}

function tile4x4(
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
  let c00 = v128.and(v128.load(from), kept)
  let c10 = v128.and(v128.load(from + fromRow), kept)
  let c20 = v128.and(v128.load(from + 2 * fromRow), kept)
  let c30 = v128.and(v128.load(from + 3 * fromRow), kept)
  for (; depth > 0; depth--) {
    const b0 = v128.load(b)
    const e0 = v128.load32_splat(a0)
    c00 = madd(e0, b0, c00)
    const e1 = v128.load32_splat(a1)
    c10 = madd(e1, b0, c10)
    const e2 = v128.load32_splat(a2)
    c20 = madd(e2, b0, c20)
    const e3 = v128.load32_splat(a3)
    c30 = madd(e3, b0, c30)
    a0 += aStep
    a1 += aStep
    a2 += aStep
    a3 += aStep
    b += bStep
  }
  v128.store(c, c00)
  v128.store(c + cRow, c10)
  v128.store(c + 2 * cRow, c20)
  v128.store(c + 3 * cRow, c30)
}

function tile1x32(
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
  let c00 = v128.and(v128.load(from), kept)
  let c01 = v128.and(v128.load(from, 16), kept)
  let c02 = v128.and(v128.load(from, 32), kept)
  let c03 = v128.and(v128.load(from, 48), kept)
  let c04 = v128.and(v128.load(from, 64), kept)
  let c05 = v128.and(v128.load(from, 80), kept)
  let c06 = v128.and(v128.load(from, 96), kept)
  let c07 = v128.and(v128.load(from, 112), kept)
  for (; depth > 0; depth--) {
    const b0 = v128.load(b)
    const b1 = v128.load(b, 16)
    const b2 = v128.load(b, 32)
    const b3 = v128.load(b, 48)
    const b4 = v128.load(b, 64)
    const b5 = v128.load(b, 80)
    const b6 = v128.load(b, 96)
    const b7 = v128.load(b, 112)
    const e0 = v128.load32_splat(a0)
    c00 = madd(e0, b0, c00)
    c01 = madd(e0, b1, c01)
    c02 = madd(e0, b2, c02)
    c03 = madd(e0, b3, c03)
    c04 = madd(e0, b4, c04)
    c05 = madd(e0, b5, c05)
    c06 = madd(e0, b6, c06)
    c07 = madd(e0, b7, c07)
    a0 += aStep
    b += bStep
  }
  v128.store(c, c00)
  v128.store(c, c01, 16)
  v128.store(c, c02, 32)
  v128.store(c, c03, 48)
  v128.store(c, c04, 64)
  v128.store(c, c05, 80)
  v128.store(c, c06, 96)
  v128.store(c, c07, 112)
}

function tile1x8(
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
  let c00 = v128.and(v128.load(from), kept)
  let c01 = v128.and(v128.load(from, 16), kept)
  for (; depth > 0; depth--) {
    const b0 = v128.load(b)
    const b1 = v128.load(b, 16)
    const e0 = v128.load32_splat(a0)
    c00 = madd(e0, b0, c00)
    c01 = madd(e0, b1, c01)
    a0 += aStep
    b += bStep
  }
  v128.store(c, c00)
  v128.store(c, c01, 16)
}

function tile1x4(
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
  let c00 = v128.and(v128.load(from), kept)
  for (; depth > 0; depth--) {
    const b0 = v128.load(b)
    const e0 = v128.load32_splat(a0)
    c00 = madd(e0, b0, c00)
    a0 += aStep
    b += bStep
  }
  v128.store(c, c00)
}

function tile6x2(
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
  let c0 = v128.and(v128.load64_zero(from), kept)
  let c1 = v128.and(v128.load64_zero(from + fromRow), kept)
  let c2 = v128.and(v128.load64_zero(from + 2 * fromRow), kept)
  let c3 = v128.and(v128.load64_zero(from + 3 * fromRow), kept)
  let c4 = v128.and(v128.load64_zero(from + 4 * fromRow), kept)
  let c5 = v128.and(v128.load64_zero(from + 5 * fromRow), kept)
  for (; depth > 0; depth--) {
    const b0 = v128.load64_zero(b)
    c0 = madd(v128.load32_splat(a0), b0, c0)
    c1 = madd(v128.load32_splat(a1), b0, c1)
    c2 = madd(v128.load32_splat(a2), b0, c2)
    c3 = madd(v128.load32_splat(a3), b0, c3)
    c4 = madd(v128.load32_splat(a4), b0, c4)
    c5 = madd(v128.load32_splat(a5), b0, c5)
    a0 += aStep
    a1 += aStep
    a2 += aStep
    a3 += aStep
    a4 += aStep
    a5 += aStep
    b += bStep
  }
  v128.store64_lane(c, c0, 0)
  v128.store64_lane(c + cRow, c1, 0)
  v128.store64_lane(c + 2 * cRow, c2, 0)
  v128.store64_lane(c + 3 * cRow, c3, 0)
  v128.store64_lane(c + 4 * cRow, c4, 0)
  v128.store64_lane(c + 5 * cRow, c5, 0)
}

function tile4x2(
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
  let c0 = v128.and(v128.load64_zero(from), kept)
  let c1 = v128.and(v128.load64_zero(from + fromRow), kept)
  let c2 = v128.and(v128.load64_zero(from + 2 * fromRow), kept)
  let c3 = v128.and(v128.load64_zero(from + 3 * fromRow), kept)
  for (; depth > 0; depth--) {
    const b0 = v128.load64_zero(b)
    c0 = madd(v128.load32_splat(a0), b0, c0)
    c1 = madd(v128.load32_splat(a1), b0, c1)
    c2 = madd(v128.load32_splat(a2), b0, c2)
    c3 = madd(v128.load32_splat(a3), b0, c3)
    a0 += aStep
    a1 += aStep
    a2 += aStep
    a3 += aStep
    b += bStep
  }
  v128.store64_lane(c, c0, 0)
  v128.store64_lane(c + cRow, c1, 0)
  v128.store64_lane(c + 2 * cRow, c2, 0)
  v128.store64_lane(c + 3 * cRow, c3, 0)
}

function tile1x2(
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
  let c0 = v128.and(v128.load64_zero(from), kept)
  for (; depth > 0; depth--) {
    const b0 = v128.load64_zero(b)
    c0 = madd(v128.load32_splat(a0), b0, c0)
    a0 += aStep
    b += bStep
  }
  v128.store64_lane(c, c0, 0)
}

function dot6(
  c: usize,
  cRow: usize,
  a: usize,
  aRow: usize,
  b: usize,
  bStep: usize,
  start: f32,
  depth: i32,
  add: bool,
): void {
  let a0 = a
  let a1 = a + aRow
  let a2 = a + 2 * aRow
  let a3 = a + 3 * aRow
  let a4 = a + 4 * aRow
  let a5 = a + 5 * aRow
  let c0 = f32x4.splat(0)
  let c1 = f32x4.splat(0)
  let c2 = f32x4.splat(0)
  let c3 = f32x4.splat(0)
  let c4 = f32x4.splat(0)
  let c5 = f32x4.splat(0)
  for (; depth >= 4; depth -= 4) {
    const column = strided4(b, bStep, 4)
    c0 = madd(v128.load(a0), column, c0)
    c1 = madd(v128.load(a1), column, c1)
    c2 = madd(v128.load(a2), column, c2)
    c3 = madd(v128.load(a3), column, c3)
    c4 = madd(v128.load(a4), column, c4)
    c5 = madd(v128.load(a5), column, c5)
    a0 += 16
    a1 += 16
    a2 += 16
    a3 += 16
    a4 += 16
    a5 += 16
    b += bStep << 2
  }
  if (depth > 0) {
    const column = strided4(b, bStep, depth)
    c0 = madd(loadPart(a0, depth), column, c0)
    c1 = madd(loadPart(a1, depth), column, c1)
    c2 = madd(loadPart(a2, depth), column, c2)
    c3 = madd(loadPart(a3, depth), column, c3)
    c4 = madd(loadPart(a4, depth), column, c4)
    c5 = madd(loadPart(a5, depth), column, c5)
  }
  put1(c, start + sum4(c0), add)
  c += cRow
  put1(c, start + sum4(c1), add)
  c += cRow
  put1(c, start + sum4(c2), add)
  c += cRow
  put1(c, start + sum4(c3), add)
  c += cRow
  put1(c, start + sum4(c4), add)
  c += cRow
  put1(c, start + sum4(c5), add)
}

function dot4(
  c: usize,
  cRow: usize,
  a: usize,
  aRow: usize,
  b: usize,
  bStep: usize,
  start: f32,
  depth: i32,
  add: bool,
): void {
  let a0 = a
  let a1 = a + aRow
  let a2 = a + 2 * aRow
  let a3 = a + 3 * aRow
  let c0 = f32x4.splat(0)
  let c1 = f32x4.splat(0)
  let c2 = f32x4.splat(0)
  let c3 = f32x4.splat(0)
  for (; depth >= 4; depth -= 4) {
    const column = strided4(b, bStep, 4)
    c0 = madd(v128.load(a0), column, c0)
    c1 = madd(v128.load(a1), column, c1)
    c2 = madd(v128.load(a2), column, c2)
    c3 = madd(v128.load(a3), column, c3)
    a0 += 16
    a1 += 16
    a2 += 16
    a3 += 16
    b += bStep << 2
  }
  if (depth > 0) {
    const column = strided4(b, bStep, depth)
    c0 = madd(loadPart(a0, depth), column, c0)
    c1 = madd(loadPart(a1, depth), column, c1)
    c2 = madd(loadPart(a2, depth), column, c2)
    c3 = madd(loadPart(a3, depth), column, c3)
  }
  put1(c, start + sum4(c0), add)
  c += cRow
  put1(c, start + sum4(c1), add)
  c += cRow
  put1(c, start + sum4(c2), add)
  c += cRow
  put1(c, start + sum4(c3), add)
}

function dot1(
  c: usize,
  cRow: usize,
  a: usize,
  aRow: usize,
  b: usize,
  bStep: usize,
  start: f32,
  depth: i32,
  add: bool,
): void {
  let a0 = a
  let c0 = f32x4.splat(0)
  for (; depth >= 4; depth -= 4) {
    const column = strided4(b, bStep, 4)
    c0 = madd(v128.load(a0), column, c0)
    a0 += 16
    b += bStep << 2
  }
  if (depth > 0) {
    const column = strided4(b, bStep, depth)
    c0 = madd(loadPart(a0, depth), column, c0)
  }
  put1(c, start + sum4(c0), add)
}

function lanes8(c: usize, cRow: usize, a: usize, aStep: usize, b: usize, bStep: usize, depth: i32): void {
  let c0 = f32x4.splat(0)
  let c1 = f32x4.splat(0)
  let c2 = f32x4.splat(0)
  let c3 = f32x4.splat(0)
  let c4 = f32x4.splat(0)
  let c5 = f32x4.splat(0)
  let c6 = f32x4.splat(0)
  let c7 = f32x4.splat(0)
  for (; depth > 0; depth--) {
    const e = v128.load32_splat(b)
    c0 = madd(v128.load(a), e, c0)
    c1 = madd(v128.load(a, 16), e, c1)
    c2 = madd(v128.load(a, 32), e, c2)
    c3 = madd(v128.load(a, 48), e, c3)
    c4 = madd(v128.load(a, 64), e, c4)
    c5 = madd(v128.load(a, 80), e, c5)
    c6 = madd(v128.load(a, 96), e, c6)
    c7 = madd(v128.load(a, 112), e, c7)
    a += aStep
    b += bStep
  }
  addStrided(c, cRow, c0, 4)
  addStrided(c + 4 * cRow, cRow, c1, 4)
  addStrided(c + 8 * cRow, cRow, c2, 4)
  addStrided(c + 12 * cRow, cRow, c3, 4)
  addStrided(c + 16 * cRow, cRow, c4, 4)
  addStrided(c + 20 * cRow, cRow, c5, 4)
  addStrided(c + 24 * cRow, cRow, c6, 4)
  addStrided(c + 28 * cRow, cRow, c7, 4)
}

function lanes1(c: usize, cRow: usize, a: usize, aStep: usize, b: usize, bStep: usize, depth: i32): void {
  let c0 = f32x4.splat(0)
  for (; depth > 0; depth--) {
    const e = v128.load32_splat(b)
    c0 = madd(v128.load(a), e, c0)
    a += aStep
    b += bStep
  }
  addStrided(c, cRow, c0, 4)
}
