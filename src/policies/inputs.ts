/** Observations as a network takes them: as they are, or each of their numbers at mean 0 and deviation 1. */
import { boolean } from '../base/settings.ts'
import { type Columns, column, type Plan } from '../components/column.ts'
import type { Kernels } from '../kernels/kernels.ts'
import type { ParameterList } from './dense-stack.ts'
import { BLOCK_ROWS, type ParameterViews } from './policy.ts'

/** Numbers beyond this many deviations are taken as if they were there, as in Stable-Baselines3 and CleanRL. */
export const INPUT_CLIP = 10

/** Whether a network does it. */
export const normalizeObservations = boolean(
  false,
  'normalize each number of an observation to mean 0 and deviation 1 over the training, and clip it to ±10',
)

/** Places of the means and of the deviations in the list of parameters; they are its last, where training writes them. */
export interface InputMoments {
  readonly center: number
  readonly deviation: number
}

/** Declares them, behind all other parameters. */
export function addInputMoments(parameters: ParameterList, width: number): InputMoments {
  return {
    center: parameters.add('observation.center', [width]),
    deviation: parameters.add('observation.deviation', [width]),
  }
}

/** What one thread needs for a block of rows; nothing where observations are taken as they are. */
export function inputsPlan(width: number, isNormalized: boolean) {
  return { normalized: column('f32', isNormalized ? BLOCK_ROWS : 0, width) } satisfies Plan
}

/** The observations of a block of rows, for one thread. */
export class Inputs {
  readonly #width: number
  /** Of each number; null where they are taken as they are. */
  readonly #moments: { readonly center: Float32Array; readonly deviation: Float32Array } | null
  readonly #normalized: Float32Array
  readonly #kernels: Kernels

  /** Of a network over these parameters; `moments` is null where observations are taken as they are. */
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

  /** Rows from … from + count of observations, ≤ BLOCK_ROWS, as the network takes them: from row `at(from)` on, until the next call. */
  read(observation: Float32Array, from: number, count: number): Float32Array {
    if (this.#moments === null) return observation
    const { center, deviation } = this.#moments
    const normalized = this.#normalized
    this.#kernels.normalizeRows(normalized, observation, center, deviation, INPUT_CLIP, count, this.#width, from)
    return normalized
  }

  /** The index of row `from` of observations in the result of `read`. */
  at(from: number): number {
    return this.#moments === null ? from : 0
  }
}
