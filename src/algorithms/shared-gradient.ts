/** The contract of gradients that several processes compute. See `slots.ts` for their order. */
import type { Column } from '../components/column.ts'

/** Numbers of shares of a gradient. Each has equally many consecutive slots, which the order of the sum keeps together. */
export const shareCounts = [1, 2, 4, 8, 16] as const

/** Columns by name. `version` differs whenever their values do. */
export interface SharedInput {
  readonly version: string
  readonly columns: Readonly<Record<string, Column>>
}

/** A gradient that several processes can compute, a share each. */
export interface SharedGradient {
  readonly inputs: Readonly<Record<string, SharedInput>>
  /** What else it depends on. */
  readonly numbers: readonly number[]
  /** Number of shares that have slots. */
  readonly numShares: number
  /** Computes a share here. */
  compute(share: number): void | Promise<void>
  /** The columns that `compute` writes. */
  results(share: number): Readonly<Record<string, Column>>
}

/** The part of a learner by which a process computes shares of another one's gradients. */
export interface GradientHelp {
  /** The other process's inputs are written here. */
  readonly inputs: Readonly<Record<string, Readonly<Record<string, Column>>>>
  /** Computes one of `shareCount` shares, from the inputs and the numbers of a `SharedGradient`. Returns its results. */
  compute(numbers: readonly number[], share: number, shareCount: number): Promise<Readonly<Record<string, Column>>>
}

/** Processes that compute gradients together. The result has the same bits as one process's. */
export interface GradientPool {
  /** One of `shareCounts`. */
  readonly shareCount: number
  /** Settles when the results of all shares are in their columns. */
  compute(gradient: SharedGradient): Promise<void>
}
