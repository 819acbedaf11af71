/** Draws pictures from shapes, in an environment's own units, for `draw` of environments that are not grids. */
import { checkGiven } from '../base/errors.ts'
import type { Picture } from './picture.ts'

/** A picture of shapes; later shapes cover earlier ones. Colors are indices of `pictureColors`; y points up. */
export class Canvas implements Picture {
  readonly rows: number
  readonly columns: number
  readonly fields: Uint8Array
  readonly #left: number
  readonly #top: number
  /** Size of a field, in the environment's units. */
  readonly #size: number

  /**
   * Creates an empty picture of the area between `low` and `high` (x, y), `columns` fields wide.
   * @example new Canvas({ low: [-1, -1], high: [1, 1] }).line(0, 0, 1, 1, 0.1, 2)
   */
  constructor(given: {
    low: readonly [x: number, y: number]
    high: readonly [x: number, y: number]
    columns?: number
  }) {
    checkGiven('options of Canvas', given, ['low', 'high'])
    const { low, high, columns = 120 } = given

    this.#size = (high[0] - low[0]) / columns
    this.#left = low[0]
    this.#top = high[1]
    this.columns = columns
    this.rows = Math.round((high[1] - low[1]) / this.#size)
    this.fields = new Uint8Array(this.rows * columns)
  }

  /** Draws a line between two points, with round ends. */
  line(x0: number, y0: number, x1: number, y1: number, width: number, color: number): this {
    const [alongX, alongY] = [x1 - x0, y1 - y0]
    const squared = alongX ** 2 + alongY ** 2
    return this.#paint(color, (x, y) => {
      const along = squared === 0 ? 0 : ((x - x0) * alongX + (y - y0) * alongY) / squared
      const nearest = Math.min(Math.max(along, 0), 1)
      return Math.hypot(x - x0 - nearest * alongX, y - y0 - nearest * alongY) <= width / 2
    })
  }

  disc(x: number, y: number, radius: number, color: number): this {
    return this.line(x, y, x, y, 2 * radius, color)
  }

  /** Fills the rectangle between two corners. */
  rectangle(x0: number, y0: number, x1: number, y1: number, color: number): this {
    return this.#paint(color, (x, y) => x >= x0 && x <= x1 && y >= y0 && y <= y1)
  }

  /** Fills the area below a curve. */
  below(curve: (x: number) => number, color: number): this {
    return this.#paint(color, (x, y) => y <= curve(x))
  }

  /** Paints the fields whose center is inside. */
  #paint(color: number, isInside: (x: number, y: number) => boolean): this {
    for (let row = 0; row < this.rows; row++) {
      const y = this.#top - (row + 0.5) * this.#size
      for (let column = 0; column < this.columns; column++) {
        if (isInside(this.#left + (column + 0.5) * this.#size, y)) this.fields[row * this.columns + column] = color
      }
    }
    return this
  }
}
