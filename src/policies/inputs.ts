/** A network's observations: unchanged, or with each number normalized to mean 0 and deviation 1. */
import { boolean } from '../base/settings.ts'
import { type Columns, column, type Plan } from '../components/column.ts'
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

/** Declares them after all other parameters. */
export function addInputMoments(parameters: ParameterList, width: number): InputMoments {
  return {
    center: parameters.add('observation.center', [width]),
    deviation: parameters.add('observation.deviation', [width]),
    clip: INPUT_CLIP,
  }
}

/** Plans one thread's columns for a block of rows; empty without normalization. */
export function inputsPlan(width: number, isNormalized: boolean, blockRows: number) {
  return { normalized: column('f32', isNormalized ? blockRows : 0, width) } satisfies Plan
}

/** The observations of a block of rows, for one thread. */
export class Inputs {
  readonly #width: number
  /** Per number; null without normalization. */
  readonly #moments: { readonly center: Float32Array; readonly deviation: Float32Array } | null
  readonly #normalized: Float32Array
  readonly #kernels: Kernels

  /** For a network over these parameters; `moments` is null without normalization. */
  constructor(
    width: number,
    moments: InputMoments | null,
    parameters: ParameterViews,
    columns: Columns<ReturnType<typeof inputsPlan>>,
    kernels: Kernels,
  ) {
    this.#width = width
    this.#moments = moments && { center: parameters[moments.center]!, deviation: parameters[moments.deviation]! }
    this.#normalized = columns.normalized
    this.#kernels = kernels
  }

  /** Returns the network's inputs for rows from … from + count, at most a block: from row `at(from)` on, valid until the next call. */
  read(observation: Float32Array, from: number, count: number): Float32Array {
    if (this.#moments === null) return observation
    const { center, deviation } = this.#moments
    const normalized = this.#normalized
    this.#kernels.normalizeRows(normalized, observation, center, deviation, INPUT_CLIP, count, this.#width, from)
    return normalized
  }

  /** The index of observation row `from` in the result of `read`. */
  at(from: number): number {
    return this.#moments === null ? from : 0
  }
}
