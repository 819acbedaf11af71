/** What a row of the suite's table is. */
import type { Training } from '../learning/learn.ts'
import type { Wanted } from '../measure.ts'

/** The seeds of each row. */
export const SEEDS = [1, 2, 3] as const

/** A training of one seed, and what it came to. */
export interface Outcome extends Training {
  /** Of each figure of the row, in their order. */
  readonly values: readonly number[]
}

/** What is measured of a training. */
export interface RowFigure {
  /** What the number is, with its unit. */
  readonly what: string
  readonly wanted: Wanted
  /** What others published for it, or the best that is possible, with its source. */
  readonly published: string
}

/** Trainings of one environment by one preset, a seed each. */
export interface Row {
  readonly environment: string
  /** Settings beside the preset's. */
  readonly settings: Readonly<Record<string, string>>
  readonly figures: readonly RowFigure[]
  /** Whether all seeds are measured at once, since one picture is made of them. Else each is kept as soon as it is there. */
  readonly atOnce?: boolean
  /** An outcome for each of the seeds, in their order. */
  measure(seeds: readonly number[]): Promise<readonly Outcome[]>
}
