import type { CohortOfRun, MetricsOf, Run, RunDefinition, SummaryOfRun } from '../../index.ts'
import type { Rate } from './progress.ts'

/** The texts of one kind of run for its progress and results. */
export interface Words<D extends RunDefinition> {
  /** The work that is finished before an interrupted run ends. */
  readonly unit: string
  /** The environment, the algorithm and the length of a training: one line each. */
  header(run: Run<D>): readonly Row[]
  /** The total number of steps, and those done. */
  total(run: Run<D>): number
  done(run: Run<D>): number
  /** Their noun. */
  noun(run: Run<D>): string
  figures(metrics: MetricsOf<CohortOfRun<D>>, run: Run<D>): string[]
  /** The speed; null if an update has none. */
  rate(metrics: MetricsOf<CohortOfRun<D>>, run: Run<D>): Rate | null
  /** The value of the curve; null if an update has none. */
  curve(metrics: MetricsOf<CohortOfRun<D>>): number | null
  /** The results, without the run's end, files and next commands. */
  summary(summary: SummaryOfRun<D>, definition: D): { readonly did: string; readonly lines: readonly string[] }
  /** Next commands for a finished run, with their words and purpose. */
  next(folder: string, definition: D): readonly (readonly [command: string, words: string, shows: string])[]
}

/** A word and its text, as one line. */
export type Row = readonly [name: string, text: string]
