/** Trained weights in one array, with the optimizer's state and gradient. */
import { InputError } from '../base/errors.ts'
import type { Kernels } from '../kernels/kernels.ts'
import { sizeOf } from '../language/transformer/parameters.ts'
import type { Parameter } from '../policies/policy.ts'
import { isOfTensors } from './optimizers/define-optimizer.ts'
import {
  decayingParts,
  type OptimizerColumns,
  type OptimizerSettings,
  optimizerOf,
  optimizerStep,
  powersAfter,
  startOptimizer,
  type TrainedPart,
} from './optimizers/optimizer.ts'
import { stepTensors } from './optimizers/tensors.ts'

/** The columns besides the weights. */
export interface TrainedColumns {
  /** The last gradient, in the first weights.length elements. */
  readonly gradient: Float32Array
  readonly optimizer: OptimizerColumns & { readonly workspace?: Float32Array }
  /** The initial weights; empty if not needed. */
  readonly reference: Float32Array
}

export class TrainedArray {
  readonly weights: Float32Array
  readonly gradient: Float32Array
  readonly #columns: TrainedColumns
  readonly #kernels: Kernels
  readonly #parameters: readonly Parameter[]
  readonly #parts: readonly TrainedPart[]

  /**
   * Of `parameters`, matrices decay; without parameters, all weights do.
   * @throws InputError for more weights than kernels count.
   */
  constructor(weights: Float32Array, columns: TrainedColumns, kernels: Kernels, parameters: readonly Parameter[] = []) {
    if (weights.length >= 2 ** 31) {
      const expected = 'fewer than 2,147,483,648: an adapter (languageModel.loraRank)'
      throw new InputError('trained weights', String(weights.length), expected)
    }
    this.weights = weights
    this.gradient = columns.gradient.subarray(0, weights.length)
    this.#columns = columns
    this.#kernels = kernels
    this.#parameters = parameters
    this.#parts = decayingParts(parameters)
  }

  /** Starts from the current weights: copies them to the reference and resets the optimizer. */
  start(): void {
    const { reference, optimizer } = this.#columns
    if (reference.length > 0) reference.set(this.weights)
    for (const moment of [optimizer.moment, optimizer.squareMoment]) moment.fill(0)
    startOptimizer(optimizer)
  }

  /**
   * Makes one optimizer step with the gradient, clipped to the norm `maxNorm`. Returns the norm before clipping, without frozen parameters.
   * @throws InputError for a gradient that is not finite, before the weights change.
   */
  descend(settings: OptimizerSettings, learningRate: number, maxNorm: number): number {
    const { gradient } = this
    for (const parameter of this.#parameters) {
      if (parameter.isFrozen) gradient.fill(0, parameter.offset, parameter.offset + sizeOf(parameter))
    }
    const norm = this.#kernels.globalNorm(gradient, gradient.length)
    if (!Number.isFinite(norm)) {
      const expected = 'a finite norm: try a smaller learningRate or smaller rewards'
      throw new InputError('gradient', `a norm of ${norm}`, expected)
    }
    const scale = Math.min(1, maxNorm / (norm + 1e-6))
    const { optimizer } = this.#columns
    const powers: number[] = []
    powersAfter(powers, settings, optimizer)
    const { weights } = this
    const kernels = this.#kernels
    const stepping = optimizerOf(settings.optimizer, undefined, true)
    if (isOfTensors(stepping)) {
      const { moment, squareMoment, workspace = weights.subarray(0, 0) } = optimizer
      const given = { weights, moment, squareMoment, gradient, gradientScale: scale, learningRate, settings, powers }
      stepTensors(stepping, this.#parameters, { ...given, kernels, workspace })
    } else optimizerStep(settings, optimizer, powers, kernels, weights, gradient, scale, learningRate, this.#parts)
    optimizer.betaPowers.set(powers)
    return norm
  }

  /** The state columns to save, by name. */
  kept(): Record<string, Float32Array | Float64Array> {
    const { reference, optimizer } = this.#columns
    const { workspace: _, ...state } = optimizer
    const columns = { trained: this.weights, reference, ...state }
    return Object.fromEntries(Object.entries(columns).filter(([, { length }]) => length > 0))
  }
}
