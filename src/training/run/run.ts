/**
 * A run is a folder: `config.json` (all settings, resolved), `metrics.jsonl` (one line per update), `checkpoints/`,
 * `rollouts/` or `trajectories/` (Arrow files, never changed once written), and at the end `summary.json` and
 * `learning-curve.svg`; for a language model also the model.
 */
import { type DefinitionRecord, findFactory, isModulePath } from '../../base/definition.ts'
import { checkGiven, InputError } from '../../base/errors.ts'
import { writeWhole } from '../../base/files/files.ts'
import { basename, join, pathToFileURL, resolve } from '../../base/files/path.ts'
import { runtime } from '../../base/host.ts'
import type { Metrics } from '../../base/metrics.ts'
import type { Setting, SettingValue } from '../../base/settings.ts'
import type { ModuleTrust } from '../../base/trust.ts'
import { VERSION } from '../../base/version.ts'
import type { EnvironmentFactory } from '../../environments/environment.ts'
import type { EnvironmentId } from '../../environments/registry.ts'
import type { TextEnvironmentFactory } from '../../environments/text.ts'
import { describeNative } from '../../kernels/bind.ts'
import { drawCurve } from '../../telemetry/curves.ts'
import { entryOf, flatKeys, flatParts } from '../../telemetry/loggers/entry.ts'
import type { LoggedEnd } from '../../telemetry/loggers/logger.ts'
import { Loggers } from '../../telemetry/loggers/logger-queue.ts'
import type { Cohort } from '../../world/cohort.ts'
import type { ConversationCohort } from '../../world/conversations/cohort.ts'
import type { EpisodeCohort } from '../../world/episodes/cohort.ts'
import { checkJudging, Judge, type Judgment, judgeMetrics, judgeSeed } from '../evaluate/judge.ts'
import { listCheckpoints } from '../folder/checkpoint.ts'
import { checkIfExists, type IfExists } from '../folder/if-exists.ts'
import { type ResumeOptions, RunFolder, recordIn, refuseOccupied } from '../folder/run-folder.ts'
import { holdsRun, peekConfig, readConfig } from '../folder/run-record.ts'
import { settingsAnew } from '../folder/same-run.ts'
import type { Trainer } from '../loop/trainer.ts'
import { recordedKernels } from '../recorded/recorded-kernels.ts'
import type { TextRunPlan } from '../text/learn/plan.ts'
import {
  type ConversationRunSummary,
  conversationRun,
  findTextEnvironment,
  type TextEnvironmentId,
} from './conversation-run.ts'
import type { ConversationRunDefinition, EpisodeRunDefinition, RunDefinition } from './definition.ts'
import { type EpisodeRunSummary, episodeRun } from './episode-run.ts'
import { findEnvironment } from './find-parts.ts'
import { readTexts } from './keys.ts'
import type { MadeTrainer, RunCurve, RunEnd, RunKind, RunListeners, SharedSummary } from './kind.ts'
import { metricNames, unlessFails } from './made.ts'
import { reachOf, refuseReach } from './reach.ts'
import { resolveKeys } from './resolved-keys.ts'

/** The `summary.json` of a run. */
export type RunSummary = EpisodeRunSummary | ConversationRunSummary
/** The cohort that a run trains. */
export type CohortOfRun<D extends RunDefinition> = D extends ConversationRunDefinition
  ? ConversationCohort
  : EpisodeCohort
/** The summary of a kind of run. */
export type SummaryOfRun<D extends RunDefinition> = D extends ConversationRunDefinition
  ? ConversationRunSummary
  : EpisodeRunSummary

type AnyKind = RunKind<RunDefinition, Cohort, RunSummary, TextRunPlan>
const kinds = { episodes: episodeRun, conversations: conversationRun } as unknown as Readonly<
  Record<RunDefinition['kind'], AnyKind>
>

function kindOf(definition: Pick<RunDefinition, 'kind' | 'settings'>): AnyKind {
  checkGiven('definition of a run', definition, ['kind', 'settings'])
  return kinds[definition.kind]
}

type AnyFactory = EnvironmentFactory | TextEnvironmentFactory

/** The environment with this id or module path, and its kind of run. */
async function findRun(name: string): Promise<{ kind: RunDefinition['kind']; factory: AnyFactory }> {
  checkGiven('environment', name, 'a text')
  if (isModulePath(name)) {
    const factory = await findFactory<AnyFactory>('environment', pathToFileURL(name).href, 'caller')
    return { kind: (factory() as { kind?: string }).kind === 'text' ? 'conversations' : 'episodes', factory }
  }
  if (name.startsWith('text/')) return { kind: 'conversations', factory: await findTextEnvironment(name) }
  return { kind: 'episodes', factory: await findEnvironment(name) }
}

/**
 * Every key of a run, with its default given these `key=value` texts: `seed`, `policy`, `algorithm`, `ppo.gamma`,
 * `mlp.hidden`, `environment.…`; for text environments `sft.…`, `rl.…`, `loss.…` and `languageModel.…`.
 * @throws InputError for an unknown environment, policy or algorithm; names the nearest.
 */
export async function runKeys(environment: string, given: Texts = {}): Promise<ReadonlyMap<string, Setting>> {
  const { kind, factory } = await findRun(environment)
  return kinds[kind].keys(factory, given)
}

/** All metrics in a run's `metrics.jsonl`, by name. Lines of supervised steps have fewer than updates. */
export async function runMetrics(environment: string, given: Readonly<Record<string, string>> = {}): Promise<Metrics> {
  const { kind, factory } = await findRun(environment)
  return kinds[kind].metrics(factory, given)
}

type Texts = Readonly<Record<string, string>>
type ModulePath = `${string}.${'mjs' | 'js' | 'ts'}`

/** A run's definition from an environment and `key=value` texts. @throws InputError with the nearest name. */
export function configureRun(
  environment: EnvironmentId,
  given?: Readonly<Record<string, string>>,
): Promise<EpisodeRunDefinition>
export function configureRun(
  environment: TextEnvironmentId,
  given?: Readonly<Record<string, string>>,
): Promise<ConversationRunDefinition>
export function configureRun<S extends string>(
  environment: string extends S ? S : ModulePath,
  given?: Readonly<Record<string, string>>,
): Promise<RunDefinition>
export async function configureRun(
  environment: string,
  given: Readonly<Record<string, string>> = {},
): Promise<RunDefinition> {
  const { kind, factory } = await findRun(environment)
  return kinds[kind].configure(factory, given)
}

/** The value of every key of a run, which as texts define the same run. @throws InputError as `configureRun` does. */
export async function resolveRunKeys(environment: string, given: Texts = {}): Promise<Map<string, SettingValue>> {
  const { kind, factory } = await findRun(environment)
  const definition = await kinds[kind].configure(factory, given)
  return resolveKeys(kinds[kind], definition, await kinds[kind].keys(factory, given), given)
}

/** A training with its folder, which this process owns until the training ends. */
export class Run<D extends RunDefinition = RunDefinition> {
  readonly definition: D
  readonly trainer: Trainer<CohortOfRun<D>>
  /** Warnings for the user: tensors left out, and changes on resuming that affect bits. */
  readonly warnings: readonly string[]
  /** Automatic choices, with reasons, such as the number of threads. */
  readonly choices: readonly string[]
  /** Why it is not in the requested folder; null if it is. */
  readonly moved: string | null
  readonly #files: RunFolder
  readonly #kind: AnyKind
  readonly #judge: Judge
  readonly #made: Pick<MadeTrainer<D, CohortOfRun<D>>, 'stop' | 'begun' | 'close'>

  /** Use `startRun` or `resumeRun`. */
  constructor(files: RunFolder, made: MadeTrainer<D, CohortOfRun<D>>, judge: Judge, moved: string | null = null) {
    const { definition, trainer, notes: warnings, choices } = made
    this.moved = moved
    this.#files = files
    this.#judge = judge
    this.#kind = kindOf(definition)
    this.definition = definition
    this.trainer = trainer
    this.warnings = warnings
    this.choices = choices
    this.#made = made
  }

  get folder(): string {
    return this.#files.path
  }

  /** How it ended; null if there is more to do. */
  get ended(): RunEnd | null {
    return this.#kind.ended(this.definition, this.trainer as Trainer<Cohort>) ?? this.#judge.ended
  }

  /** Adds a line with the time to `run.log`. */
  log(line: string): void {
    this.#files.log(line)
  }

  /** Trains until the run ends or is stopped; call it once. @throws InputError for a failed write; saved data stays. */
  train(listeners: RunListeners<CohortOfRun<D>> = {}): Promise<SummaryOfRun<D>> {
    return this.#files.during(() =>
      this.#train(listeners as RunListeners<Cohort>).finally(() => {
        this.trainer.close()
        return this.#made.close?.()
      }),
    ) as Promise<SummaryOfRun<D>>
  }

  async #train({ onUpdate, onEvaluation, onCheckpoint, signal }: RunListeners<Cohort>): Promise<RunSummary> {
    const asks = [signal, this.#made.stop].filter((each) => each !== undefined)
    const asked = asks.length > 1 ? AbortSignal.any(asks) : asks[0]
    const { settings } = this.definition
    const trainer = this.trainer as Trainer<Cohort>
    const before = this.ended
    if (before !== null) {
      await this.#files.prune(settings.checkpointsKept, this.#judge.best?.checkpoint)
      return this.#finish(before)
    }
    this.#made.begun?.(this.folder)
    trainer.keepsState = true // Allows abandoning an update with a stuck thread.
    const stop = new AbortController()
    const either = asked === undefined ? stop.signal : AbortSignal.any([asked, stop.signal])
    const giveUp = (reason: Error): void => {
      stop.abort(reason)
      trainer.giveUp(reason)
    }
    const watched = { beats: trainer.beats, who: trainer.shares, calls: trainer.calls, giveUp }
    const watch = await this.#files.watch(watched, settings, asked)
    const tell = (message: string) => this.#files.tell(message)
    const onLate = (message: string) => {
      tell(message)
      if (settings.onStall === 'stop') stop.abort(new Error(message))
      return settings.onStall === 'stop' ? 'stop' : 'continue'
    }
    const unwatch = this.#kind.watch(trainer, onLate, tell)
    const loggers = this.#openLoggers(tell)
    let end: LoggedEnd = 'failed'
    let newest: number | null = null // The finished update's table; null before the first.
    try {
      for await (const metrics of this.#kind.updates(this.definition, trainer, either)) {
        const evaluated = await this.#evaluate()
        const line = { ...this.#kind.line(metrics, trainer), ...evaluated.figures }
        const warning = this.#judge.see(line as Readonly<Record<string, unknown>>)
        if (warning !== null) tell(warning)
        this.#files.note(line)
        const { judgment, isBest } = evaluated
        if (judgment !== null) await onEvaluation?.({ ...judgment }, { update: trainer.update, isBest })
        loggers.log(entryOf(trainer.update, line))
        newest = this.#kind.tableOf(metrics)
        await this.#leaveTable(newest)
        const isLast = this.ended !== null // The end writes it below, before the checkpoint.
        const isKept = isBest || trainer.update % settings.checkpointEvery === 0
        if (isKept && !isLast) await this.#checkpoint(onCheckpoint)
        await onUpdate?.(metrics, trainer.progress())
        if (isLast || either.aborted) break
      }
      end = this.ended === null ? 'interrupted' : 'complete'
    } catch (error) {
      if (error !== watch.stall) throw error // Only an abandoned update has a state before it.
      await this.#checkpoint(onCheckpoint) // As before the abandoned update; its rollout is gone.
      if (!asked?.aborted) throw error
      end = 'interrupted'
      return await this.#finish('interrupted', loggers.places)
    } finally {
      watch.close()
      unwatch()
      await loggers.close(end)
    }
    // The table first: if the write fails, the run has not ended, and a resumed one makes it again.
    const isLeft = this.#kind.keeps(this.definition) === 'last' && !this.#kind.isTableFleeting
    if (newest !== null && isLeft) await this.#writeTable(newest)
    await this.#checkpoint(onCheckpoint)
    const ended = this.ended
    if (ended === null && stop.signal.aborted) throw stop.signal.reason
    return this.#finish(ended ?? 'interrupted', loggers.places)
  }

  /** Evaluates the weights if due. Returns figures for the metrics line, and whether they are the best so far. */
  async #evaluate(): Promise<{
    readonly figures: object
    readonly judgment: Judgment | null
    readonly isBest: boolean
  }> {
    const trainer = this.trainer as Trainer<Cohort>
    const isLast = this.#kind.ended(this.definition, trainer) !== null
    if (!this.#judge.isDue(trainer.update, isLast)) return { figures: {}, judgment: null, isBest: false }
    const evaluation = await this.#kind.judge(
      this.definition,
      trainer,
      judgeSeed(trainer.update, this.definition.settings.seed),
    )
    const isBest = this.#judge.add(trainer.checkpointNumber, evaluation)
    return { figures: { evaluation }, judgment: evaluation, isBest }
  }

  #openLoggers(tell: (message: string) => void): Loggers {
    const { definition, folder, trainer } = this
    const training = {
      name: basename(resolve(folder)),
      folder,
      settings: { ...flatKeys(definition.settings), ...flatParts(this.#kind.records(definition)) },
      metrics: { ...trainer.metrics, ...(definition.settings.evaluateEvery > 0 ? judgeMetrics : {}) },
      done: trainer.update,
    }
    return new Loggers(definition.loggers, training, tell)
  }

  async #checkpoint(onCheckpoint: RunListeners<Cohort>['onCheckpoint']): Promise<void> {
    const save = async () => {
      await this.trainer.save(this.folder)
      await this.#kind.writeBeside(this.folder, this.definition, this.trainer as Trainer<Cohort>)
    }
    await this.#files.checkpoint(save, this.definition.settings.checkpointsKept, this.#judge.best?.checkpoint)
    await onCheckpoint?.({ folder: this.folder, checkpoint: this.trainer.checkpointNumber })
  }

  /** Writes an update's table, if it is kept and cannot be written later. */
  async #leaveTable(number: number | null): Promise<void> {
    const kept = this.#kind.keeps(this.definition)
    const isDue = kept === 'all' || (kept === 'last' && this.#kind.isTableFleeting)
    if (number !== null && isDue) await this.#writeTable(number)
  }

  /** Writes the newest table; if only the last is kept, removes older ones. */
  async #writeTable(number: number): Promise<void> {
    const { tables } = this.#kind
    const name = `${String(number).padStart(8, '0')}.arrow`
    await this.#kind.writeTable(this.trainer as Trainer<Cohort>, this.#files.file(tables, name))
    if (this.#kind.keeps(this.definition) === 'last') await this.#files.keepOnly(tables, name)
  }

  async #finish(status: SharedSummary['status'], logs: Readonly<Record<string, string>> = {}): Promise<RunSummary> {
    const { folder, trainer, definition } = this
    const { environment, settings } = definition
    const lines = await this.#files.lines()
    const { files, summary } = await this.#kind.finish(folder, definition, trainer as Trainer<Cohort>, lines)
    const path = (name: string) => join(folder, name)
    const { best, last } = this.#judge
    const whole = {
      status,
      folder,
      environment: environment.id,
      seed: settings.seed,
      numLanes: settings.numLanes,
      seconds: trainer.seconds,
      ...summary,
      evaluation: last === null ? null : { best, last },
      node: runtime,
      threads: trainer.world.threads.count,
      kernels: trainer.world.kernelBuild,
      native: describeNative(trainer.world.kernelBuild),
      files: {
        config: path('config.json'),
        metrics: path('metrics.jsonl'),
        summary: path('summary.json'),
        learningCurve: path('learning-curve.svg'),
        checkpoints: path('checkpoints'),
        ...(settings.profile ? { trace: path('trace.json') } : {}),
        ...files,
        ...logs,
      },
    } as unknown as RunSummary
    if (settings.profile) await writeWhole(path('trace.json'), [trainer.trace()])
    const { points, labels, ...shown } = this.#kind.curve(definition, lines)
    const title = `${environment.id} by ${summary.algorithm}, seed ${settings.seed}`
    await writeWhole(path('learning-curve.svg'), [drawCurve(points, labels, { title, ...shown })])
    await writeWhole(path('summary.json'), [`${JSON.stringify(whole, null, 2)}\n`])
    return whole
  }
}

/**
 * Starts a run in a folder; default `runs/<environment>-<n>` with the lowest free number. `ifExists` decides if the
 * folder has a run. `planTextRun` resolves a language model's open settings, reported to `onPlan` before weights are
 * read.
 * @throws InputError if the settings do not fit, or the folder has other files or cannot be written; with `ifExists`
 * `resume` for a run with other settings, and with `refuse` for any run.
 */
export async function startRun<D extends RunDefinition>(
  given: D,
  out?: string,
  onPlan: (plan: TextRunPlan) => void = () => {},
  ifExists: IfExists = 'number',
): Promise<Run<D>> {
  const kind = kindOf(given)
  checkIfExists(ifExists)
  if (out === '') throw new InputError('out', 'an empty name', 'a folder')
  if (out !== undefined) {
    if (ifExists === 'resume' && (await holdsRun(out))) return goOn(given, out, onPlan)
    if (ifExists === 'refuse') await refuseOccupied(out)
  }
  checkJudging(given.settings)
  // Before anything is written: settings may be refused here, and sizes before weights are read.
  const made = (await kind.createTrainer(given, false, onPlan)) as unknown as MadeTrainer<D, CohortOfRun<D>>
  const { definition, trainer } = made
  const judge = await unlessFails(made, async () => new Judge(definition.settings, [], kind.lineKey, metricNames(made)))
  const usual = join('runs', definition.environment.id.replaceAll('/', '-'))
  return unlessFails(made, async () => {
    const { found: files, moved } = await RunFolder.claim(out ?? { usual }, ifExists)
    return files.unlessFails(async () => {
      // Before config.json marks it as a run: a resumed run then does not need the file of weights.
      if (kind.keepsBeginning(definition)) await trainer.save(files.path)
      await files.writeConfig(configOf(files.path, definition))
      return new Run(files, made, judge, moved)
    })
  })
}

/** Resumes a folder's run if it is the requested one, with the changeable settings. */
async function goOn<D extends RunDefinition>(
  given: D,
  folder: string,
  onPlan: (plan: TextRunPlan) => void,
): Promise<Run<D>> {
  const asked = JSON.parse(JSON.stringify(configOf(folder, given))) as Record<string, unknown>
  const anew = [...kindOf(given).resumedKeys(given).keys()]
  const settings = { ...reachOf(given.settings), ...settingsAnew(folder, await readConfig(folder), asked, anew) }
  // Its modules are the definition's, which the caller made.
  return resumeRun<D>(folder, { settings, allowModule: () => true }, onPlan)
}

/** A run's learning curve, from its metrics lines. */
export function curveOfRun(definition: RunDefinition, lines: readonly Record<string, unknown>[]): RunCurve {
  return kindOf(definition).curve(definition, lines)
}

export function configOf(folder: string, definition: RunDefinition): object {
  const records = Object.entries(kindOf(definition).records(definition))
  const place = (record: DefinitionRecord) => recordIn(folder, record)
  const here = records.map(([key, recorded]) => [
    key,
    Array.isArray(recorded) ? recorded.map(place) : recorded && place(recorded as DefinitionRecord),
  ])
  return { colonnade: VERSION, ...Object.fromEntries(here), settings: definition.settings }
}

/**
 * Resumes a run at its newest checkpoint (or at its start), after dropping younger files. Changed settings, like
 * `totalSteps` or `rl.updates`, which let a complete run continue, are written to its `config.json`. Kernels are the
 * checkpoint's unless given.
 * @throws InputError if the folder has no run, another process trains in it, its checkpoint is corrupt or of another
 * training, this runtime lacks its kernels and none are given, or a setting cannot change.
 */
export async function resumeRun<D extends RunDefinition = RunDefinition>(
  folder: string,
  { from, settings: texts = {}, ...trust }: ResumeOptions = {},
  onPlan: (plan: TextRunPlan) => void = () => {},
): Promise<Run<D>> {
  const former = await openRun(folder, trust)
  const kind = kindOf(former)
  const given = readTexts(kind.resumedKeys(former), texts)
  refuseReach(folder, former.settings, given)
  const asked = await kind.override(former, given)
  checkJudging(asked.settings)
  const files = await RunFolder.take(folder)
  return files.unlessFails(async () => {
    const hasCheckpoint = from !== undefined || (await listCheckpoints(folder)).length > 0
    const recorded = given.has('kernels') ? null : await recordedKernels(folder, from)
    const kernels = recorded === null ? {} : { kernels: recorded.build }
    const wanted = { ...asked, settings: { ...asked.settings, ...kernels } } as RunDefinition
    const made = (await kind.createTrainer(wanted, hasCheckpoint, onPlan)) as unknown as MadeTrainer<D, CohortOfRun<D>>
    return unlessFails(made, async () => {
      const { trainer } = made
      const warnings = [...made.notes, ...(recorded?.notes ?? [])]
      if (hasCheckpoint) warnings.push(...(await trainer.restore(folder, from)).warnings)
      for (const length of ['totalSteps', 'epochs'] as const) {
        const [then, now] = [former, asked].map(
          ({ settings }) => (settings as Partial<Record<typeof length, number>>)[length],
        )
        if (then === now) continue
        warnings.push(`${length} was ${then} and is ${now}: schedules use the new number from now on`)
      }
      if (given.size > 0) await files.writeConfig(configOf(files.path, asked))
      const { checkpointNumber, update } = trainer
      const lines = { key: kind.lineKey, last: checkpointNumber, count: update }
      const tables = { tables: kind.tables, update: kind.tableNumber(trainer) }
      warnings.push(...(await files.dropYounger({ ...lines, checkpoint: checkpointNumber, ...tables })))
      const judge = new Judge(made.definition.settings, await files.lines(), kind.lineKey, metricNames(made))
      return new Run(files, { ...made, notes: warnings }, judge)
    })
  })
}

/**
 * The definition of the run in a folder. Its modules are programs. They run only if they are under the working
 * directory and outside the folder, are in the user's list of trusted ones, or `allowModule` admits them.
 * @throws InputError if the folder has no run, or its environment, policy or algorithm is not found or not trusted.
 */
export async function openRun(folder: string, trust: ModuleTrust = {}): Promise<RunDefinition> {
  const config = await readConfig(folder)
  return kinds[kindOfConfig(config)].open(folder, config, trust)
}

/** The kind of a folder's run; null for a model or nothing. @throws InputError for a missing or bad folder. */
export async function kindOfRun(folder: string): Promise<RunDefinition['kind'] | null> {
  const config = await peekConfig(folder)
  return config !== null && Object.hasOwn(config, 'colonnade') ? kindOfConfig(config) : null
}

/** Only conversations have phases. */
function kindOfConfig(config: object): RunDefinition['kind'] {
  return Object.hasOwn(config, 'sft') ? 'conversations' : 'episodes'
}

/** The trainer of a run, without its folder. @throws InputError if settings or initial weights do not fit. */
export async function runTrainer<D extends RunDefinition>(definition: D): Promise<Trainer<CohortOfRun<D>>> {
  const { trainer, close } = await kindOf(definition).createTrainer(definition, false, () => {})
  if (close !== undefined) {
    trainer.close()
    await close()
    throw new InputError('runTrainer, agent', 'an agent', 'startRun, which also ends the gateway')
  }
  return trainer as unknown as Trainer<CohortOfRun<D>>
}
