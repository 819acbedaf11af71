/** The contract of kinds of run: `episode-run.ts` and `conversation-run.ts` implement it, and `run.ts` lists them. */
import type { DefinitionRecord } from '../../base/definition.ts'
import type { Metrics } from '../../base/metrics.ts'
import type { Setting, SettingValue } from '../../base/settings.ts'
import type { ModuleTrust } from '../../base/trust.ts'
import type { KernelBuild } from '../../kernels/kernels.ts'
import type { CurveLabels, CurvePoint, EarlierCurve } from '../../telemetry/curves.ts'
import type { LoggerDefinition } from '../../telemetry/loggers/logger.ts'
import type { Cohort } from '../../world/cohort.ts'
import type { BestJudgment, JudgeSettings, Judgment } from '../evaluate/judge.ts'
import type { MetricsOf, ProgressOf, Trainer } from '../loop/trainer.ts'
import type { Reached } from './presets.ts'

export interface RunParts {
  readonly environment: DefinitionRecord
  readonly settings: JudgeSettings & {
    readonly seed: number
    readonly numLanes: number
    readonly checkpointEvery: number
    readonly checkpointsKept: number
    readonly kernels: KernelBuild | 'best'
    readonly stallSeconds: number
    readonly onStall: string
    readonly profile: boolean
    readonly loggers: readonly string[]
  }
  readonly loggers: readonly LoggerDefinition[]
}

/** `complete`: all done; `solved`: good enough; `plateau`: evaluations stopped improving; `stopped`: by `stop`. */
export type RunEnd = 'complete' | 'solved' | 'plateau' | 'stopped'

/** The fields of every run's summary. `interrupted`: `colonnade resume` continues. */
export interface SharedSummary {
  readonly status: RunEnd | 'interrupted'
  readonly folder: string
  readonly environment: string
  readonly algorithm: string
  readonly seed: number
  readonly numLanes: number
  /** Updates done, without supervised steps. */
  readonly updates: number
  /** Seconds of collecting and learning. */
  readonly seconds: number
  /** For presets that fail with some seeds: how many reached which result; otherwise null. */
  readonly presetReached: Reached | null
  /** The best and last evaluation during training; null without any. */
  readonly evaluation: { readonly best: BestJudgment | null; readonly last: Judgment } | null
  readonly node: string
  readonly threads: number
  readonly kernels: string
  /** Level and origin of native kernels; null for others. */
  readonly native: string | null
  /** Paths of the run's files, by content. */
  readonly files: Readonly<Record<string, string>>
}

/** A run's trainer, and the choices made for it. */
export interface MadeTrainer<D, C extends Cohort> {
  /** With automatic settings resolved. */
  readonly definition: D
  readonly trainer: Trainer<C>
  readonly notes: readonly string[]
  /** Automatic choices, with reasons. */
  readonly choices: readonly string[]
  /** Aborted when another process orders the run to stop. */
  readonly stop?: AbortSignal
  /** The run trains from now on, in this folder. */
  begun?(folder: string): void
  /** Ends what was opened for the trainer, after it. */
  close?(): Promise<void>
}

/** A kind of run. `Plan` is reported before weights are read. */
export interface RunKind<D extends RunParts, C extends Cohort, Summary extends SharedSummary, Plan> {
  /** Every key of a run of the environment, with its default given these texts. */
  keys(factory: unknown, given: Readonly<Record<string, string>>): Promise<ReadonlyMap<string, Setting>>
  /** The metrics in its `metrics.jsonl`, by name; each line has those of its phase. */
  metrics(factory: unknown, given: Readonly<Record<string, string>>): Promise<Metrics>
  /** Whether a run of this definition refuses an unused key. */
  refuses(definition: D, key: string): boolean
  configure(factory: unknown, given: Readonly<Record<string, string>>): Promise<D>
  /** Its records in `config.json`, besides the settings. */
  records(definition: D): Readonly<Record<string, DefinitionRecord | readonly DefinitionRecord[] | null>>
  /** The definition in a run's `config.json`. */
  open(folder: string, config: Readonly<Record<string, unknown>>, trust: ModuleTrust): Promise<D>
  /** The settings that may change on resuming, and the definition with changes. */
  resumedKeys(definition: D): ReadonlyMap<string, Setting>
  override(definition: D, given: ReadonlyMap<string, SettingValue>): D | Promise<D>
  /** Makes the trainer; `isDrawn`: the initial weights do not matter, since a checkpoint is restored. */
  createTrainer(definition: D, isDrawn: boolean, onPlan: (plan: Plan) => void): Promise<MadeTrainer<D, C>>
  /** Whether a new run saves a checkpoint before training. */
  keepsBeginning(definition: D): boolean
  /** Trains to the end of the run, or until the signal is aborted, yielding each update's metrics. */
  updates(definition: D, trainer: Trainer<C>, signal: AbortSignal): AsyncIterable<MetricsOf<C>>
  /** Null if there is more to do. */
  ended(definition: D, trainer: Trainer<C>): 'complete' | 'solved' | null
  /** Evaluates the current weights with the settings' episodes. @throws InputError if the environment cannot. */
  judge(definition: D, trainer: Trainer<C>, seed: number): Promise<Judgment>
  /** Metrics lines: their content, and the key of their number. */
  readonly lineKey: string
  line(metrics: MetricsOf<C>, trainer: Trainer<C>): object
  /** The kept tables: folder, schedule and writer. */
  readonly tables: string
  keeps(definition: D): 'last' | 'all' | 'none'
  /** Whether the newest table must be written at each update, since the next one replaces it. */
  readonly isTableFleeting: boolean
  /** The number of an update's table; null without one. */
  tableOf(metrics: MetricsOf<C>): number | null
  tableNumber(trainer: Trainer<C>): number
  writeTable(trainer: Trainer<C>, path: string): Promise<void>
  /** Writes files beside a checkpoint. */
  writeBeside(folder: string, definition: D, trainer: Trainer<C>): Promise<void>
  /** Prepares the trainer for a watchdog that notifies the user; the returned function undoes it. */
  watch(
    trainer: Trainer<C>,
    onLate: (message: string) => 'continue' | 'stop',
    tell: (message: string) => void,
  ): () => void
  /** Writes the final files, and returns their names and the summary. */
  finish(
    folder: string,
    definition: D,
    trainer: Trainer<C>,
    lines: readonly Readonly<Record<string, unknown>>[],
  ): Promise<{
    readonly files: Readonly<Record<string, string>>
    readonly summary: Omit<Summary, keyof SharedSummary> &
      Pick<SharedSummary, 'algorithm' | 'updates' | 'presetReached'>
  }>
  /** The learning curve, from metrics lines. */
  curve(definition: D, lines: readonly Readonly<Record<string, unknown>>[]): RunCurve
}

export interface RunCurve {
  readonly points: readonly CurvePoint[]
  /** Fraction of the previous value kept in each; 0 for points that are means. */
  readonly smoothing: number
  readonly evaluations: readonly CurvePoint[]
  readonly labels: CurveLabels
  readonly threshold: number | null
  /** The curve of an earlier phase; null without one. */
  readonly before: EarlierCurve | null
}

/** Observers of a run, which waits for the promises that they return, and the signal that stops it. An observer that fails ends the run. */
export interface RunListeners<C extends Cohort> {
  /** Called after each update, when its line is in `metrics.jsonl`. */
  onUpdate?(metrics: MetricsOf<C>, progress: ProgressOf<C>): unknown
  /** Called after an evaluation (`evaluateEvery`), when its line is in `metrics.jsonl`, before `onUpdate` of the same update; `isBest`: of those so far. */
  onEvaluation?(judgment: Judgment, at: { readonly update: number; readonly isBest: boolean }): unknown
  /** Called when a checkpoint is on disk. */
  onCheckpoint?(at: { readonly folder: string; readonly checkpoint: number }): unknown
  /** When aborted, the run ends after the update or tick as `interrupted`, with a checkpoint. */
  signal?: AbortSignal
}
