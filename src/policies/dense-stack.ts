/** Dense layers one over another, at work on blocks of rows in one thread: what networks of values are made of. */
import type { Random } from '../base/random.ts'
import { type Columns, column, type Plan } from '../components/column.ts'
import { Activation } from '../kernels/bind.ts'
import type { Kernels } from '../kernels/kernels.ts'
import { orthogonal } from './orthogonal.ts'
import { BLOCK_ROWS, type Parameter, type ParameterViews } from './policy.ts'

/** One layer: the places of its weight and bias in the list of parameters, its sizes, its activation and its starting gain. */
interface StackLayer {
  readonly weight: number
  readonly bias: number
  readonly numInputs: number
  readonly numOutputs: number
  readonly activation: number
  readonly gain: number
}

/** The layers of a network and their parameters, before there is memory. */
export interface StackShape {
  readonly layers: readonly StackLayer[]
}

/** The parameters of a model, as they are declared one after another. */
export class ParameterList {
  readonly list: Parameter[] = []
  size = 0

  /** Declares a parameter. Returns its place in the list. */
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

/** Declares hidden layers of the given sizes, with `activation`, and a linear head whose weights begin with gain `headGain`. */
export function stackShape(
  parameters: ParameterList,
  name: string,
  sizes: { readonly numInputs: number; readonly hidden: readonly number[]; readonly numOutputs: number },
  activation: 'tanh' | 'relu',
  headGain: number,
): StackShape {
  let { numInputs } = sizes
  const widths = [...sizes.hidden, sizes.numOutputs]
  const layers = widths.map((numOutputs, i) => {
    const isHead = i === widths.length - 1
    const layerName = `${name}.${isHead ? 'head' : i}`
    const layer = {
      weight: parameters.add(`${layerName}.weight`, [numInputs, numOutputs]),
      bias: parameters.add(`${layerName}.bias`, [numOutputs]),
      ...{ numInputs, numOutputs },
      activation: isHead ? Activation.linear : Activation[activation],
      gain: isHead ? headGain : Math.SQRT2,
    }
    numInputs = numOutputs
    return layer
  })
  return { layers }
}

/** Starting weights: orthogonal, biases 0. `key` and the layer's number key them. */
export function initializeStack(
  { layers }: StackShape,
  views: ParameterViews,
  random: Random,
  key: number,
  first = 0,
): void {
  for (const [i, { weight, bias, numInputs, numOutputs, gain }] of layers.entries()) {
    orthogonal(views[weight]!, numInputs, numOutputs, gain, random, key, first + i)
    views[bias]!.fill(0)
  }
}

/** What one thread needs for a block of rows. */
export function stackPlan({ layers }: StackShape) {
  const widest = Math.max(...layers.map(({ numInputs, numOutputs }) => Math.max(numInputs, numOutputs)))
  return {
    /** What each layer gives. */
    outputs: Object.fromEntries(
      layers.map(({ numOutputs }, i) => [`layer${i}`, column('f32', BLOCK_ROWS, numOutputs)] as const),
    ),
    /** Gradients by two neighboring layers, in turn. */
    dLayer0: column('f32', BLOCK_ROWS, widest),
    dLayer1: column('f32', BLOCK_ROWS, widest),
    /** A transposed weight, and a row of zeros. */
    transposed: column('f32', Math.max(...layers.map(({ numInputs, numOutputs }) => (numOutputs + 1) * numInputs))),
  } satisfies Plan
}

/** Layers at work. */
export class DenseStack {
  readonly #layers: readonly StackLayer[]
  readonly #weights: ParameterViews
  readonly #columns: Columns<ReturnType<typeof stackPlan>>
  readonly #outputs: readonly Float32Array[]
  readonly #kernels: Kernels

  constructor(
    { layers }: StackShape,
    weights: ParameterViews,
    columns: Columns<ReturnType<typeof stackPlan>>,
    kernels: Kernels,
  ) {
    this.#layers = layers
    this.#weights = weights
    this.#columns = columns
    this.#outputs = Object.values(columns.outputs)
    this.#kernels = kernels
  }

  /** What the last layer gives of rows from … from + count of `x`, ≤ BLOCK_ROWS, from row 0 on; the next call overwrites it. */
  forward(x: Float32Array, from: number, count: number): Float32Array {
    const outputs = this.#outputs
    for (let i = 0; i < this.#layers.length; i++) {
      const { weight, bias, numInputs, numOutputs, activation } = this.#layers[i]!
      const [w, b] = [this.#weights[weight]!, this.#weights[bias]!]
      const [input, first] = i === 0 ? [x, from] : [outputs[i - 1]!, 0]
      this.#kernels.denseForward(outputs[i]!, input, w, b, count, numInputs, numOutputs, activation, 0, first)
    }
    return outputs.at(-1)!
  }

  /**
   * From the gradient `dy` by what the last `forward` gave of these rows of `x` to that by the weights, which is added to
   * `gradient` where that is not null. Returns the gradient by `x`, from row 0 on, where `hasInputs`; the next call overwrites it.
   */
  backward(
    dy: Float32Array,
    x: Float32Array,
    from: number,
    count: number,
    gradient: ParameterViews | null,
    hasInputs = false,
  ): Float32Array {
    const { dLayer0, dLayer1, transposed } = this.#columns
    let above = dy
    for (let i = this.#layers.length - 1; i >= 0; i--) {
      const { weight, bias, numInputs, numOutputs } = this.#layers[i]!
      const [input, first] = i === 0 ? [x, from] : [this.#outputs[i - 1]!, 0]
      if (gradient !== null) {
        const [dWeight, dBias] = [gradient[weight]!, gradient[bias]!]
        this.#kernels.denseBackwardWeights(dWeight, dBias, above, input, count, numInputs, numOutputs, first)
      }
      if (i === 0 && !hasInputs) break
      const below = above === dLayer0 ? dLayer1 : dLayer0
      const w = this.#weights[weight]!
      // Inputs of the first layer came out of no activation.
      const activation = i === 0 ? Activation.linear : this.#layers[i - 1]!.activation
      const y = i === 0 ? below : input
      this.#kernels.denseBackwardInput(below, above, w, transposed, y, count, numInputs, numOutputs, false, activation)
      above = below
    }
    return above
  }
}
