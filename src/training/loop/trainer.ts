/**
 * The trainer: it lets a world collect and its cohorts learn, update by update, each cohort by its own algorithm and with a horizon
 * of its own, and saves and restores the whole of it.
 */
import type { AlgorithmDefinition } from '../../algorithms/algorithm.ts'
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
import type { Metrics } from '../../base/metrics.ts'
import { VERSION } from '../../base/version.ts'
import { describeNative } from '../../kernels/bind.ts'
import type { ArrowTable } from '../../tables/arrow.ts'
import type { Table } from '../../tables/table.ts'
import type { Cohort } from '../../world/cohort.ts'
import type { ConversationCohort } from '../../world/conversations/cohort.ts'
import { checkWorld, type World } from '../../world/world.ts'
import { checkBackend } from '../backends/backend.ts'
import type { BackendRecord, Manifest } from '../folder/checkpoint.ts'
import type { RunRecord } from '../folder/run-folder.ts'
import {
  compare,
  differences,
  folderOf,
  restoreTensors,
  type SavedState,
  savedTensors,
  splitState,
} from '../folder/snapshot.ts'
import { TrainerFolder } from '../folder/trainer-folder.ts'
import { type LearnOptions, learnOptions } from '../recorded/learn-options.ts'
import type { TextMetrics } from '../text/evaluate/metrics.ts'
import { checkAhead, threadsFor } from '../threads/actors.ts'
import { refuseInWorker, shareOf } from '../threads/team.ts'
import type { EpisodeProgress } from './agents.ts'
import { checkCollector } from './collector.ts'
import { type ConversationProgress, type ConversationTraining, reserveConversations } from './conversations.ts'
import { type EpisodeTraining, reserveEpisodes } from './episodes.ts'
import { type Algorithms, checkThreads, isAlgorithm, isOneCohorts, type Phases, phasesOf } from './given-algorithms.ts'
import type { UpdateMetrics } from './metrics.ts'
import { checkLoggers, metricsOfAlgorithms, TrainerLog } from './trainer-log.ts'
import { checkTrainerOptions, type TrainerOptions } from './trainer-options.ts'
import { checkGoal, type Goal, nextTurn, type Training } from './training.ts'

/** What an update tells, by the kind of the cohort. */
export type MetricsOf<C extends Cohort> = C extends ConversationCohort ? TextMetrics : UpdateMetrics
/** What became of a cohort so far, by its kind. */
export type ProgressOf<C extends Cohort> = C extends ConversationCohort ? ConversationProgress : EpisodeProgress

/**
 * Gives the world's cohorts learners. One algorithm, or one list of phases, serves a world of one cohort; for several, name the
 * cohort of each. Cohorts of episodes without an algorithm act beside the others, and are not recorded.
 *
 * @throws InputError if the world's memory is taken already, a cohort is unknown, an algorithm does not fit it, several
 * threads are asked for and a definition has no module from which they could make it, or a worker's import calls this.
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
  refuseInWorker('createTrainer')
  checkWorld('createTrainer(world, algorithms)', world)
  const named = isOneCohorts(algorithms) ? { [soleCohort(world)]: algorithms } : (algorithms ?? {})
  return new Trainer<C>(world, named as Readonly<Record<string, Algorithms>>, options)
}

function soleCohort(world: World): string {
  const [first, ...others] = world.names
  if (others.length === 0) return first!
  throw new InputError(
    'createTrainer(world, algorithm)',
    `one algorithm for ${world.names.length} cohorts`,
    `an object with one of ${world.names.join(', ')} for each key`,
  )
}

/** Milliseconds between two looks at the memory, at least. */
const MEMORY_SAMPLE_MS = 100

/** Trains the cohorts of a world that have an algorithm. `C` is their kinds. */
export class Trainer<C extends Cohort = Cohort> {
  readonly world: World<C>
  /** Of the cohorts that learn. */
  readonly #names: readonly string[]
  readonly #episodes: EpisodeTraining | undefined
  readonly #conversations: ReadonlyMap<string, ConversationTraining>
  readonly #trainings: readonly Training<UpdateMetrics | TextMetrics>[]
  readonly #folder: TrainerFolder | undefined
  /** Shows each thread's progress: one mark of its clock at a time. */
  readonly beats: Int32Array
  /** What the caller's thread did when, and what the process took of the memory; where a profile is kept. */
  readonly #trace: Float64Array | undefined
  readonly #memory: MemorySample[] = []
  /** What the trainer was between the last two updates, and a checkpoint of it; kept where `keepsState`. */
  #settled: SavedState | undefined
  /** What an update's metrics tell, by name, of all algorithms. */
  readonly metrics: Metrics
  readonly #log: TrainerLog
  /** Whether an update that is given up still leaves a state to save: that before it. Costs a copy of the state an update. */
  keepsState = false

  /** Use `createTrainer`. */
  constructor(world: World<C>, algorithms: Readonly<Record<string, Algorithms>>, options: TrainerOptions = {}) {
    const { profile, folder, ifExists, backend, collector, stallSeconds, loggers } = checkTrainerOptions(options)
    if (Object.keys(algorithms).length === 0) {
      throw new InputError('createTrainer(world, algorithms)', 'none', 'at least one algorithm')
    }
    const episodes: Record<string, AlgorithmDefinition> = {}
    const conversations: Record<string, Phases> = {}
    const { threads, actors, maxStaleness } = threadsFor(Object.values(algorithms).filter(isAlgorithm), options)
    for (const [name, algorithm] of Object.entries(algorithms)) {
      if (!world.names.includes(name)) throw unknownWord('cohort', name, world.names)
      if (world.draft(name).kind === 'conversations') conversations[name] = phasesOf(name, algorithm)
      else if (isAlgorithm(algorithm)) episodes[name] = checkThreads(name, algorithm, threads)
      else throw new InputError(`algorithm of ${name}`, show(algorithm), 'one of episodes, like ppo()')
    }
    this.#names = [...Object.keys(episodes), ...Object.keys(conversations)]
    const learning = { ...episodes, ...conversations }
    const isSelfPlay = world.drafts.some((draft) => draft.kind === 'episodes' && draft.sets.selfPlay !== null)
    this.metrics = metricsOfAlgorithms(learning, isSelfPlay)
    const { metrics } = this
    this.#log = new TrainerLog(checkLoggers(loggers), { world, algorithms: learning, metrics })
    checkBackend(backend, Object.keys(conversations).length)
    checkCollector(collector, Object.keys(conversations).length)
    if (actors > 0) checkAhead(world, episodes)
    world.split(threads, actors)
    this.world = world
    this.#folder = folder === undefined ? undefined : new TrainerFolder(folder, ifExists)
    const hasEpisodes = Object.keys(episodes).length > 0
    this.beats = createBeats(hasEpisodes ? threads : 1)
    world.clock.beat = this.beats.subarray(0, BEAT_WORDS)
    this.#trace = profile ? traceBuffer() : undefined
    world.clock.trace = this.#trace
    // First all say what columns they need; then the first that is bound takes the memory.
    const numBuffers = actors > 0 ? maxStaleness + 1 : undefined
    const bindEpisodes = hasEpisodes
      ? reserveEpisodes(world, episodes, { profile, beats: this.beats, numBuffers, stallSeconds })
      : undefined
    const binders = Object.entries(conversations).map(
      ([name, phases]) => [name, reserveConversations(world, name, phases, { profile, backend, collector })] as const,
    )
    this.#episodes = bindEpisodes?.()
    this.#conversations = new Map(binders.map(([name, bind]) => [name, bind()]))
    this.#trainings = [...(this.#episodes === undefined ? [] : [this.#episodes]), ...this.#conversations.values()]
  }

  /**
   * The folder in which it keeps its checkpoints; undefined where it was given none. It may be a numbered one beside the one that was
   * given, from the first update or checkpoint on.
   */
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

  /** The number of a checkpoint that is saved now: all done after which there can be one. */
  get checkpointNumber(): number {
    return this.#sum('checkpointNumber')
  }

  #sum(figure: 'update' | 'steps' | 'seconds' | 'checkpointNumber'): number {
    return this.#trainings.reduce((sum, training) => sum + training[figure], 0)
  }

  /**
   * The rollout of the only learner: its columns as they stand, live until the next update.
   * @throws InputError if there are several, then it is `rollouts[name]`; or it is one of conversations.
   */
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
   * What became of a cohort so far, or of one of its sets of weights (`<cohort>.set1`); of the only learner where no name is given.
   * @throws InputError for a cohort that does not learn, and where there are several and none is named.
   */
  progress(name?: string): ProgressOf<C> {
    const found = name ?? (this.#names.length === 1 ? this.#names[0]! : undefined)
    const known = [...(this.#episodes?.learners ?? []), ...this.#conversations.keys()]
    if (found === undefined || !known.includes(found)) throw unknownWord('cohort', String(name), known)
    const conversations = this.#conversations.get(found)
    return (conversations?.progress ?? this.#episodes!.progress(found)) as ProgressOf<C>
  }

  /**
   * Trains, yielding what each update did: cohorts of episodes until `totalSteps` environment steps are done (in whole updates),
   * those of conversations through their phases. All cohorts of episodes have their updates together; where there are others,
   * they take turns. Break out of the loop to stop; call it again to continue.
   *
   * @throws InputError if totalSteps is not a number ≥ 1 and there are episodes, an option is unknown, or something is wrong in a
   * tick; before the first one, if the trainer's `folder` holds another training, or checkpoints that this one has yet to come to.
   */
  async *updates(goal: Goal = {}): AsyncGenerator<MetricsOf<C>, void, undefined> {
    checkGoal(goal)
    const isDone = (training: Training<unknown>) => training.isDone(goal)
    this.#trainings.every(isDone) // Looks at the goal.
    await this.#settleFolder((folder) => this.restore(folder))
    while (!this.#trainings.every(isDone)) {
      for (const training of this.#trainings) {
        if (isDone(training)) continue
        if (this.keepsState && training === this.#episodes) this.#settled = this.#state(this.#settled)
        const metrics = await training.advance(goal)
        if (metrics === undefined) continue // It was stopped, so it is done.
        if (this.#trace !== undefined) this.#sampleMemory()
        this.#log.log(this.update, metrics, this.#nameOf(training))
        yield metrics as MetricsOf<C>
        await nextTurn()
      }
    }
    this.#log.isDone = true
    await this.#log.settled()
  }

  /** Makes sure that the folder will take this training's checkpoints, or takes a numbered one. */
  async #settleFolder(restore?: (folder: string) => Promise<unknown>): Promise<void> {
    await this.#folder?.settle({
      number: this.checkpointNumber,
      compareCheckpoint: (subject, manifest) => void this.#compareCheckpoint(subject, manifest),
      compareRun: (subject, run) => void this.#compareRun(subject, run),
      restore,
    })
    this.#log.folder = this.folder
  }

  /** The name of the cohort that a training of conversations is of, where there are other trainings. */
  #nameOf(training: Training<unknown>): string | undefined {
    if (this.#trainings.length === 1) return undefined
    return [...this.#conversations].find(([, each]) => each === training)?.[0]
  }

  /**
   * Learns from rollouts in a table, like those that `writeArrow` has written and `readArrow` reads back (several files of one run
   * as one table), in place of collecting: an update for each, `epochs` times over. Whole episodes, as `recordEpisodes` gives them,
   * are laid side by side as rollouts. What rows are worth and how likely their
   * actions are is worked out anew with the weights as they are. Steps are not counted, lanes go on where they stand, and
   * `trainer.rollout` is the table's last one. Schedules go by the updates done and those of this call. A training that was restored
   * goes on behind the updates that it has `done` of these passes.
   *
   * @throws InputError if not one cohort of episodes learns, the table does not fit it (the error names the column), an option is
   * unknown or out of range, or the algorithm takes no advantages from elsewhere, and a correction is asked for.
   * @example
   * for await (const { update, policyLoss } of trainer.learn(await readArrow('rollout.arrow'), { correction: 'vtrace' }))
   *   console.log(update, policyLoss)
   */
  async *learn(table: Table | ArrowTable, options: LearnOptions = {}): AsyncGenerator<MetricsOf<C>, void, undefined> {
    const { epochs, done: begun, signal, ...correction } = learnOptions(options)
    if (typeof table !== 'object' || table === null || !('numRows' in table)) {
      throw new InputError('trainer.learn(table)', show(table), 'a table, like those that readArrow gives')
    }
    const episodes = this.#episodes
    if (episodes === undefined || this.#trainings.length > 1) {
      throw new InputError('trainer.learn(table)', `cohorts ${this.#names.join(', ')}`, 'one of episodes that learns')
    }
    const { cohort, algorithm } = episodes.sole('trainer.learn(table)')
    if (cohort.ahead !== null) {
      throw new InputError('trainer.learn(table)', 'a trainer with actors, which collect ahead', 'one without')
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
    for (let done = begun; done < total && signal?.aborted !== true; done++) {
      if (this.keepsState) this.#settled = this.#state(this.#settled)
      const metrics = await episodes.learnFrom(rollouts, done % rollouts.count, total - done, correction)
      if (this.#trace !== undefined) this.#sampleMemory()
      this.#log.log(this.update, metrics)
      yield metrics as MetricsOf<C>
      await nextTurn()
    }
    this.#log.isDone = true
    await this.#log.settled()
  }

  /**
   * Sends the workers home, and gives back what policies hold of devices; a later update takes both again. Loggers write what is left
   * and end.
   */
  close(): void {
    void this.#log.close()
    for (const training of this.#trainings) training.close()
    this.#folder?.release()
    this.world.close()
  }

  /** Gives up the update under way, in which other threads are stuck: its promise is rejected with the reason. */
  giveUp(reason: Error): void {
    this.#episodes?.giveUp(reason)
  }

  /** The lanes of each thread that could be stuck in an environment or a policy, in words. */
  get shares(): string[] {
    if (this.#episodes === undefined) return [this.#names.join(', ')]
    return Array.from({ length: this.world.threads.count }, (_, i) => shareOf(this.world)(i))
  }

  /** The calls in which a thread can be, by the last word of its beat + 1. */
  get calls(): string[] {
    return callsOf(this.#episodes?.promises ?? [])
  }

  /**
   * What each thread did when, and what the process took of the memory after updates and now, for Chrome's tracing view and
   * Perfetto (ui.perfetto.dev): a JSON document. Each thread keeps its first 200,000 intervals. Workers of cohorts of episodes
   * come first.
   * @throws InputError if the trainer was not made with `profile: true`.
   */
  trace(): string {
    if (this.#trace === undefined) throw new InputError('trainer.trace()', 'a trainer that keeps none', 'profile: true')
    const traces = [this.#trace, ...this.#trainings.flatMap(({ traces }) => traces)]
    return chromeTrace(traces, [...this.#memory, sampleMemory()])
  }

  /** On a busy machine the process may wait for the answer, so not after each of many short updates. */
  #sampleMemory(): void {
    const { time } = this.#memory.at(-1) ?? { time: 0 }
    if (performance.timeOrigin + performance.now() - time >= MEMORY_SAMPLE_MS) this.#memory.push(sampleMemory())
  }

  /**
   * Writes the conversations of a cohort's newest update, of the only one that learns where no name is given, sorted by group and
   * member, as an Arrow file.
   * @throws InputError if there is no such cohort, or the file cannot be written.
   */
  async writeTrajectories(path: string, name?: string): Promise<void> {
    const names = [...this.#conversations.keys()]
    const found = this.#conversations.get(name ?? (names.length === 1 ? names[0]! : ''))
    if (found === undefined) throw unknownWord('cohort of conversations', String(name), names)
    await found.writeTrajectories(path)
  }

  /**
   * Writes a checkpoint to `<folder>/checkpoints/<number>` and returns its path: everything that training needs to go on
   * exactly as if it had not stopped. The folder is the trainer's where none is given.
   *
   * @throws InputError if there is no folder, it cannot be written, or in the middle of a tick or an update; after an update that
   * failed, its error.
   */
  async save(folder?: string): Promise<string> {
    folderOf('trainer.save(folder)', folder, this.folder)
    const settled = this.#episodes?.failure === undefined ? undefined : this.#settled
    if (settled === undefined) for (const training of this.#trainings) training.checkBetween('trainer.save()')
    // Copied before anything is waited for: a caller need not wait for the writing before the next update.
    const { tensors, manifest } = settled ?? this.#state()
    const settling = folder === undefined ? this.#settleFolder() : Promise.resolve()
    const saving = Promise.all([import('../folder/checkpoint.ts'), settling]).then(([{ writeCheckpoint }]) =>
      writeCheckpoint(folder ?? this.folder!, tensors, manifest, (path) => this.#keepBackends(path)),
    )
    // What a backend keeps is not copied: it goes on when that is written.
    for (const training of this.#conversations.values()) training.waitFor(saving)
    return saving
  }

  /**
   * A copy of what each cohort would save had it learned alone, by name: see `splitState` of `snapshot.ts`.
   * @throws InputError as that does, and in the middle of a tick or an update.
   */
  splitState(): ReadonlyMap<string, SavedState> {
    for (const training of this.#trainings) training.checkBetween('trainer.splitState()')
    return splitState(this.#state(), this.world)
  }

  /** Lets backends keep what is in no column, under names that begin with the checkpoint's; returns what it says of them. */
  async #keepBackends(path: string): Promise<Manifest['backends']> {
    const kept: Record<string, BackendRecord> = {}
    for (const [name, training] of this.#conversations) {
      const record = await training.keepBackend(path)
      if (record !== undefined) kept[name] = record
    }
    return Object.keys(kept).length === 0 ? undefined : kept
  }

  /** A copy of all that is saved, in the memory of a former one if there is one. */
  #state(former?: SavedState): SavedState {
    const { world } = this
    const parts = this.#trainings.map((training) => training.saved())
    const instead = new Map(parts.flatMap(({ instead = [] }) => [...instead]))
    const columns = savedTensors(world, instead).map((tensor, i) => {
      const bytes = former?.tensors[i]?.bytes ?? new Uint8Array(tensor.bytes.byteLength)
      bytes.set(tensor.bytes)
      return { ...tensor, bytes }
    })
    const manifest = {
      colonnade: VERSION,
      node: process.version,
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
   * Takes up the newest checkpoint of the folder, or that of the given number. Returns what a user should be warned of. How many
   * steps and updates there are to be need not be what it was: a training that was complete then goes on. The folder is the
   * trainer's where none is given.
   *
   * @throws InputError if there is none, it is corrupt, or it is of another training; then nothing is changed.
   */
  async restore(folder?: string, number?: number): Promise<{ readonly warnings: readonly string[] }> {
    const source = folderOf('trainer.restore(folder)', folder, this.folder)
    for (const training of this.#trainings) training.checkBetween('trainer.restore()')
    const { readCheckpoint } = await import('../folder/checkpoint.ts')
    const { path, manifest, tensors } = await readCheckpoint(source, number)
    const subject = `checkpoint ${path}`
    const warnings = this.#compareCheckpoint(subject, manifest)
    // First what may not be there: of a backend elsewhere.
    for (const training of this.#conversations.values()) await training.loadBackend(path, manifest)
    for (const training of this.#trainings) await training.halt?.()
    restoreTensors(subject, this.world, tensors)
    for (const training of this.#trainings) await training.restore(manifest, tensors)
    return { warnings: [...warnings, ...differences(manifest, this.world)] }
  }

  /** Returns what to warn of. @throws InputError that names the first part in which a checkpoint is of another training. */
  #compareCheckpoint(subject: string, manifest: Manifest): string[] {
    compare(subject, 'seed', manifest.seed, this.world.seed)
    compare(subject, 'cohorts', Object.keys(manifest.cohorts), this.#names)
    return this.#trainings.flatMap((training) => training.compareCheckpoint(subject, manifest))
  }

  /** The same of a run, which has one cohort. */
  #compareRun(subject: string, run: RunRecord): string[] {
    compare(subject, 'seed', run.seed, this.world.seed)
    compare(subject, 'number of cohorts', 1, this.world.drafts.length)
    return this.#trainings[0]!.compareRun(subject, run)
  }
}
