import type { Parameter, ParameterViews } from '../policy.ts'

/** The parameters of a model, in the order of their declaration. */
export class ParameterList {
  readonly list: Parameter[] = []
  size = 0

  /** Declares a parameter. Returns its index in the list. */
  add(name: string, shape: readonly number[]): number {
    this.list.push({ name, offset: this.size, shape })
    this.size += shape.reduce((product, side) => product * side, 1)
    return this.list.length - 1
  }

  /** Views of a column as long as the weights, in the order of the list. */
  view(column: Float32Array): ParameterViews {
    return this.list.map(({ offset, shape }) =>
      column.subarray(offset, offset + shape.reduce((product, side) => product * side, 1)),
    )
  }
}
