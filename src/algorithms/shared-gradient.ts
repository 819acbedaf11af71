/** The contract of gradients that several processes compute. See `slot-shares.ts` for their order. */
import { InputError } from '../base/errors.ts'
import type { Column } from '../components/column.ts'

/** Numbers of shares of a gradient. Each has equally many consecutive slots, which the order of the sum keeps together. */
export const shareCounts = [1, 2, 4, 8, 16] as const

export type NamedColumns = Readonly<Record<string, Column>>

/** `version` differs whenever the columns' values do. */
export interface SharedInput {
  readonly version: string
  readonly columns: NamedColumns
}

/** A gradient that several processes can compute, a share each. */
export interface SharedGradient {
  readonly inputs: Readonly<Record<string, SharedInput>>
  /** Its other inputs. */
  readonly numbers: readonly number[]
  /** Number of shares that have slots. */
  readonly numShares: number
  /** Computes a share here. */
  compute(share: number): void | Promise<void>
  /** The columns that `compute` writes. */
  results(share: number): NamedColumns
}

/** The part of a learner by which a process computes shares of another one's gradients. */
export interface GradientHelp {
  /** Takes one of the other process's inputs. @throws InputError for columns that are not as here. */
  take(input: string, columns: NamedColumns): void
  /** Computes one of `shareCount` shares, from the inputs and the numbers of a `SharedGradient`. Returns its results. */
  compute(numbers: readonly number[], share: number, shareCount: number): Promise<NamedColumns>
}

/** Processes that compute gradients together. The result has the same bits as one process's. */
export interface GradientPool {
  /** One of `shareCounts`. */
  readonly shareCount: number
  /** Settles when the results of all shares are in their columns. */
  compute(gradient: SharedGradient): Promise<void>
}

/** Writes columns into others. @throws InputError if they are not of the same names, types and lengths. */
export function fillColumns(subject: string, given: NamedColumns, into: NamedColumns): void {
  const describe = ([name, column]: readonly [string, Column]) =>
    `${name}: ${column.length} of ${column.constructor.name}`
  const [got, expected] = [given, into].map((each) => Object.entries(each).map(describe).sort().join(', '))
  if (got !== expected) throw new InputError(subject, got!, expected!)
  for (const [name, column] of Object.entries(into)) column.set(given[name]!)
}
