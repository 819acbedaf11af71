/** Observations as a network takes them: as they are, or each of their numbers at mean 0 and deviation 1. */
import { type Columns, column, type Plan } from '../components/column.ts'
import type { Kernels } from '../kernels/bind.ts'
import { BLOCK_ROWS } from './policy.ts'

/** Numbers beyond this many deviations are taken as if they were there, as in Stable-Baselines3 and CleanRL. */
export const INPUT_CLIP = 10

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

  constructor(
    width: number,
    moments: { readonly center: Float32Array; readonly deviation: Float32Array } | null,
    columns: Columns<ReturnType<typeof inputsPlan>>,
    kernels: Kernels,
  ) {
    this.#width = width
    this.#moments = moments
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

  /** Where row `from` of observations stands in what `read` gives. */
  at(from: number): number {
    return this.#moments === null ? from : 0
  }
}
