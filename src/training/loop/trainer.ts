/** The trainer: a world collects, its cohorts learn with their algorithms, and everything is saved and restored. */
import {
  BEAT_WORDS,
  callsOf,
  chromeTrace,
  createBeats,
  type MemorySample,
  sampleMemory,
  traceBuffer,
} from '../../base/clock.ts'
import { InputError, show, unknownWord } from '../../base/errors.ts'
import { runtime } from '../../base/host.ts'
import type { Metrics } from '../../base/metrics.ts'
import { VERSION } from '../../base/version.ts'
import { describeNative } from '../../kernels/bind.ts'
import type { ArrowTable } from '../../tables/read-arrow.ts'
import type { Table } from '../../tables/table.ts'
import type { Cohort } from '../../world/cohort.ts'
import type { ConversationCohort } from '../../world/conversations/cohort.ts'
import { loadForConversations, type World } from '../../world/world.ts'
import type { BackendRecord, Manifest } from '../folder/checkpoint.ts'
import type { RunRecord } from '../folder/run-record.ts'
import { compare, folderOf, type SavedState, savedTensors, splitState } from '../folder/snapshot.ts'
import { TrainerFolder } from '../folder/trainer-folder.ts'
import { type LearnOptions, learnOptions } from '../recorded/learn-options.ts'
import type { TextMetrics } from '../text/evaluate/metrics.ts'
import { shareOf } from '../threads/orders.ts'
import type { ConversationProgress, ConversationTraining } from './conversations.ts'
import { type EpisodeTraining, reserveEpisodes } from './episodes.ts'
import type { UpdateMetrics } from './metrics.ts'
import type { EpisodeProgress } from './trained-sets.ts'
import { metricsOfAlgorithms, TrainerLog } from './trainer-log.ts'
import { type Algorithms, planTraining, type TrainerOptions, type TrainingPlan } from './trainer-options.ts'
import { checkGoal, type Goal, nextTurn, type Training } from './training.ts'

/** An update's metrics, by the kind of cohort. */
export type MetricsOf<C extends Cohort> = C extends ConversationCohort ? TextMetrics : UpdateMetrics
/** A cohort's statistics so far, by its kind. */
export type ProgressOf<C extends Cohort> = C extends ConversationCohort ? ConversationProgress : EpisodeProgress

/**
 * Gives the world's cohorts learners. One algorithm, or one list of phases, serves a world with one cohort; for
 * several, name the cohort of each. Cohorts of episodes without an algorithm act beside the others, and are not
 * recorded.
 *
 * @throws InputError if the world's memory is taken already, a cohort is unknown, an algorithm does not fit it, several
 * threads are requested and a definition has no module from which they could make it, or a worker's import calls this.
 * @example
 * const trainer = createTrainer(world, ppo({ numSteps: 128 }))
 * const trainer = createTrainer(world, [sft(), rl({ loss: 'grpo' })])
 * const trainer = createTrainer(world, { hunter: ppo(), hare: a2c({ gamma: 0.9 }), talker: rl() })
 */
export function createTrainer<C extends Cohort, Name extends string>(
  world: World<C, Name>,
  algorithms: Algorithms | Readonly<Partial<Record<Name, Algorithms>>>,
  options: TrainerOptions = {},
): Trainer<C> {
  return new Trainer<C>(world, planTraining(world, algorithms, options))
}

/** Minimum milliseconds between two samples of the process's memory. */
const MEMORY_SAMPLE_MS = 100

/** The code that trains cohorts of conversations; loaded before a world has one. */
let talk: typeof import('./conversations.ts') | undefined
loadForConversations(async () => {
  talk = await import('./conversations.ts')
})

/** The columns of a cohort of conversations that are largest, and stay between two updates. */
const HELD_PARTS = ['weights', 'quantized', 'adapter', 'learner']

/** Trains the cohorts of a world that have an algorithm. `C` is their kinds. */
export class Trainer<C extends Cohort = Cohort> {
  readonly world: World<C>
  /** Of the cohorts that learn. */
  readonly #names: readonly string[]
  readonly #episodes: EpisodeTraining | undefined
  readonly #conversations: ReadonlyMap<string, ConversationTraining>
  readonly #trainings: readonly Training<UpdateMetrics | TextMetrics>[]
  readonly #folder: TrainerFolder | undefined
  /** Each thread's progress: one mark of its clock at a time. */
  readonly beats: Int32Array
  /** The caller's thread's intervals of work, and the process's memory; with a profile. */
  readonly #trace: Float64Array | undefined
  readonly #memory: MemorySample[] = []
  /** The trainer's state between the last two updates, with its checkpoint; kept if `keepsState`. */
  #settled: SavedState | undefined
  /** Names of columns in which an update can be undone, so that they are not copied. */
  #undone: ReadonlySet<string> | undefined
  /** The metrics of all algorithms' updates, by name. */
  readonly metrics: Metrics
  readonly #log: TrainerLog
  /** Whether an abandoned update leaves the state before it for saving. Costs a copy of the state per update. */
  keepsState = false

  /** Use `createTrainer`. */
  constructor(world: World<C>, plan: TrainingPlan) {
    const { episodes, conversations, learning, threads, actors, maxStaleness, profile, folder } = plan
    this.#names = Object.keys(learning)
    const isSelfPlay = world.drafts.some((draft) => draft.kind === 'episodes' && draft.sets.selfPlay !== null)
    this.metrics = metricsOfAlgorithms(learning, isSelfPlay)
    this.#log = new TrainerLog(plan.loggers, { world, algorithms: learning, metrics: this.metrics })
    world.split(threads, actors)
    this.world = world
    this.#folder = folder === undefined ? undefined : new TrainerFolder(folder, plan.ifExists)
    const hasEpisodes = Object.keys(episodes).length > 0
    this.beats = createBeats(hasEpisodes ? threads : 1)
    world.clock.beat = this.beats.subarray(0, BEAT_WORDS)
    this.#trace = profile ? traceBuffer() : undefined
    world.clock.trace = this.#trace
    // First all declare their columns; then the first that is bound takes the memory.
    const numBuffers = actors > 0 ? maxStaleness + 1 : undefined
    const { stallSeconds, crew } = plan
    const bindEpisodes = hasEpisodes
      ? reserveEpisodes(world, episodes, { profile, beats: this.beats, numBuffers, stallSeconds, crew })
      : undefined
    const binders = Object.entries(conversations).map(
      ([name, phases]) => [name, talk!.reserveConversations(world, name, phases, plan)] as const,
    )
    this.#episodes = bindEpisodes?.()
    this.#conversations = new Map(binders.map(([name, bind]) => [name, bind()]))
    this.#trainings = [...(this.#episodes === undefined ? [] : [this.#episodes]), ...this.#conversations.values()]
  }

  /** The folder of checkpoints, if any; from the first update on it may be a numbered one. */
  get folder(): string | undefined {
    return this.#folder?.path
  }

  /** Updates done, and supervised steps. */
  get update(): number {
    return this.#sum('update')
  }

  /** Environment steps done, of all recorded lanes; and ticks of conversations. */
  get steps(): number {
    return this.#sum('steps')
  }

  /** Seconds of collecting and learning. */
  get seconds(): number {
    return this.#sum('seconds')
  }

  /** The number of a checkpoint saved now. */
  get checkpointNumber(): number {
    return this.#sum('checkpointNumber')
  }

  #sum(figure: 'update' | 'steps' | 'seconds' | 'checkpointNumber'): number {
    return this.#trainings.reduce((sum, training) => sum + training[figure], 0)
  }

  /** The only learner's rollout, live until the next update. @throws InputError for several, or conversations. */
  get rollout(): { readonly table: Table } {
    const [only, ...others] = Object.values(this.rollouts)
    if (only !== undefined && others.length === 0) return only
    const names = Object.keys(this.rollouts)
    throw new InputError(
      'trainer.rollout',
      `${names.length} learners of episodes`,
      names.length === 0 ? 'one' : `trainer.rollouts[name] with one of ${names.join(', ')}`,
    )
  }

  /** The rollouts of all learners of episodes, by cohort name. */
  get rollouts(): Readonly<Record<string, { readonly table: Table }>> {
    return this.#episodes?.rollouts ?? {}
  }

  /**
   * Statistics of a cohort or set of weights (`<cohort>.set1`); default the only one.
   * @throws InputError for others.
   */
  progress(name?: string): ProgressOf<C> {
    const found = name ?? (this.#names.length === 1 ? this.#names[0]! : undefined)
    const known = [...(this.#episodes?.learners ?? []), ...this.#conversations.keys()]
    if (found === undefined || !known.includes(found)) throw unknownWord('cohort', String(name), known)
    const conversations = this.#conversations.get(found)
    return (conversations?.progress ?? this.#episodes!.progress(found)) as ProgressOf<C>
  }

  /**
   * Trains, yielding the metrics of each update: cohorts of episodes until `totalSteps` environment steps are done (in
   * whole updates), cohorts of conversations through their phases. All cohorts of episodes update together; others take
   * turns. Break out of the loop to stop; call it again to continue.
   *
   * @throws InputError if totalSteps is not a number ≥ 1 and there are episodes, an option is unknown, or a tick fails;
   * before the first update, if the trainer's `folder` has another training, or later checkpoints of this one.
   */
  async *updates(goal: Goal = {}): AsyncGenerator<MetricsOf<C>, void, undefined> {
    checkGoal(goal)
    const isDone = (training: Training<unknown>) => training.isDone(goal)
    this.#trainings.every(isDone) // Checks the goal.
    await this.#settleFolder((folder) => this.restore(folder))
    let since = performance.now() // Counts the time of all work of a training, and of the work between its updates.
    while (!this.#trainings.every(isDone)) {
      for (const training of this.#trainings) {
        if (isDone(training)) continue
        if (this.keepsState && training === this.#episodes) this.#remember()
        if (this.#episodes !== undefined) this.#episodes.since = since
        const metrics = await training.advance(goal)
        since = performance.now()
        if (metrics === undefined) continue // It was stopped, so it is done.
        if (this.#trace !== undefined) this.#sampleMemory()
        await this.#log.log(this.update, metrics, this.#nameOf(training))
        yield metrics as MetricsOf<C>
        await nextTurn()
      }
    }
    this.#log.isDone = true
    await this.#log.settled()
  }

  /** Checks that the folder can take this training's checkpoints, or takes a numbered one. */
  async #settleFolder(restore?: (folder: string) => Promise<unknown>): Promise<void> {
    await this.#folder?.settle({
      number: this.checkpointNumber,
      compareCheckpoint: (subject, manifest) => void this.#compareCheckpoint(subject, manifest),
      compareRun: (subject, run) => void this.#compareRun(subject, run),
      restore,
    })
    this.#log.folder = this.folder
  }

  /** The cohort's name of a training of conversations, if there are other trainings. */
  #nameOf(training: Training<unknown>): string | undefined {
    if (this.#trainings.length === 1) return undefined
    return [...this.#conversations].find(([, each]) => each === training)?.[0]
  }

  /**
   * Trains on a table's rollouts instead of collecting, as written by `writeArrow` and read by `readArrow` (several
   * files of one run as one table): one update per rollout, `epochs` times. Whole episodes, as from `recordEpisodes`,
   * are laid side by side as rollouts. Values and action probabilities are recomputed with the current weights. Steps
   * are not counted, lanes stay where they are, and `trainer.rollout` is the table's last rollout. Schedules count past
   * updates and those of this call. A restored training skips the updates that it has `done` of these passes.
   *
   * @throws InputError unless exactly one cohort of episodes learns; if the table does not fit it (the error names the
   * column), an option is unknown or out of range, or a correction is requested and the algorithm does not take outside
   * advantages.
   * @example
   * for await (const { update, policyLoss } of trainer.learn(await readArrow('rollout.arrow'), { correction: 'vtrace' }))
   *   console.log(update, policyLoss)
   */
  async *learn(table: Table | ArrowTable, options: LearnOptions = {}): AsyncGenerator<MetricsOf<C>, void, undefined> {
    const { epochs, done: begun, signal, ...correction } = learnOptions(options)
    if (typeof table !== 'object' || table === null || !('numRows' in table)) {
      throw new InputError('trainer.learn(table)', show(table), 'a table, such as from readArrow')
    }
    const episodes = this.#episodes
    if (episodes === undefined || this.#trainings.length > 1) {
      const got = `cohorts ${this.#names.join(', ')}`
      throw new InputError('trainer.learn(table)', got, 'a cohort of episodes that learns')
    }
    const { cohort, algorithm } = episodes.sole('trainer.learn(table)')
    if (cohort.ahead !== null) {
      throw new InputError('trainer.learn(table)', 'a trainer with actors', 'a trainer without actors')
    }
    if (correction.correction !== 'none' && algorithm.takesAdvantages !== true) {
      const got = `${correction.correction}, and ${algorithm.id}, which takes no advantages`
      throw new InputError('trainer.learn(table, { correction })', got, 'none')
    }
    await this.#settleFolder((folder) => this.restore(folder))
    const { rolloutsFor } = await import('../recorded/recorded-rollouts.ts')
    const rollouts = await rolloutsFor(cohort, algorithm, table, correction.correction)
    const total = epochs * rollouts.count
    if (begun > total) throw new InputError('trainer.learn(table, { done })', String(begun), `at most ${total}`)
    let since = performance.now()
    for (let done = begun; done < total && signal?.aborted !== true; done++) {
      if (this.keepsState) this.#remember()
      episodes.since = since
      const metrics = await episodes.learnFrom(rollouts, done % rollouts.count, total - done, correction)
      since = performance.now()
      if (this.#trace !== undefined) this.#sampleMemory()
      await this.#log.log(this.update, metrics)
      yield metrics as MetricsOf<C>
      await nextTurn()
    }
    this.#log.isDone = true
    await this.#log.settled()
  }

  /** Ends workers, frees devices (a later update takes both again), and closes loggers. */
  close(): void {
    void this.#log.close()
    for (const training of this.#trainings) training.close()
    this.#folder?.release()
    this.world.close()
  }

  /** Abandons the running update, in which other threads are stuck: its promise is rejected with the reason. */
  giveUp(reason: Error): void {
    this.#episodes?.giveUp(reason)
  }

  /** The lanes of each thread that could be stuck in an environment or a policy, as texts. */
  get shares(): string[] {
    if (this.#episodes === undefined) return [this.#names.join(', ')]
    return Array.from({ length: this.world.threads.count }, (_, i) => shareOf(this.world)(i))
  }

  /** The calls in which a thread can be, indexed by the last word of its beat + 1. */
  get calls(): string[] {
    return callsOf(this.#episodes?.promises ?? [])
  }

  /**
   * The intervals of work of each thread, and the process's memory after updates and now, as a JSON document for
   * Chrome's tracing view and Perfetto (ui.perfetto.dev). Each thread keeps its first 200,000 intervals. Workers of
   * cohorts of episodes come first.
   * @throws InputError if the trainer was not made with `profile: true`.
   */
  trace(): string {
    if (this.#trace === undefined)
      throw new InputError('trainer.trace()', 'a trainer without a profile', 'the option profile: true')
    const traces = [this.#trace, ...this.#trainings.flatMap(({ traces }) => traces)]
    return chromeTrace(traces, [...this.#memory, sampleMemory()])
  }

  /** Asking may block on a busy machine, so not after each of many short updates. */
  #sampleMemory(): void {
    const { time } = this.#memory.at(-1) ?? { time: 0 }
    if (performance.timeOrigin + performance.now() - time >= MEMORY_SAMPLE_MS) this.#memory.push(sampleMemory())
  }

  /** Writes a cohort's newest conversations, by group and member, as Arrow. @throws InputError if it cannot. */
  async writeTrajectories(path: string, name?: string): Promise<void> {
    const names = [...this.#conversations.keys()]
    const found = this.#conversations.get(name ?? (names.length === 1 ? names[0]! : ''))
    if (found === undefined) throw unknownWord('cohort of conversations', String(name), names)
    await found.writeTrajectories(path)
  }

  /**
   * Writes a checkpoint to `<folder>/checkpoints/<number>` and returns its path. Training continues from it exactly as
   * if it had not stopped. Default: the trainer's folder.
   *
   * @throws InputError if there is no folder, it cannot be written, or during a tick or an update; after a failed
   * update, its error.
   */
  async save(folder?: string): Promise<string> {
    folderOf('trainer.save(folder)', folder, this.folder)
    const settled = this.#episodes?.failure === undefined ? undefined : this.#settled
    if (settled === undefined) for (const training of this.#trainings) training.checkBetween('trainer.save()')
    else for (const undo of this.#episodes!.undos) undo.takeBack()
    // Copy before any await: the caller need not wait for the write before the next update.
    const { tensors, manifest } = settled ?? this.#state()
    const settling = folder === undefined ? this.#settleFolder() : Promise.resolve()
    const saving = Promise.all([import('../folder/checkpoint.ts'), settling]).then(([{ writeCheckpoint }]) =>
      writeCheckpoint(folder ?? this.folder!, tensors, manifest, (path) => this.#keepBackends(path)),
    )
    void saving.then(
      () => {
        for (const training of this.#trainings) training.kept?.(manifest)
      },
      () => {}, // The caller gets the error.
    )
    // Weights of language models and a backend's state are not copied: training waits until they are written.
    for (const training of this.#conversations.values()) training.waitFor(saving)
    return saving
  }

  /** A copy of what each cohort would save had it trained alone. @throws InputError as `splitState` does. */
  splitState(): ReadonlyMap<string, SavedState> {
    for (const training of this.#trainings) training.checkBetween('trainer.splitState()')
    return splitState(this.#state(), this.world)
  }

  /** Saves backends' outside state under the checkpoint's name. Returns the manifest's entry. */
  async #keepBackends(path: string): Promise<Manifest['backends']> {
    const kept: Record<string, BackendRecord> = {}
    for (const [name, training] of this.#conversations) {
      const record = await training.keepBackend(path)
      if (record !== undefined) kept[name] = record
    }
    return Object.keys(kept).length === 0 ? undefined : kept
  }

  /** Keeps the state before an update: a copy, but for columns in which the update can be undone. */
  #remember(): void {
    const { undos } = this.#episodes!
    for (const undo of undos) undo.begin()
    const undone = new Set(undos.flatMap(({ columns }) => columns))
    const names = () => this.world.columns().flatMap(({ planned, column }) => (undone.has(column) ? planned.name : []))
    this.#undone ??= new Set(names())
    this.#settled = this.#state(this.#settled, this.#undone)
  }

  /**
   * A copy of the saved state, reusing the memory of a former one. Neither `uncopied` columns are copied, nor what only updates of
   * conversations change.
   */
  #state(former?: SavedState, uncopied: ReadonlySet<string> = new Set()): SavedState {
    const { world } = this
    const held = [...this.#conversations.keys()].flatMap((name) => HELD_PARTS.map((part) => `${name}.${part}.`))
    const parts = this.#trainings.map((training) => training.saved())
    const instead = new Map(parts.flatMap(({ instead = [] }) => [...instead]))
    const columns = savedTensors(world, instead).map((tensor, i) => {
      if (uncopied.has(tensor.name) || held.some((part) => `${tensor.name}.`.startsWith(part))) return tensor
      const bytes = former?.tensors[i]?.bytes ?? new Uint8Array(tensor.bytes.byteLength)
      bytes.set(tensor.bytes)
      return { ...tensor, bytes }
    })
    const manifest = {
      colonnade: VERSION,
      node: runtime,
      kernels: world.kernelBuild,
      native: describeNative(world.kernelBuild),
      seed: world.seed,
      update: this.checkpointNumber,
      steps: this.steps,
      seconds: this.seconds,
      cohorts: Object.assign({}, ...parts.map(({ cohorts }) => cohorts)),
    }
    return { tensors: [...columns, ...parts.flatMap(({ tensors }) => tensors)], manifest }
  }

  /**
   * Restores the folder's newest checkpoint, or that of the given number. Returns warnings for the user. The goals of
   * steps and updates may differ, so that a finished training can continue. Default: the trainer's folder.
   *
   * @throws InputError if there is none, it is corrupt, or it is of another training; nothing is changed then.
   */
  async restore(folder?: string, number?: number): Promise<{ readonly warnings: readonly string[] }> {
    const source = folderOf('trainer.restore(folder)', folder, this.folder)
    for (const training of this.#trainings) training.checkBetween('trainer.restore()')
    const { readCheckpoint } = await import('../folder/checkpoint.ts')
    const { differences, restoreTensors } = await import('../folder/restore-tensors.ts')
    const { path, manifest, tensors } = await readCheckpoint(source, number)
    const subject = `checkpoint ${path}`
    const warnings = this.#compareCheckpoint(subject, manifest)
    // First what may be missing: the state of an outside backend.
    for (const training of this.#conversations.values()) await training.loadBackend(path, manifest)
    for (const training of this.#trainings) await training.halt?.()
    restoreTensors(subject, this.world, tensors)
    for (const training of this.#trainings) await training.restore(manifest, tensors)
    return { warnings: [...warnings, ...differences(manifest, this.world)] }
  }

  /** Returns warnings. @throws InputError that names the first difference between a checkpoint and this training. */
  #compareCheckpoint(subject: string, manifest: Manifest): string[] {
    compare(subject, 'seed', manifest.seed, this.world.seed)
    compare(subject, 'cohorts', Object.keys(manifest.cohorts), this.#names)
    return this.#trainings.flatMap((training) => training.compareCheckpoint(subject, manifest))
  }

  /** The same for a run, which has one cohort. */
  #compareRun(subject: string, run: RunRecord): string[] {
    compare(subject, 'seed', run.seed, this.world.seed)
    compare(subject, 'number of cohorts', 1, this.world.drafts.length)
    return this.#trainings[0]!.compareRun(subject, run)
  }
}
