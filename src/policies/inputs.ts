/** A network's observations: unchanged, widened from bytes, or with each number normalized to mean 0 and deviation 1. */
import { assert } from '../base/errors.ts'
import { boolean } from '../base/settings.ts'
import { type Columns, column, type Plan } from '../components/column.ts'
import type { ObservationColumn } from '../components/observation.ts'
import type { Kernels } from '../kernels/kernels.ts'
import type { ParameterViews } from './policy.ts'
import type { ParameterList } from './stack/parameters.ts'

/** Normalized numbers are clipped to this many deviations, as in Stable-Baselines3 and CleanRL. */
const INPUT_CLIP = 10

/** The setting that enables normalization. */
export const normalizeObservations = boolean(
  false,
  'normalize each number of an observation to mean 0 and deviation 1 over the training, and clip it to ±10',
)

/** Indices of the means and deviations in the list of parameters; they are the last ones, and training writes them. */
export interface InputMoments {
  readonly center: number
  readonly deviation: number
  /** Normalized inputs are between −clip and clip. */
  readonly clip: number
}

/** What a network reads. */
export interface InputShape {
  readonly numInputs: number
  /** Whether observations are stored as bytes. */
  readonly areBytes: boolean
  /** Indices of their means and deviations in the list of parameters; null without normalization. */
  readonly inputs: InputMoments | null
}

/** Declares them after all other parameters. */
export function addInputMoments(parameters: ParameterList, width: number): InputMoments {
  return {
    center: parameters.add('observation.center', [width]),
    deviation: parameters.add('observation.deviation', [width]),
    clip: INPUT_CLIP,
  }
}

/** Plans one thread's columns for a block of rows; empty for observations of f32 without normalization. */
export function inputsPlan({ numInputs, areBytes, inputs }: InputShape, blockRows: number) {
  return { block: column('f32', areBytes || inputs !== null ? blockRows : 0, numInputs) } satisfies Plan
}

/** The observations of a block of rows, for one thread. */
export class Inputs {
  readonly #width: number
  /** Per number; null without normalization. */
  readonly #moments: { readonly center: Float32Array; readonly deviation: Float32Array } | null
  /** The inputs of a block of rows, where they are not the observations themselves. */
  readonly #block: Float32Array
  readonly #kernels: Kernels

  #isCopied = false

  /** For a network over these parameters. */
  constructor(
    { numInputs, inputs: moments }: InputShape,
    parameters: ParameterViews,
    columns: Columns<ReturnType<typeof inputsPlan>>,
    kernels: Kernels,
  ) {
    this.#width = numInputs
    this.#moments = moments && { center: parameters[moments.center]!, deviation: parameters[moments.deviation]! }
    this.#block = columns.block
    this.#kernels = kernels
  }

  /** Returns the network's inputs for rows from … from + count, at most a block: from row `at(from)` on, valid until the next call. */
  read(observation: ObservationColumn, from: number, count: number): Float32Array {
    const moments = this.#moments
    const isFloat = observation instanceof Float32Array
    this.#isCopied = !isFloat || moments !== null
    if (isFloat && moments === null) return observation
    const block = this.#block
    const width = this.#width
    assert(block.length >= count * width, 'a network for observations of f32 reads no bytes')
    if (!isFloat) this.#kernels.widenBytes(block, observation, from * width, count * width)
    if (moments !== null) {
      const [x, first] = isFloat ? [observation, from] : [block, 0]
      this.#kernels.normalizeRows(block, x, moments.center, moments.deviation, INPUT_CLIP, count, width, first)
    }
    return block
  }

  /** The index of observation row `from` in the result of the last `read`. */
  at(from: number): number {
    return this.#isCopied ? 0 : from
  }
}
