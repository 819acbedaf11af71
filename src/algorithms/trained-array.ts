/** Weights in one array that an optimizer changes, with what goes on from one step to the next beside them. */
import { InputError } from '../base/errors.ts'
import type { Kernels } from '../kernels/kernels.ts'
import {
  type OptimizerColumns,
  type OptimizerSettings,
  optimizerStep,
  powersAfter,
  startOptimizer,
  type TrainedPart,
} from './optimizers/optimizer.ts'

/** The columns beside the weights. */
export interface TrainedColumns {
  /** The gradient that was made last, in as many first elements as there are weights. */
  readonly gradient: Float32Array
  readonly optimizer: OptimizerColumns
  /** The weights as they were at the start; no elements where nobody compares with them. */
  readonly reference: Float32Array
}

export class TrainedArray {
  readonly weights: Float32Array
  readonly gradient: Float32Array
  readonly #columns: TrainedColumns
  readonly #kernels: Kernels
  readonly #parts: readonly TrainedPart[]

  /** `parts` say which weights decay; all do where there are none. */
  constructor(weights: Float32Array, columns: TrainedColumns, kernels: Kernels, parts: readonly TrainedPart[] = []) {
    this.weights = weights
    this.gradient = columns.gradient.subarray(0, weights.length)
    this.#columns = columns
    this.#kernels = kernels
    this.#parts = parts
  }

  /** Begins with the weights as they stand: they are the reference, and the optimizer has taken no step. */
  start(): void {
    const { reference, optimizer } = this.#columns
    if (reference.length > 0) reference.set(this.weights)
    for (const moment of [optimizer.moment, optimizer.squareMoment]) moment.fill(0)
    startOptimizer(optimizer)
  }

  /**
   * One optimizer step against the gradient, which is first brought down to the norm `maxNorm`; returns its norm before.
   * The optimizer is that of the columns' plan.
   * @throws InputError for a gradient that is not finite, before the weights are touched.
   */
  descend(settings: OptimizerSettings, learningRate: number, maxNorm: number): number {
    const { gradient } = this
    const norm = this.#kernels.globalNorm(gradient, gradient.length)
    if (!Number.isFinite(norm)) {
      throw new InputError('gradient', `a norm of ${norm}`, 'a finite one: a smaller learningRate, or smaller rewards')
    }
    const scale = Math.min(1, maxNorm / (norm + 1e-6))
    const { optimizer } = this.#columns
    const powers = powersAfter(settings, optimizer)
    optimizerStep(settings, optimizer, powers, this.#kernels, this.weights, gradient, scale, learningRate, this.#parts)
    optimizer.betaPowers.set(powers)
    return norm
  }

  /** The columns that go on from one step to the next, by name. */
  kept(): Record<string, Float32Array | Float64Array> {
    const { reference, optimizer } = this.#columns
    const columns = { trained: this.weights, reference, ...optimizer }
    return Object.fromEntries(Object.entries(columns).filter(([, { length }]) => length > 0))
  }
}
