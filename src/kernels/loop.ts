/** The contract of a loop over columns: a program, and the elements that it reads and writes. */
import type { ExpressionProgram } from '../base/expressions/expression-program.ts'

/**
 * How a column stores a number: unchanged, as a whole number (rounded toward 0, and clipped to the type's bounds; NaN
 * becomes 0), or as a flag (0 for 0, otherwise 1).
 */
export type LoopType = 'f32' | 'i32' | 'u8' | 'flag'

/** One element of each row of a column. */
export interface LoopElement {
  /** Which of the columns that the loop is called with. */
  readonly column: number
  readonly type: LoopType
  /** Elements a row of the column, and which of them this is. */
  readonly width: number
  readonly element: number
  /** Where its number is, or goes, in the program. */
  readonly register: number
}

/** A program, the elements that it reads, and the elements to which it writes its results. */
export interface ColumnLoop {
  readonly program: ExpressionProgram
  readonly loads: readonly LoopElement[]
  readonly stores: readonly LoopElement[]
  readonly numColumns: number
}
