/**
 * The contract of layers, of which stacks are made: they convert blocks of rows, in one thread, and gradients by their outputs into
 * gradients by their weights and inputs.
 */
import type { Columns, Plan } from '../../components/column.ts'
import type { ImageFilters } from '../../kernels/bind.ts'
import type { Kernels } from '../../kernels/kernels.ts'
import type { ParameterViews } from '../policy.ts'

/** A weight that starts orthogonal, times `gain`: its index in the list of parameters, and its sizes as a matrix. */
export interface Matrix {
  readonly weight: number
  readonly numInputs: number
  readonly numOutputs: number
  readonly gain: number
}

/** A layer with its parameters, before there is memory. */
export interface LayerShape {
  readonly numInputs: number
  readonly numOutputs: number
  /** The activation of its outputs. Gradients by them arrive multiplied by its derivative. */
  readonly activation: number
  /** Its weights, in the order of their parameters; all other parameters start at 0. */
  readonly matrices: readonly Matrix[]
  /** Whether it is y = activation(x · W + b) alone, with the bias after the weight. */
  readonly isDense?: true
  /** The index of a parameter that starts at 1: a norm's weight. Its bias is the next one. */
  readonly norm?: number
  /** A convolution's images and filters. */
  readonly image?: ImageFilters
  /** Elements of the workspace that the layers of a thread share. */
  scratch(blockRows: number): number
  /** Its own columns, for blocks of so many rows. */
  plan?(blockRows: number): Plan
  bind(parts: LayerParts): Layer
}

/** The columns and kernels of a bound layer. */
export interface LayerParts {
  readonly weights: ParameterViews
  readonly columns: Columns<Plan>
  readonly scratch: Float32Array
  readonly kernels: Kernels
}

/** How the rows of a block follow one another: `length` steps of each lane, one lane after another. */
export interface Steps {
  readonly numLanes: number
  readonly length: number
  /** The recorded memory of each row, `memoryWidth` elements a row, from row `memoryFrom`. */
  readonly memory: Float32Array
  readonly memoryWidth: number
  readonly memoryFrom: number
  /** Per row: 1 if the memory continues from the previous row, 0 if it is the recorded one; empty if none continues. */
  readonly continues: Uint8Array
  /** Whether a lane's first row may continue from what `carry` kept. */
  readonly isCarried: boolean
}

/** A bound layer. */
export interface Layer {
  /** Computes outputs for `count` rows of x from row `xFrom`, into y from row `yFrom` on. */
  forward(y: Float32Array, x: Float32Array, count: number, yFrom: number, xFrom: number, steps: Steps | null): void
  /**
   * Backpropagates dy, the gradient by the pre-activations of the last `forward`. Adds the gradient by the weights to `gradient`, unless it
   * is null. Writes the gradient by the rows of x, times the derivative of the activation that produced them, to dx, unless it is null;
   * with `accumulate`, adds it to dx.
   */
  backward(
    dy: Float32Array,
    x: Float32Array,
    count: number,
    xFrom: number,
    gradient: ParameterViews | null,
    dx: Float32Array | null,
    accumulate: boolean,
    activation: number,
  ): void
}

/** A layer with a memory, before there is one. */
export interface CellShape extends LayerShape {
  /** Elements of a lane's memory, and their place in that of the policy. */
  readonly memoryWidth: number
  readonly memoryAt: number
  bind(parts: LayerParts): Cell
}

/** A bound layer with a memory. */
export interface Cell extends Layer {
  /** Writes the memory after the last `forward` of single steps into that of the policy, from row `from`. */
  remember(memory: Float32Array, memoryWidth: number, from: number): void
  /** Keeps each lane's memory after the last `forward`, from which the next one may continue. */
  carry(): void
}
