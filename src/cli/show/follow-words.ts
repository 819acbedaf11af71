/** What the command line says of a run of one kind while somebody watches. */
import type { CohortOfRun, MetricsOf, Run, RunDefinition, SummaryOfRun } from '../../index.ts'
import type { Rate } from './progress.ts'

/** What is said of a run of one kind while somebody watches. */
export interface Words<D extends RunDefinition> {
  /** What ends before the run does, when it is interrupted. */
  readonly unit: string
  /** What is learned, by what and for how long: a line each. */
  header(run: Run<D>): readonly Row[]
  /** Of how many steps it is, and how many are done. */
  total(run: Run<D>): number
  done(run: Run<D>): number
  /** What those are. */
  noun(run: Run<D>): string
  figures(metrics: MetricsOf<CohortOfRun<D>>, run: Run<D>): string[]
  /** How fast it is; null where an update does not say. */
  rate(metrics: MetricsOf<CohortOfRun<D>>, run: Run<D>): Rate | null
  /** What is drawn as a curve; null where an update has none. */
  curve(metrics: MetricsOf<CohortOfRun<D>>): number | null
  /** What came of it: but for how it ended, its files and what to do next. */
  summary(summary: SummaryOfRun<D>, definition: D): { readonly did: string; readonly lines: readonly string[] }
  /** Commands for a run that has ended, their words, and what each shows. */
  next(folder: string, definition: D): readonly (readonly [command: string, words: string, shows: string])[]
}

/** A word and what it says, as a line for people. */
export type Row = readonly [name: string, text: string]
