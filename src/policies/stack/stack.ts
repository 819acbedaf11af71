/** Stacks of layers on blocks of rows, in one thread, from which policies build their networks. */
import type { Random } from '../../base/random.ts'
import { type Columns, column, type Plan } from '../../components/column.ts'
import { Activation } from '../../kernels/bind.ts'
import type { Kernels } from '../../kernels/kernels.ts'
import { orthogonal } from '../orthogonal.ts'
import type { ParameterViews } from '../policy.ts'
import type { Cell, CellShape, Layer, LayerShape, Steps } from './layer.ts'
import { normShape } from './norm.ts'
import type { ParameterList } from './parameters.ts'

/** The layers of a network and their parameters, before there is memory. */
export interface StackShape {
  readonly layers: readonly LayerShape[]
  /** The layer with a memory; null if there is none. */
  readonly cell: CellShape | null
}

/** Declares layers whose parameters' names begin with `name`. */
export type MakeLayers = (parameters: ParameterList, name: string) => readonly LayerShape[]
/** Declares a cell and the layer below it; `memoryAt` is the place of the cell's memory in that of the policy. */
export type MakeCell = (
  parameters: ParameterList,
  name: string,
  numInputs: number,
  memoryAt: number,
) => readonly [LayerShape, CellShape]

/** The layers below a head: first ones, then dense layers, then a recurrent cell. A network brings those that not all have. */
export interface StackOptions {
  /** The layers that see the observations, such as convolutions or embeddings; none by default. */
  readonly first?: MakeLayers
  /** Units of each dense layer. */
  readonly hidden: readonly number[]
  readonly activation: 'tanh' | 'relu'
  /** A LayerNorm between each dense layer and its activation. */
  readonly layerNorm?: boolean
  /** A recurrent cell; none by default. */
  readonly cell?: MakeCell | null
  readonly memoryAt?: number
}

/** Declares the layers of a stack, and with `numOutputs` a head whose initial weights have gain `headGain`, linear by default. */
export function stackShape(
  parameters: ParameterList,
  name: string,
  sizes: { readonly numInputs: number; readonly numOutputs?: number },
  options: StackOptions,
  headGain = 1,
  headActivation: number = Activation.linear,
): StackShape {
  const { first, hidden, layerNorm = false, cell: makeCell = null, memoryAt = 0 } = options
  const activation = Activation[options.activation]
  const layers: LayerShape[] = [...(first?.(parameters, name) ?? [])]
  const width = () => layers.at(-1)?.numOutputs ?? sizes.numInputs
  for (const [i, numOutputs] of hidden.entries()) {
    const below = layerNorm ? Activation.linear : activation
    layers.push(denseShape(parameters, `${name}.${i}`, width(), numOutputs, below, Math.SQRT2))
    if (layerNorm) layers.push(normShape(parameters, `${name}.${i}`, numOutputs, activation))
  }
  const made = makeCell?.(parameters, name, width(), memoryAt)
  if (made !== undefined) layers.push(...made)
  if (sizes.numOutputs !== undefined) {
    layers.push(denseShape(parameters, `${name}.head`, width(), sizes.numOutputs, headActivation, headGain))
  }
  return { layers, cell: made?.[1] ?? null }
}

/** Initializes stacks one after another: orthogonal weights, 1 for those of norms, all else 0. Random numbers are keyed by `key` and the matrix's number. */
export function initializeStacks(
  stacks: readonly StackShape[],
  views: ParameterViews,
  random: Random,
  key: number,
): void {
  for (const { norm } of stacks.flatMap(({ layers }) => layers)) if (norm !== undefined) views[norm]!.fill(1)
  const matrices = stacks.flatMap(({ layers }) => layers.flatMap((layer) => layer.matrices))
  for (const [i, { weight, numInputs, numOutputs, gain }] of matrices.entries()) {
    orthogonal(views[weight]!, numInputs, numOutputs, gain, random, key, i)
  }
}

/** Plans the columns of each layer, for one thread and a block of rows. */
export function stackPlan({ layers }: StackShape, blockRows: number) {
  return {
    outputs: Object.fromEntries(
      layers.map(({ numOutputs }, i) => [`layer${i}`, column('f32', blockRows, numOutputs)] as const),
    ),
    own: Object.fromEntries(layers.map((layer, i) => [`layer${i}`, layer.plan?.(blockRows) ?? {}] as const)),
  } satisfies Plan
}

/** Plans one thread's workspace for stacks, one stack at a time. */
export function workPlan(stacks: readonly StackShape[], blockRows: number) {
  const layers = stacks.flatMap((stack) => stack.layers)
  const widest = Math.max(...layers.map(({ numOutputs }) => numOutputs))
  return {
    /** Gradients by the outputs of two neighboring layers, alternating. */
    dLayer0: column('f32', blockRows, widest),
    dLayer1: column('f32', blockRows, widest),
    scratch: column('f32', Math.max(...layers.map((layer) => layer.scratch(blockRows)))),
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
export class Stack {
  readonly #shapes: readonly LayerShape[]
  readonly #layers: readonly Layer[]
  readonly #outputs: readonly Float32Array[]
  readonly #work: Columns<ReturnType<typeof workPlan>>
  /** The layer with a memory; null if there is none. */
  readonly cell: Cell | null

  constructor(
    { layers, cell }: StackShape,
    weights: ParameterViews,
    columns: Columns<ReturnType<typeof stackPlan>>,
    work: Columns<ReturnType<typeof workPlan>>,
    kernels: Kernels,
  ) {
    const own = Object.values(columns.own)
    this.#shapes = layers
    this.#layers = layers.map((layer, i) =>
      layer.bind({ weights, columns: own[i] as Columns<Plan>, scratch: work.scratch, kernels }),
    )
    this.#outputs = Object.values(columns.outputs)
    this.#work = work
    this.cell = cell && (this.#layers[layers.indexOf(cell)] as Cell)
  }

  /**
   * Computes the last layer's outputs for rows from … from + count of `x`, at most a block, into `y` from row `yFrom` on; by default into a
   * column that the next call overwrites. A stack with a memory needs `steps`.
   */
  forward(
    x: Float32Array,
    from: number,
    count: number,
    y = this.#outputs.at(-1)!,
    yFrom = 0,
    steps: Steps | null = null,
  ): Float32Array {
    const last = this.#layers.length - 1
    for (let i = 0; i <= last; i++) {
      const input = i === 0 ? x : this.#outputs[i - 1]!
      const first = i === 0 ? from : 0
      const output = i === last ? y : this.#outputs[i]!
      const row = i === last ? yFrom : 0
      this.#layers[i]!.forward(output, input, count, row, first, steps)
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
    const { dLayer0, dLayer1 } = this.#work
    let above = dy
    for (let i = this.#layers.length - 1; i > 0; i--) {
      const below = above === dLayer0 ? dLayer1 : dLayer0
      const { activation } = this.#shapes[i - 1]!
      this.#layers[i]!.backward(above, this.#outputs[i - 1]!, count, 0, gradient, below, false, activation)
      above = below
    }
    const { dx = null, accumulate = false, activation = Activation.linear } = inputs ?? {}
    this.#layers[0]!.backward(above, x, count, from, gradient, dx, accumulate, activation)
  }
}

/** A dense layer: y = activation(x · W + b). */
export function denseShape(
  parameters: ParameterList,
  name: string,
  numInputs: number,
  numOutputs: number,
  activation: number,
  gain: number,
): LayerShape {
  const weight = parameters.add(`${name}.weight`, [numInputs, numOutputs])
  const bias = parameters.add(`${name}.bias`, [numOutputs])
  return {
    ...{ numInputs, numOutputs, activation, isDense: true },
    matrices: [{ weight, numInputs, numOutputs, gain }],
    scratch: () => (numOutputs + 1) * numInputs, // The transposed weight, and a row of zeros.
    bind({ weights, scratch, kernels }) {
      const w = weights[weight]!
      const b = weights[bias]!
      return {
        forward(y, x, count, yFrom, xFrom) {
          kernels.denseForward(y, x, w, b, count, numInputs, numOutputs, activation, yFrom, xFrom)
        },
        backward(dy, x, count, xFrom, gradient, dx, accumulate, below) {
          if (gradient !== null) {
            const [dWeight, dBias] = [gradient[weight]!, gradient[bias]!]
            kernels.denseBackwardWeights(dWeight, dBias, dy, x, count, numInputs, numOutputs, xFrom)
          }
          if (dx !== null) {
            kernels.denseBackwardInput(dx, dy, w, scratch, x, count, numInputs, numOutputs, accumulate, below)
          }
        },
      }
    },
  }
}
