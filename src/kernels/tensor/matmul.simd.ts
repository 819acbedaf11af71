/**
 * Matrix products of any size; the plain twin `matmul.ts` says what is computed.
 *
 * B is copied in parts of at most 256 × 512 elements into panels of eight columns, in which a row of a panel is 32
 * neighboring bytes: a panel stays in the first-level cache while block after block of rows runs over it, and a transposed
 * B costs no more than another. Few rows do not pay for the copy and take B where it lies; a transposed A is copied too where
 * there are columns enough. Up to three rows that are left over run over four panels at once: over one, each addition would
 * wait for the one before. An element of C is one f32 sum in rising order of the depth, whatever the block that it falls in,
 * so a row's result depends on that row alone.
 */
import { Four, One, Six, tile } from '../tile.simd'
import { madd } from '../vector.simd'

/** Depth and columns of the part of B in the panels. */
const DEPTH: i32 = 256
const COLUMNS: i32 = 512
/** Rows of A that run over every panel of the part before the next rows: they stay in the second-level cache. */
const ROWS: i32 = 96
/** From this many rows on, B is copied. */
const COPIED_ROWS: i32 = 8
/** From this many columns on, a transposed A is copied. */
const COPIED_COLUMNS: i32 = 128

export function matmul(
  c: usize,
  a: usize,
  b: usize,
  bias: usize,
  scratch: usize,
  numRows: i32,
  numColumns: i32,
  depth: i32,
  aTransposed: bool,
  bTransposed: bool,
  accumulate: bool,
  biasLength: i32,
): void {
  const hasBias = biasLength > 0
  const rowsCopy = scratch + (<usize>(DEPTH * COLUMNS + 64) << 2)
  const copiesA = aTransposed && numColumns >= COPIED_COLUMNS
  const edge = scratch + (<usize>(DEPTH * COLUMNS) << 2) // One block of C where the columns end: 6 × 8 elements.
  const cRow = <usize>numColumns << 2
  const aRow: usize = aTransposed ? 4 : <usize>depth << 2
  const aStep: usize = aTransposed ? <usize>numRows << 2 : 4
  const bColumn: usize = bTransposed ? <usize>depth << 2 : 4
  const bStep: usize = bTransposed ? 4 : <usize>numColumns << 2
  const copies = bTransposed || numRows >= COPIED_ROWS
  for (let j0 = 0; j0 < numColumns; j0 += COLUMNS) {
    const columns = min(numColumns - j0, COLUMNS)
    for (let k0 = 0; k0 == 0 || k0 < depth; k0 += DEPTH) {
      const part = min(depth - k0, DEPTH)
      const source = b + <usize>j0 * bColumn + <usize>k0 * bStep
      const last = columns & ~7
      const panelBytes = <usize>part << 5
      if (copies) {
        for (let j = 0; j < columns; j += 8) {
          pack(scratch + (<usize>j >> 3) * panelBytes, source + <usize>j * bColumn, bColumn, bStep, min(columns - j, 8), part)
        }
      } else if (last < columns) pack(scratch, source + <usize>last * bColumn, bColumn, bStep, columns - last, part)
      const fromC = accumulate || k0 > 0
      const kept = i32x4.splat(fromC || hasBias ? -1 : 0)
      for (let i0 = 0; i0 < numRows; i0 += ROWS) {
        const rowsEnd = min(i0 + ROWS, numRows)
        if (copiesA) packRows(rowsCopy, a + (<usize>i0 << 2) + <usize>k0 * aStep, aStep, rowsEnd - i0, part)
        let blocksEnd = i0
        while (rowsEnd - blocksEnd >= 4) blocksEnd += blockOf(rowsEnd - blocksEnd)
        const wideEnd = blocksEnd < rowsEnd ? columns & ~31 : 0
        for (let j = 0; j < columns; j += 8) {
          const width = columns - j
          const isPacked = copies || width < 8
          const panel = copies ? scratch + (<usize>j >> 3) * panelBytes : width < 8 ? scratch : source + <usize>j * bColumn
          const panelStep: usize = isPacked ? 32 : bStep
          const at = <usize>(j0 + j) << 2
          const end = j < wideEnd ? blocksEnd : rowsEnd
          for (let i = i0; i < end; ) {
            const rows = blockOf(rowsEnd - i)
            const into = c + <usize>i * cRow + at
            const from = fromC ? into : hasBias ? bias + at : into
            const fromRow = fromC || !hasBias ? cRow : 0
            const copied = rowsCopy + ((<usize>(i - i0) * part) << 2)
            const rowsOfA = copiesA ? copied : a + <usize>i * aRow + <usize>k0 * aStep
            const rowA: usize = copiesA ? 4 : aRow
            const stepA: usize = copiesA ? <usize>rows << 2 : aStep
            if (width >= 8) {
              multiply(into, cRow, from, fromRow, kept, rowsOfA, rowA, stepA, panel, panelStep, rows, part)
            } else {
              copyPart(edge, 32, from, fromRow, rows, width)
              multiply(edge, 32, edge, 32, kept, rowsOfA, rowA, stepA, panel, panelStep, rows, part)
              copyPart(into, cRow, edge, 32, rows, width)
            }
            i += rows
          }
        }
        for (let j = 0; j < wideEnd; j += 32) {
          const panel = copies ? scratch + (<usize>j >> 3) * panelBytes : source + <usize>j * bColumn
          const panelStep: usize = copies ? 32 : bStep
          const at = <usize>(j0 + j) << 2
          for (let i = blocksEnd; i < rowsEnd; i++) {
            const into = c + <usize>i * cRow + at
            const from = fromC ? into : hasBias ? bias + at : into
            const copied = rowsCopy + ((<usize>(i - i0) * part) << 2)
            const row = copiesA ? copied : a + <usize>i * aRow + <usize>k0 * aStep
            block1x4(into, from, kept, row, copiesA ? 4 : aStep, panel, copies ? panelBytes : 32, panelStep, part)
          }
        }
      }
    }
  }
}

/** Rows of the next block where so many are left: two of four are faster than one of six and two rows alone. */
// @ts-ignore: decorator
@inline
function blockOf(left: i32): i32 {
  return left >= 6 && left != 8 ? 6 : left >= 4 ? 4 : 1
}

/** The rows of a transposed A in the blocks that run over the panels: six, four, or one side by side, depth after depth. */
function packRows(into: usize, a: usize, aStep: usize, numRows: i32, depth: i32): void {
  for (let i = 0; i < numRows; ) {
    const rows = blockOf(numRows - i)
    let from = a + (<usize>i << 2)
    if (rows == 6) {
      for (let k = depth; k > 0; k--, from += aStep, into += 24) {
        v128.store(into, v128.load(from))
        store<i64>(into, load<i64>(from, 16), 16)
      }
    } else if (rows == 4) {
      for (let k = depth; k > 0; k--, from += aStep, into += 16) v128.store(into, v128.load(from))
    } else for (let k = depth; k > 0; k--, from += aStep, into += 4) store<i32>(into, load<i32>(from))
    i += rows
  }
}

/** Eight columns of B as rows of 32 bytes; where there are fewer, the others are 0. */
function pack(panel: usize, b: usize, bColumn: usize, bStep: usize, columns: i32, depth: i32): void {
  if (columns == 8 && bColumn == 4) {
    for (; depth > 0; depth--, panel += 32, b += bStep) {
      v128.store(panel, v128.load(b))
      v128.store(panel, v128.load(b, 16), 16)
    }
  } else if (columns == 8) {
    for (; depth >= 4; depth -= 4, panel += 128, b += 16) {
      packFour(panel, b, bColumn)
      packFour(panel + 16, b + 4 * bColumn, bColumn)
    }
    for (; depth > 0; depth--, panel += 32, b += 4) {
      for (let j: usize = 0; j < 8; j++) store<f32>(panel + (j << 2), load<f32>(b + j * bColumn))
    }
  } else {
    for (; depth > 0; depth--, panel += 32, b += bStep) {
      v128.store(panel, f32x4.splat(0))
      v128.store(panel, f32x4.splat(0), 16)
      for (let j: usize = 0; j < <usize>columns; j++) store<f32>(panel + (j << 2), load<f32>(b + j * bColumn))
    }
  }
}

/** Four by four elements of a transposed B into four rows of a panel. */
// @ts-ignore: decorator
@inline
function packFour(panel: usize, b: usize, bColumn: usize): void {
  const r0 = v128.load(b)
  const r1 = v128.load(b + bColumn)
  const r2 = v128.load(b + 2 * bColumn)
  const r3 = v128.load(b + 3 * bColumn)
  const low01 = v128.shuffle<i32>(r0, r1, 0, 4, 1, 5)
  const low23 = v128.shuffle<i32>(r2, r3, 0, 4, 1, 5)
  const high01 = v128.shuffle<i32>(r0, r1, 2, 6, 3, 7)
  const high23 = v128.shuffle<i32>(r2, r3, 2, 6, 3, 7)
  v128.store(panel, v128.shuffle<i64>(low01, low23, 0, 2))
  v128.store(panel, v128.shuffle<i64>(low01, low23, 1, 3), 32)
  v128.store(panel, v128.shuffle<i64>(high01, high23, 0, 2), 64)
  v128.store(panel, v128.shuffle<i64>(high01, high23, 1, 3), 96)
}

function copyPart(into: usize, intoRow: usize, from: usize, fromRow: usize, rows: i32, width: i32): void {
  for (; rows > 0; rows--, into += intoRow, from += fromRow) {
    for (let j: usize = 0; j < <usize>width << 2; j += 4) store<f32>(into + j, load<f32>(from + j))
  }
}

// @ts-ignore: decorator
@inline
function multiply(
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
): void {
  if (rows == 6) block<Six>(c, cRow, from, fromRow, kept, a, aRow, aStep, b, bStep, depth)
  else if (rows == 4) block<Four>(c, cRow, from, fromRow, kept, a, aRow, aStep, b, bStep, depth)
  else block<One>(c, cRow, from, fromRow, kept, a, aRow, aStep, b, bStep, depth)
}

/** One block of C: eight columns of some rows. */
function block<Rows>(
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
  tile(offsetof<Rows>(), 2, false, true, c, cRow, from, fromRow, kept, a, aRow, aStep, b, bStep, depth)
}

/** One row over four panels, `gap` bytes apart. */
function block1x4(
  c: usize,
  from: usize,
  kept: v128,
  a: usize,
  aStep: usize,
  b: usize,
  gap: usize,
  bStep: usize,
  depth: i32,
): void {
  let b1 = b + gap
  let b2 = b1 + gap
  let b3 = b2 + gap
  let c00 = v128.and(v128.load(from), kept)
  let c01 = v128.and(v128.load(from, 16), kept)
  let c10 = v128.and(v128.load(from, 32), kept)
  let c11 = v128.and(v128.load(from, 48), kept)
  let c20 = v128.and(v128.load(from, 64), kept)
  let c21 = v128.and(v128.load(from, 80), kept)
  let c30 = v128.and(v128.load(from, 96), kept)
  let c31 = v128.and(v128.load(from, 112), kept)
  for (; depth > 0; depth--) {
    const e = v128.load32_splat(a)
    c00 = madd(e, v128.load(b), c00)
    c01 = madd(e, v128.load(b, 16), c01)
    c10 = madd(e, v128.load(b1), c10)
    c11 = madd(e, v128.load(b1, 16), c11)
    c20 = madd(e, v128.load(b2), c20)
    c21 = madd(e, v128.load(b2, 16), c21)
    c30 = madd(e, v128.load(b3), c30)
    c31 = madd(e, v128.load(b3, 16), c31)
    a += aStep
    b += bStep
    b1 += bStep
    b2 += bStep
    b3 += bStep
  }
  v128.store(c, c00)
  v128.store(c, c01, 16)
  v128.store(c, c10, 32)
  v128.store(c, c11, 48)
  v128.store(c, c20, 64)
  v128.store(c, c21, 80)
  v128.store(c, c30, 96)
  v128.store(c, c31, 112)
}
