/** Joint traversal of two tensors with broadcasting. */

/**
 * Two operands in rows: for each start, `numRows` rows of `width` elements. Row r of a begins at aFrom + r · aRow, with steps of aStep
 * between elements (1, or 0 if one element serves the whole row); likewise for b.
 */
export interface Walk {
  readonly numRows: number
  readonly width: number
  readonly aRow: number
  readonly aStep: number
  readonly bRow: number
  readonly bStep: number
  /** First elements of a and b, one pair per block of rows; the output's blocks are contiguous. */
  readonly aFrom: readonly number[]
  readonly bFrom: readonly number[]
}

interface Axis {
  length: number
  aStep: number
  bStep: number
}

/** The traversal of a and b for an output of `shape`, to which both are broadcast, with as few blocks as possible. */
export function walk(shape: readonly number[], a: readonly number[], b: readonly number[]): Walk {
  const axes: Axis[] = []
  let aStep = 1
  let bStep = 1
  // From the last axis to the first; an axis is merged with the one after it if both operands are contiguous across them.
  for (let i = 1; i <= shape.length; i++) {
    const length = shape.at(-i)!
    const [lengthA, lengthB] = [a.at(-i) ?? 1, b.at(-i) ?? 1]
    const axis = { length, aStep: lengthA === 1 ? 0 : aStep, bStep: lengthB === 1 ? 0 : bStep }
    aStep *= lengthA
    bStep *= lengthB
    if (length === 1) continue
    const inner = axes.at(-1)
    const joins =
      inner !== undefined && axis.aStep === inner.aStep * inner.length && axis.bStep === inner.bStep * inner.length
    if (joins) inner.length *= length
    else axes.push(axis)
  }
  const [row, ...rest] = axes
  const column = row ?? { length: 1, aStep: 0, bStep: 0 }
  const [rows = { length: 1, aStep: 0, bStep: 0 }, ...outer] = rest
  let aFrom = [0]
  let bFrom = [0]
  for (const axis of outer.toReversed()) {
    const spread = (from: readonly number[], step: number) =>
      from.flatMap((start) => Array.from({ length: axis.length }, (_, i) => start + i * step))
    aFrom = spread(aFrom, axis.aStep)
    bFrom = spread(bFrom, axis.bStep)
  }
  const steps = { aRow: rows.aStep, aStep: column.aStep, bRow: rows.bStep, bStep: column.bStep }
  return { numRows: rows.length, width: column.length, ...steps, aFrom, bFrom }
}
