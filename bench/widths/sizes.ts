/** The sizes of the room, and what a companion answers. */

/** Rows of a minibatch, in the order in which they are drawn (`widths.py`). */
export const ROWS = [16, 256, 8192] as const
/** Units of a layer. */
export const WIDTHS = [64, 256, 512, 1024] as const

/** Mean seconds of a call, a sum of the first one's results, and by which version of what. */
export interface Answer {
  readonly seconds: number
  readonly sum: number
  readonly version: string
}
