/** Stacks of dense layers on blocks of rows, in one thread, from which policies build their networks. */
import type { Random } from '../base/random.ts'
import { type Columns, column, type Plan } from '../components/column.ts'
import { Activation } from '../kernels/bind.ts'
import type { Kernels } from '../kernels/kernels.ts'
import { orthogonal } from './orthogonal.ts'
import { BLOCK_ROWS, type Parameter, type ParameterViews } from './policy.ts'

/** One layer: the indices of its weight and bias in the list of parameters, its sizes, activation and initial gain. */
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

/**
 * Declares hidden layers of the given sizes, with `activation`, and with `numOutputs` a head, linear by default, whose initial weights
 * have gain `headGain`.
 */
export function stackShape(
  parameters: ParameterList,
  name: string,
  sizes: { readonly numInputs: number; readonly hidden: readonly number[]; readonly numOutputs?: number },
  activation: 'tanh' | 'relu',
  headGain = 1,
  headActivation: number = Activation.linear,
): StackShape {
  let { numInputs } = sizes
  const widths = sizes.numOutputs === undefined ? sizes.hidden : [...sizes.hidden, sizes.numOutputs]
  const layers = widths.map((numOutputs, i) => {
    const isHead = i === sizes.hidden.length
    const layerName = `${name}.${isHead ? 'head' : i}`
    const layer = {
      weight: parameters.add(`${layerName}.weight`, [numInputs, numOutputs]),
      bias: parameters.add(`${layerName}.bias`, [numOutputs]),
      ...{ numInputs, numOutputs },
      activation: isHead ? headActivation : Activation[activation],
      gain: isHead ? headGain : Math.SQRT2,
    }
    numInputs = numOutputs
    return layer
  })
  return { layers }
}

/** Initializes stacks one after another: orthogonal weights, biases 0. Random numbers are keyed by `key` and the layer's number. */
export function initializeStacks(
  stacks: readonly StackShape[],
  views: ParameterViews,
  random: Random,
  key: number,
): void {
  for (const [i, layer] of stacks.flatMap(({ layers }) => layers).entries()) {
    orthogonal(views[layer.weight]!, layer.numInputs, layer.numOutputs, layer.gain, random, key, i)
    views[layer.bias]!.fill(0)
  }
}

/** Plans the outputs of each layer, for one thread and a block of rows. */
export function stackPlan({ layers }: StackShape) {
  return Object.fromEntries(
    layers.map(({ numOutputs }, i) => [`layer${i}`, column('f32', BLOCK_ROWS, numOutputs)] as const),
  ) satisfies Plan
}

/** Plans one thread's workspace for the gradients of stacks, one stack at a time. */
export function gradientPlan(stacks: readonly StackShape[]) {
  const layers = stacks.flatMap((stack) => stack.layers)
  const widest = Math.max(...layers.map(({ numOutputs }) => numOutputs))
  return {
    /** Gradients by the outputs of two neighboring layers, alternating. */
    dLayer0: column('f32', BLOCK_ROWS, widest),
    dLayer1: column('f32', BLOCK_ROWS, widest),
    /** A transposed weight, and a row of zeros. */
    transposed: column('f32', Math.max(...layers.map(({ numInputs, numOutputs }) => (numOutputs + 1) * numInputs))),
  } satisfies Plan
}

/** Where to write a stack's gradient by its inputs, and how the inputs were computed. */
export interface InputGradient {
  readonly dx: Float32Array
  /** Whether to add it to the existing values. */
  readonly accumulate: boolean
  /** The activation that produced the inputs; linear if there was none. */
  readonly activation: number
}

/** A bound stack of layers. */
export class DenseStack {
  readonly #layers: readonly StackLayer[]
  readonly #weights: ParameterViews
  readonly #outputs: readonly Float32Array[]
  readonly #columns: Columns<ReturnType<typeof gradientPlan>>
  readonly #kernels: Kernels

  constructor(
    { layers }: StackShape,
    weights: ParameterViews,
    outputs: Columns<ReturnType<typeof stackPlan>>,
    columns: Columns<ReturnType<typeof gradientPlan>>,
    kernels: Kernels,
  ) {
    this.#layers = layers
    this.#weights = weights
    this.#outputs = Object.values(outputs)
    this.#columns = columns
    this.#kernels = kernels
  }

  /**
   * Computes the last layer's outputs for rows from … from + count of `x`, ≤ BLOCK_ROWS, into `y` from row `yFrom` on; by default into a
   * column that the next call overwrites.
   */
  forward(x: Float32Array, from: number, count: number, y = this.#outputs.at(-1)!, yFrom = 0): Float32Array {
    const last = this.#layers.length - 1
    for (let i = 0; i <= last; i++) {
      const { weight, bias, numInputs, numOutputs, activation } = this.#layers[i]!
      const w = this.#weights[weight]!
      const b = this.#weights[bias]!
      const input = i === 0 ? x : this.#outputs[i - 1]!
      const first = i === 0 ? from : 0
      const output = i === last ? y : this.#outputs[i]!
      const row = i === last ? yFrom : 0
      this.#kernels.denseForward(output, input, w, b, count, numInputs, numOutputs, activation, row, first)
    }
    return y
  }

  /**
   * Backpropagates `dy`, the gradient by the last layer's pre-activations in the last `forward` of these rows of `x`. Adds the weights'
   * gradient to `gradient` unless it is null, and computes the gradient by `x` on request.
   */
  backward(
    dy: Float32Array,
    x: Float32Array,
    from: number,
    count: number,
    gradient: ParameterViews | null,
    inputs: InputGradient | null = null,
  ): void {
    const { dLayer0, dLayer1, transposed } = this.#columns
    let above = dy
    for (let i = this.#layers.length - 1; i >= 0; i--) {
      const { weight, bias, numInputs, numOutputs } = this.#layers[i]!
      const input = i === 0 ? x : this.#outputs[i - 1]!
      const first = i === 0 ? from : 0
      if (gradient !== null) {
        const dWeight = gradient[weight]!
        const dBias = gradient[bias]!
        this.#kernels.denseBackwardWeights(dWeight, dBias, above, input, count, numInputs, numOutputs, first)
      }
      if (i === 0 && inputs === null) return
      const w = this.#weights[weight]!
      const add = i === 0 && inputs!.accumulate
      const activation = i === 0 ? inputs!.activation : this.#layers[i - 1]!.activation
      const below = i === 0 ? inputs!.dx : above === dLayer0 ? dLayer1 : dLayer0
      this.#kernels.denseBackwardInput(
        below,
        above,
        w,
        transposed,
        input,
        count,
        numInputs,
        numOutputs,
        add,
        activation,
      )
      above = below
    }
  }
}
