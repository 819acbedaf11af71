/**
 * What a run asks of its kind: `episode-run.ts` for an environment whose lanes step, `conversation-run.ts` for one whose lanes
 * decode. `run.ts` names the two.
 */
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

/** What every run is made of. */
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
  /** Those that the settings name. */
  readonly loggers: readonly LoggerDefinition[]
}

/**
 * How a run ends that is not interrupted. `complete`: all is done. `solved`: its episodes, or an evaluation, were good enough.
 * `plateau`: evaluations got no better.
 */
export type RunEnd = 'complete' | 'solved' | 'plateau'

/** The fields of every run's summary. `interrupted`: `colonnade resume` continues. */
export interface SharedSummary {
  readonly status: RunEnd | 'interrupted'
  readonly folder: string
  readonly environment: string
  readonly algorithm: string
  readonly seed: number
  readonly numLanes: number
  /** Updates done; of conversations those after the supervised steps. */
  readonly updates: number
  /** Seconds of collecting and learning. */
  readonly seconds: number
  /** Of a run by a preset that not every seed succeeds with: how many did, and at what. Null elsewhere. */
  readonly presetReached: Reached | null
  /** The best evaluation while it trained, and the last one; null where there was none. */
  readonly evaluation: { readonly best: BestJudgment | null; readonly last: Judgment } | null
  readonly node: string
  readonly threads: number
  readonly kernels: string
  /** Of native kernels their level and where they come from; null of others. */
  readonly native: string | null
  /** What the run wrote, by what it is. */
  readonly files: Readonly<Record<string, string>>
}

/** A run's trainer, and what was settled while it was made. */
export interface MadeTrainer<D, C extends Cohort> {
  /** With what the settings left open. */
  readonly definition: D
  readonly trainer: Trainer<C>
  /** What a user should be told. */
  readonly notes: readonly string[]
  /** What was chosen where the settings leave it open, and why. */
  readonly choices: readonly string[]
}

/** What differs between the kinds of runs. `Plan` is what is reported before weights are read. */
export interface RunKind<D extends RunParts, C extends Cohort, Summary extends SharedSummary, Plan> {
  /** Every key that a run of the environment takes, with its default for a user who has given these texts. */
  keys(factory: unknown, given: Readonly<Record<string, string>>): Promise<ReadonlyMap<string, Setting>>
  /** What the lines of its `metrics.jsonl` say, by name: each line what its phase tells. */
  metrics(factory: unknown, given: Readonly<Record<string, string>>): Promise<Metrics>
  /** Whether a run of this definition refuses a key that it has no use for. */
  refuses(definition: D, key: string): boolean
  configure(factory: unknown, given: Readonly<Record<string, string>>): Promise<D>
  /** What `config.json` has of it, beside the settings. */
  records(definition: D): Readonly<Record<string, DefinitionRecord | readonly DefinitionRecord[] | null>>
  /** The definition that a run's `config.json` says. */
  open(folder: string, config: Readonly<Record<string, unknown>>, trust: ModuleTrust): Promise<D>
  /** The settings that may be given anew when it is resumed, and the definition with them. */
  resumedKeys(definition: D): ReadonlyMap<string, Setting>
  override(definition: D, given: ReadonlyMap<string, SettingValue>): D | Promise<D>
  /** The trainer; `isDrawn` where the weights that it is to begin with do not matter, since others are taken up. */
  createTrainer(definition: D, isDrawn: boolean, onPlan: (plan: Plan) => void): Promise<MadeTrainer<D, C>>
  /** Whether a new run keeps a checkpoint of what it begins with. */
  keepsBeginning(definition: D): boolean
  /** Trains to the end of the run, or until the signal is aborted, yielding what each update did. */
  updates(definition: D, trainer: Trainer<C>, signal: AbortSignal): AsyncIterable<MetricsOf<C>>
  /** Null where there is more to do. */
  ended(definition: D, trainer: Trainer<C>): 'complete' | 'solved' | null
  /**
   * Evaluates the weights as they stand, with as many episodes as the settings say.
   * @throws InputError where the environment does not let it.
   */
  judge(definition: D, trainer: Trainer<C>, seed: number): Promise<Judgment>
  /** What a metrics line says, and under which key it has its number. */
  readonly lineKey: string
  line(metrics: MetricsOf<C>, trainer: Trainer<C>): object
  /** The tables that it keeps: their folder, when, and how one is written. */
  readonly tables: string
  keeps(definition: D): 'last' | 'all' | 'none'
  /** Whether the last one has to be written at each update, since what comes next takes its place. */
  readonly isTableFleeting: boolean
  /** The number of the table that an update leaves; null where it leaves none. */
  tableOf(metrics: MetricsOf<C>): number | null
  /** That of the newest table. */
  tableNumber(trainer: Trainer<C>): number
  writeTable(trainer: Trainer<C>, path: string): Promise<void>
  /** What is written beside a checkpoint. */
  writeBeside(folder: string, definition: D, trainer: Trainer<C>): Promise<void>
  /** Prepares the trainer of a run with a watcher and a user to notify; the returned function undoes it. */
  watch(
    trainer: Trainer<C>,
    onLate: (message: string) => 'continue' | 'stop',
    tell: (message: string) => void,
  ): () => void
  /** Writes what a run has at its end, and gives their names, and what its summary says. */
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
  /** What the picture of a run shows, by its metrics lines. */
  curve(definition: D, lines: readonly Readonly<Record<string, unknown>>[]): RunCurve
}

/** The learning curve of a run. */
export interface RunCurve {
  readonly points: readonly CurvePoint[]
  /** How much of the value before remains in each: 0 where points are means already. */
  readonly smoothing: number
  /** Of the evaluations, their means. */
  readonly evaluations: readonly CurvePoint[]
  readonly labels: CurveLabels
  readonly threshold: number | null
  /** Of another phase before; null where there was none. */
  readonly before: EarlierCurve | null
}

/** Observers of a run, and the signal that stops it. */
export interface RunListeners<C extends Cohort> {
  /** Called after each update, when its line is in `metrics.jsonl`. */
  onUpdate?(metrics: MetricsOf<C>, progress: ProgressOf<C>): void
  /** When aborted, the run ends after the update or the tick, with a checkpoint to continue from, as `interrupted`. */
  signal?: AbortSignal
}
