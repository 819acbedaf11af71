/**
 * Dense layers, four f32 lanes at a time; the plain twin `dense.ts` says what each kernel computes.
 *
 * All three products are C = A · B with different strides, in register blocks of 6 × 8 elements of C (twelve
 * accumulators, two vectors of B and one broadcast element of A fill the sixteen vector registers of x64), then 4 × 8 and
 * 1 × 8 for the rows that are left, and 4 wide for the columns. A depth of one to four, as of a layer above four
 * observations or below two logits, leaves no loop to speak of: there the weights stay in registers and the rows stream
 * by. Whatever the block, an element of C is one f32 sum in rising order of the depth, so a row's result depends on that
 * row alone.
 *
 * The last one to three columns of a number that four does not divide are dot products: two partial sums over the depth
 * for a pair of columns, four for a last one, added at the end. They too take the same operations for every row. In the
 * weights' gradient those columns have the inputs for lanes.
 */
import { Eight, Four, One, Six, Three, Two, tile } from '../tile.simd'
import { load4, loadPart, madd, store4, storePart, sum4, tanhInPlace } from '../vector.simd'

/** As `Activation` in the plain twin. */
export const LINEAR: i32 = 0
const TANH: i32 = 1
const RELU: i32 = 2

/** Rows whose outputs are still in the first-level cache when the activation is applied to them: a multiple of 6. */
const ACTIVE_ROWS: i32 = 24

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
  for (let left = numRows; left > 0; left -= ACTIVE_ROWS) {
    const rows = min(left, ACTIVE_ROWS)
    multiply(y, yRow, bias, 0, x, xRow, weight, yRow, rows, numInputs, numOutputs)
    activate(y, rows * numOutputs, activation)
    y += ACTIVE_ROWS * yRow
    x += ACTIVE_ROWS * xRow
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
  const pairs = numOutputs & ~3
  const last = numOutputs & ~1
  x += <usize>xFrom * xRow
  // Of a narrow layer nothing is read twice.
  const chunkRows = pairs == 0 ? numRows : CHUNK_ROWS
  for (let left = numRows; left > 0; left -= chunkRows) {
    const depth = min(left, chunkRows)
    for (let k = 0; k < numInputs; ) {
      const rows = blockRows(numInputs - k)
      const at = <usize>k << 2
      const into = dWeight + <usize>k * yRow
      multiplyRows(into, yRow, into, yRow, x + at, 4, xRow, dy, yRow, rows, depth, pairs)
      k += rows
    }
    if ((numOutputs & 2) != 0) {
      const column = <usize>pairs << 2
      addOuter2(dWeight + column, yRow, x, xRow, dy + column, yRow, depth, numInputs)
    }
    if ((numOutputs & 1) != 0) {
      const column = <usize>last << 2
      addOuter(dWeight + column, yRow, x, xRow, dy + column, yRow, depth, numInputs)
    }
    addRows(dBias, dy, depth, numOutputs)
    dy += <usize>chunkRows * yRow
    x += <usize>chunkRows * xRow
  }
}

export function denseBackwardInput(
  dx: usize,
  dy: usize,
  weight: usize,
  workspace: usize,
  x: usize,
  numRows: i32,
  numInputs: i32,
  numOutputs: i32,
  accumulate: bool,
  activation: i32,
): void {
  const yRow = <usize>numOutputs << 2
  const xRow = <usize>numInputs << 2
  transpose(workspace, weight, numInputs, numOutputs)
  // What is not accumulated begins with a row of zeros behind the transposed weight.
  const zeros = workspace + <usize>numOutputs * xRow
  if (!accumulate) memory.fill(zeros, 0, xRow)
  const fromRow = accumulate ? xRow : 0
  for (let left = numRows; left > 0; left -= ACTIVE_ROWS) {
    const rows = min(left, ACTIVE_ROWS)
    multiply(dx, xRow, accumulate ? dx : zeros, fromRow, dy, yRow, workspace, xRow, rows, numOutputs, numInputs)
    activationBackward(dx, x, rows * numInputs, activation)
    dx += ACTIVE_ROWS * xRow
    dy += ACTIVE_ROWS * yRow
    x += ACTIVE_ROWS * xRow
  }
}

/** dy = dy · f'(y) in place, over `length` elements. */
function activationBackward(dy: usize, y: usize, length: i32, activation: i32): void {
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
    for (; length >= 4; length -= 4, dy += 16, y += 16) {
      v128.store(dy, v128.and(v128.load(dy), f32x4.gt(v128.load(y), zero)))
    }
    if (length > 0) storePart(dy, v128.and(loadPart(dy, length), f32x4.gt(loadPart(y, length), zero)), length)
  }
}

/** y = activation(y) in place, over `length` elements. */
function activate(y: usize, length: i32, activation: i32): void {
  if (activation == TANH) tanhInPlace(y, length, <f32>activation)
  if (activation == RELU) {
    const zero = f32x4.splat(0)
    for (; length >= 4; length -= 4, y += 16) v128.store(y, f32x4.pmax(v128.load(y), zero))
    if (length > 0) storePart(y, f32x4.pmax(loadPart(y, length), zero), length)
  }
}

/**
 * C = from + A · B for `rows` rows of A, which is contiguous along the depth. Row r of `from` is at from + r · fromRow, and
 * fromRow is 0 for a bias.
 */
function multiply(
  c: usize,
  cRow: usize,
  from: usize,
  fromRow: usize,
  a: usize,
  aRow: usize,
  b: usize,
  bRow: usize,
  rows: i32,
  depth: i32,
  numColumns: i32,
): void {
  let at: usize = 0
  let wide = numColumns & ~3
  if (depth <= 4) {
    const width = depth <= 2 ? 16 : 8
    for (; wide >= width; wide -= width, at += <usize>width << 2) {
      if (depth == 4) thin<Four, Two>(c + at, cRow, from + at, fromRow, a, aRow, b + at, bRow, rows)
      else if (depth == 3) thin<Three, Two>(c + at, cRow, from + at, fromRow, a, aRow, b + at, bRow, rows)
      else if (depth == 2) thin<Two, Four>(c + at, cRow, from + at, fromRow, a, aRow, b + at, bRow, rows)
      else thin<One, Four>(c + at, cRow, from + at, fromRow, a, aRow, b + at, bRow, rows)
    }
  }
  const narrow = at + (<usize>wide << 2)
  for (let left = rows; left > 0; ) {
    const block = blockRows(left)
    if (wide > 0) multiplyRows(c + at, cRow, from + at, fromRow, a, aRow, 4, b + at, bRow, block, depth, wide)
    if ((numColumns & 3) != 0) {
      let column = narrow
      if ((numColumns & 2) != 0) {
        if (block == 6) pair<Six>(c + column, cRow, from + column, fromRow, a, aRow, b + column, bRow, depth)
        else if (block == 4) pair<Four>(c + column, cRow, from + column, fromRow, a, aRow, b + column, bRow, depth)
        else pair<One>(c + column, cRow, from + column, fromRow, a, aRow, b + column, bRow, depth)
        column += 8
      }
      if ((numColumns & 1) != 0) {
        if (block == 6) dot<Six>(c + column, cRow, from + column, fromRow, a, aRow, b + column, bRow, depth)
        else if (block == 4) dot<Four>(c + column, cRow, from + column, fromRow, a, aRow, b + column, bRow, depth)
        else dot<One>(c + column, cRow, from + column, fromRow, a, aRow, b + column, bRow, depth)
      }
    }
    c += <usize>block * cRow
    from += <usize>block * fromRow
    a += <usize>block * aRow
    left -= block
  }
}

/** How many of the rows that are left the next block takes: 6, 4 or 1. */
// @ts-ignore: decorator
@inline
function blockRows(left: i32): i32 {
  return left >= 6 ? 6 : left >= 4 ? 4 : 1
}

/**
 * The columns of C, a multiple of 4, for one block of `rows` rows. Element (row, k) of A is at a + row · aRow + k · aStep,
 * element (k, j) of B at b + k · bStep + 4 j.
 */
// @ts-ignore: decorator
@inline
function multiplyRows(
  c: usize,
  cRow: usize,
  from: usize,
  fromRow: usize,
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
    if (rows == 6 && aRow == 4) columns6x8(c + at, cRow, from + at, fromRow, a, aStep, b + at, bStep, depth)
    else if (rows == 6) block<Six, Two>(c + at, cRow, from + at, fromRow, a, aRow, aStep, b + at, bStep, depth)
    else if (rows == 4) block<Four, Two>(c + at, cRow, from + at, fromRow, a, aRow, aStep, b + at, bStep, depth)
    else if (left >= 32) {
      block<One, Eight>(c + at, cRow, from + at, fromRow, a, aRow, aStep, b + at, bStep, depth)
      at += 96
      left -= 24
    } else block<One, Two>(c + at, cRow, from + at, fromRow, a, aRow, aStep, b + at, bStep, depth)
  }
  if (left > 0) {
    if (rows == 6) block<Six, One>(c + at, cRow, from + at, fromRow, a, aRow, aStep, b + at, bStep, depth)
    else if (rows == 4) block<Four, One>(c + at, cRow, from + at, fromRow, a, aRow, aStep, b + at, bStep, depth)
    else block<One, One>(c + at, cRow, from + at, fromRow, a, aRow, aStep, b + at, bStep, depth)
  }
}

/** As addOuter, for two columns: B is depth × 2, C numRows × 2. */
function addOuter2(
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
  for (; left >= 16; left -= 16) {
    pairs4(c, cRow, a, aStep, b, bStep, depth)
    c += cRow << 4
    a += 64
  }
  for (; left > 0; left -= 4) {
    let c0 = f32x4.splat(0)
    let c1 = c0
    for (let i = 0, at = a, d = b; i < depth; i++, at += aStep, d += bStep) {
      const x = load4(at, left)
      c0 = madd(x, v128.load32_splat(d), c0)
      c1 = madd(x, v128.load32_splat(d, 4), c1)
    }
    addPairs2(c, cRow, c0, c1, left)
    c += cRow << 2
    a += 16
  }
}

/** Adds the first `count` ≤ 4 lanes of two vectors to pairs, `row` bytes apart. */
// @ts-ignore: decorator
@inline
function addPairs2(at: usize, row: usize, first: v128, second: v128, count: i32): void {
  const low = v128.shuffle<i32>(first, second, 0, 4, 1, 5)
  const high = v128.shuffle<i32>(first, second, 2, 6, 3, 7)
  v128.store64_lane(at, f32x4.add(v128.load64_zero(at), low), 0)
  if (count > 1) {
    at += row
    v128.store64_lane(at, f32x4.add(v128.load64_splat(at), low), 1)
  }
  if (count > 2) {
    at += row
    v128.store64_lane(at, f32x4.add(v128.load64_zero(at), high), 0)
  }
  if (count > 3) {
    at += row
    v128.store64_lane(at, f32x4.add(v128.load64_splat(at), high), 1)
  }
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
  if (width <= 2) {
    addFlat(sums, x, depth * width, width)
    return
  }
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
    add(sums, s0)
    add(sums + 16, s1)
    add(sums + 32, s2)
    add(sums + 48, s3)
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

/** As addRows for one or two columns, which every second element belongs to either way. */
function addFlat(sums: usize, x: usize, length: i32, width: i32): void {
  let s0 = f32x4.splat(0)
  let s1 = s0
  for (; length >= 8; length -= 8, x += 32) {
    s0 = f32x4.add(s0, v128.load(x))
    s1 = f32x4.add(s1, v128.load(x, 16))
  }
  for (; length > 0; length -= 4, x += 16) s0 = f32x4.add(s0, load4(x, length))
  s0 = f32x4.add(s0, s1)
  s0 = f32x4.add(s0, v128.shuffle<i32>(s0, s0, 2, 3, 0, 1))
  const first = f32x4.extract_lane(s0, 0)
  const second = f32x4.extract_lane(s0, 1)
  store<f32>(sums, load<f32>(sums) + (width == 2 ? first : first + second))
  if (width == 2) store<f32>(sums, load<f32>(sums, 4) + second, 4)
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
function add(at: usize, v: v128): void {
  v128.store(at, f32x4.add(v128.load(at), v))
}

/** A pair of elements in lanes 0 and 2. */
// @ts-ignore: decorator
@inline
function start2(at: usize): v128 {
  return v128.shuffle<i32>(v128.load64_zero(at), i32x4.splat(0), 0, 4, 1, 5)
}

/** Two rows of two columns: the first column in lanes 0 and 1, the second in 2 and 3. */
// @ts-ignore: decorator
@inline
function columns2(at: usize, step: usize): v128 {
  return v128.shuffle<i32>(v128.load64_zero(at), v128.load64_zero(at + step), 0, 4, 1, 5)
}

/** Stores lane 0 + lane 1 and lane 2 + lane 3. */
// @ts-ignore: decorator
@inline
function finish2(at: usize, v: v128): void {
  const sums = f32x4.add(v, v128.shuffle<i32>(v, v, 1, 0, 3, 2))
  v128.store64_lane(at, v128.shuffle<i32>(sums, sums, 0, 2, 0, 2), 0)
}

/** Unused: nothing of `from` is masked. */
const UNMASKED = i32x4.splat(-1)

/** A register block, whose rows of A lie anywhere. */
function block<Rows, Vectors>(
  c: usize,
  cRow: usize,
  from: usize,
  fromRow: usize,
  a: usize,
  aRow: usize,
  aStep: usize,
  b: usize,
  bStep: usize,
  depth: i32,
): void {
  tile(offsetof<Rows>(), offsetof<Vectors>(), false, false, c, cRow, from, fromRow, UNMASKED, a, aRow, aStep, b, bStep, depth)
}

/** As block<Six, Two> for rows of A that stand side by side. */
function columns6x8(
  c: usize,
  cRow: usize,
  from: usize,
  fromRow: usize,
  a: usize,
  aStep: usize,
  b: usize,
  bStep: usize,
  depth: i32,
): void {
  tile(6, 2, true, false, c, cRow, from, fromRow, UNMASKED, a, 4, aStep, b, bStep, depth)
}

/** Two columns of C for `rows` rows: two partial sums each, over even and over odd depths. */
function pair<Rows>(
  c: usize,
  cRow: usize,
  from: usize,
  fromRow: usize,
  a: usize,
  aRow: usize,
  b: usize,
  bStep: usize,
  depth: i32,
): void {
  const rows = offsetof<Rows>()
  const evens = i64x2.splat(0xffffffff)
  let a0 = a
  let a1 = a + aRow
  let a2 = a + 2 * aRow
  let a3 = a + 3 * aRow
  let a4 = a + 4 * aRow
  let a5 = a + 5 * aRow
  let c0 = start2(from)
  let c1 = c0
  let c2 = c0
  let c3 = c0
  let c4 = c0
  let c5 = c0
  if (rows > 1) {
    c1 = start2(from + fromRow)
    c2 = start2(from + 2 * fromRow)
    c3 = start2(from + 3 * fromRow)
  }
  if (rows > 4) {
    c4 = start2(from + 4 * fromRow)
    c5 = start2(from + 5 * fromRow)
  }
  for (; depth >= 2; depth -= 2) {
    const both = columns2(b, bStep)
    c0 = madd(v128.load64_splat(a0), both, c0)
    if (rows > 1) {
      c1 = madd(v128.load64_splat(a1), both, c1)
      c2 = madd(v128.load64_splat(a2), both, c2)
      c3 = madd(v128.load64_splat(a3), both, c3)
    }
    if (rows > 4) {
      c4 = madd(v128.load64_splat(a4), both, c4)
      c5 = madd(v128.load64_splat(a5), both, c5)
    }
    a0 += 8
    if (rows > 1) {
      a1 += 8
      a2 += 8
      a3 += 8
    }
    if (rows > 4) {
      a4 += 8
      a5 += 8
    }
    b += bStep << 1
  }
  if (depth > 0) {
    const both = start2(b)
    c0 = madd(v128.and(v128.load32_splat(a0), evens), both, c0)
    if (rows > 1) {
      c1 = madd(v128.and(v128.load32_splat(a1), evens), both, c1)
      c2 = madd(v128.and(v128.load32_splat(a2), evens), both, c2)
      c3 = madd(v128.and(v128.load32_splat(a3), evens), both, c3)
    }
    if (rows > 4) {
      c4 = madd(v128.and(v128.load32_splat(a4), evens), both, c4)
      c5 = madd(v128.and(v128.load32_splat(a5), evens), both, c5)
    }
  }
  finish2(c, c0)
  if (rows > 1) {
    finish2(c + cRow, c1)
    finish2(c + 2 * cRow, c2)
    finish2(c + 3 * cRow, c3)
  }
  if (rows > 4) {
    finish2(c + 4 * cRow, c4)
    finish2(c + 5 * cRow, c5)
  }
}

/** One column of C for `rows` rows: four partial sums over the depth. */
function dot<Rows>(
  c: usize,
  cRow: usize,
  from: usize,
  fromRow: usize,
  a: usize,
  aRow: usize,
  b: usize,
  bStep: usize,
  depth: i32,
): void {
  const rows = offsetof<Rows>()
  let a0 = a
  let a1 = a + aRow
  let a2 = a + 2 * aRow
  let a3 = a + 3 * aRow
  let a4 = a + 4 * aRow
  let a5 = a + 5 * aRow
  let c0 = v128.load32_zero(from)
  let c1 = c0
  let c2 = c0
  let c3 = c0
  let c4 = c0
  let c5 = c0
  if (rows > 1) {
    c1 = v128.load32_zero(from + fromRow)
    c2 = v128.load32_zero(from + 2 * fromRow)
    c3 = v128.load32_zero(from + 3 * fromRow)
  }
  if (rows > 4) {
    c4 = v128.load32_zero(from + 4 * fromRow)
    c5 = v128.load32_zero(from + 5 * fromRow)
  }
  for (; depth >= 4; depth -= 4) {
    const column = strided4(b, bStep, 4)
    c0 = madd(v128.load(a0), column, c0)
    if (rows > 1) {
      c1 = madd(v128.load(a1), column, c1)
      c2 = madd(v128.load(a2), column, c2)
      c3 = madd(v128.load(a3), column, c3)
    }
    if (rows > 4) {
      c4 = madd(v128.load(a4), column, c4)
      c5 = madd(v128.load(a5), column, c5)
    }
    a0 += 16
    if (rows > 1) {
      a1 += 16
      a2 += 16
      a3 += 16
    }
    if (rows > 4) {
      a4 += 16
      a5 += 16
    }
    b += bStep << 2
  }
  if (depth > 0) {
    const column = strided4(b, bStep, depth)
    c0 = madd(loadPart(a0, depth), column, c0)
    if (rows > 1) {
      c1 = madd(loadPart(a1, depth), column, c1)
      c2 = madd(loadPart(a2, depth), column, c2)
      c3 = madd(loadPart(a3, depth), column, c3)
    }
    if (rows > 4) {
      c4 = madd(loadPart(a4, depth), column, c4)
      c5 = madd(loadPart(a5, depth), column, c5)
    }
  }
  store<f32>(c, sum4(c0))
  if (rows > 1) {
    store<f32>(c + cRow, sum4(c1))
    store<f32>(c + 2 * cRow, sum4(c2))
    store<f32>(c + 3 * cRow, sum4(c3))
  }
  if (rows > 4) {
    store<f32>(c + 4 * cRow, sum4(c4))
    store<f32>(c + 5 * cRow, sum4(c5))
  }
}

/** Some vectors of C, with the `depth` ≤ 4 rows of B in registers: two vectors of three or four, four of one or two. */
function thin<Depth, Vectors>(
  c: usize,
  cRow: usize,
  from: usize,
  fromRow: usize,
  a: usize,
  aRow: usize,
  b: usize,
  bRow: usize,
  rows: i32,
): void {
  const depth = offsetof<Depth>()
  const vectors = offsetof<Vectors>()
  const b00 = v128.load(b)
  const b01 = v128.load(b, 16)
  const b02 = vectors > 2 ? v128.load(b, 32) : b00
  const b03 = vectors > 2 ? v128.load(b, 48) : b00
  const b10 = depth > 1 ? v128.load(b + bRow) : b00
  const b11 = depth > 1 ? v128.load(b + bRow, 16) : b00
  const b12 = depth > 1 && vectors > 2 ? v128.load(b + bRow, 32) : b00
  const b13 = depth > 1 && vectors > 2 ? v128.load(b + bRow, 48) : b00
  const b20 = depth > 2 ? v128.load(b + 2 * bRow) : b00
  const b21 = depth > 2 ? v128.load(b + 2 * bRow, 16) : b00
  const b30 = depth > 3 ? v128.load(b + 3 * bRow) : b00
  const b31 = depth > 3 ? v128.load(b + 3 * bRow, 16) : b00
  for (; rows > 0; rows--) {
    const e0 = v128.load32_splat(a)
    let c0 = madd(e0, b00, v128.load(from))
    let c1 = madd(e0, b01, v128.load(from, 16))
    let c2 = c0
    let c3 = c1
    if (vectors > 2) {
      c2 = madd(e0, b02, v128.load(from, 32))
      c3 = madd(e0, b03, v128.load(from, 48))
    }
    if (depth > 1) {
      const e1 = v128.load32_splat(a, 4)
      c0 = madd(e1, b10, c0)
      c1 = madd(e1, b11, c1)
      if (vectors > 2) {
        c2 = madd(e1, b12, c2)
        c3 = madd(e1, b13, c3)
      }
    }
    if (depth > 2) {
      const e2 = v128.load32_splat(a, 8)
      c0 = madd(e2, b20, c0)
      c1 = madd(e2, b21, c1)
    }
    if (depth > 3) {
      const e3 = v128.load32_splat(a, 12)
      c0 = madd(e3, b30, c0)
      c1 = madd(e3, b31, c1)
    }
    v128.store(c, c0)
    v128.store(c, c1, 16)
    if (vectors > 2) {
      v128.store(c, c2, 32)
      v128.store(c, c3, 48)
    }
    c += cRow
    from += fromRow
    a += aRow
  }
}

function pairs4(c: usize, cRow: usize, a: usize, aStep: usize, b: usize, bStep: usize, depth: i32): void {
  let c00 = f32x4.splat(0)
  let c01 = f32x4.splat(0)
  let c10 = f32x4.splat(0)
  let c11 = f32x4.splat(0)
  let c20 = f32x4.splat(0)
  let c21 = f32x4.splat(0)
  let c30 = f32x4.splat(0)
  let c31 = f32x4.splat(0)
  for (; depth > 0; depth--) {
    const e0 = v128.load32_splat(b)
    const e1 = v128.load32_splat(b, 4)
    const x0 = v128.load(a)
    c00 = madd(x0, e0, c00)
    c01 = madd(x0, e1, c01)
    const x1 = v128.load(a, 16)
    c10 = madd(x1, e0, c10)
    c11 = madd(x1, e1, c11)
    const x2 = v128.load(a, 32)
    c20 = madd(x2, e0, c20)
    c21 = madd(x2, e1, c21)
    const x3 = v128.load(a, 48)
    c30 = madd(x3, e0, c30)
    c31 = madd(x3, e1, c31)
    a += aStep
    b += bStep
  }
  addPairs2(c, cRow, c00, c01, 4)
  addPairs2(c + 4 * cRow, cRow, c10, c11, 4)
  addPairs2(c + 8 * cRow, cRow, c20, c21, 4)
  addPairs2(c + 12 * cRow, cRow, c30, c31, 4)
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
