/**
 * The trainer: it lets a world fill rollouts and learners learn from them, update by update, counts what happened, and
 * saves and restores the whole of it.
 */
import type { AlgorithmDefinition, Learner } from '../algorithms/algorithm.ts'
import {
  BEAT_WORDS,
  type Clock,
  chromeTrace,
  createBeats,
  traceBuffer,
  Work,
  type WorkName,
  workNames,
} from '../clock.ts'
import { asEpisodes, closeRollout, type EpisodeCohort, type EpisodeDraft } from '../cohorts/episodes.ts'
import { type Columns, column, type Plan, saved } from '../components/column.ts'
import { recordOf, withoutModule } from '../definition.ts'
import { actionMaskWidth } from '../environments/environment.ts'
import { InputError, show, unknownWord } from '../errors.ts'
import type { Tensor } from '../safetensors.ts'
import { type RolloutOrigin, rolloutTable, type Table } from '../tables/table.ts'
import { collectShare } from '../tick.ts'
import { VERSION } from '../version.ts'
import { checkWorld, type World } from '../world.ts'
import type { Manifest } from './checkpoint.ts'
import { type CohortMetrics, meanAndStd, noMetrics, type UpdateMetrics } from './metrics.ts'
import type { RunRecord } from './run-folder.ts'
import { compare, differences, folderOf, restoreTensors, savedTensors } from './snapshot.ts'
import { Aborted, CONTROL_WORDS, endWhenDropped, type LanesOrder, refuseInWorker, Team } from './team.ts'

/** Episodes over which returns are averaged, as is usual in the field. */
const RECENT_EPISODES = 100

/** What became of a cohort's episodes so far. */
export interface Progress {
  readonly episodes: number
  /** Mean and deviation of the last 100 returns (of all, while they are fewer); NaN before the first. */
  readonly episodeReturnLast100: { readonly mean: number; readonly std: number }
  /** Environment steps after which the mean of the last 100 returns first reached the environment's threshold, or null. */
  readonly solvedAtStep: number | null
  /** Seconds of training at the end of the rollout in which it did, or null. */
  readonly solvedAtSeconds: number | null
}

/** A cohort that learns. */
interface Pupil {
  readonly cohort: EpisodeCohort
  readonly algorithm: AlgorithmDefinition
  readonly learner: Learner
  readonly accounts: Columns<ReturnType<typeof accountsPlan>>
  episodes: number
  solvedAtStep: number | null
  solvedAtSeconds: number | null
}

/** What a checkpoint has of a trainer. */
interface SavedState {
  readonly tensors: readonly Tensor[]
  readonly manifest: Parameters<typeof import('./checkpoint.ts').writeCheckpoint>[2]
}

/** What thread 0 measured in an update. */
interface Measured {
  readonly cohorts: Readonly<Record<string, CohortMetrics>>
  readonly rolloutSeconds: number
  readonly updateSeconds: number
}

function accountsPlan() {
  return {
    /** Returns and lengths of the last episodes, a ring. */
    recent: saved(column('f64', RECENT_EPISODES)),
    recentLength: saved(column('f64', RECENT_EPISODES)),
    /** Of this rollout: episodes, sum of returns, sum of lengths. */
    totals: column('f64', 3),
  } satisfies Plan
}

/**
 * Gives the world's cohorts recorders and learners. One algorithm serves a world of one cohort; for several, name the
 * cohort of each. Cohorts without an algorithm act, and are not recorded.
 *
 * @throws InputError if the world's memory is taken already, a cohort is unknown, an algorithm does not fit it, several
 * threads are asked for and a definition has no module from which they could make it, or a worker's import calls this.
 * @example
 * const trainer = createTrainer(world, ppo({ numSteps: 128 }))
 * const trainer = createTrainer(world, { hunter: ppo(), hare: ppo({ gamma: 0.9 }) })
 */
export function createTrainer(
  world: World,
  algorithms: AlgorithmDefinition | Readonly<Record<string, AlgorithmDefinition>>,
  options: TrainerOptions = {},
): Trainer {
  refuseInWorker('createTrainer')
  checkWorld('createTrainer(world, algorithms)', world)
  return new Trainer(world, isAlgorithm(algorithms) ? soleCohort(world, algorithms) : algorithms, options)
}

/** How a trainer goes about its work. */
export interface TrainerOptions {
  /**
   * How many threads share the lanes and the minibatches: this one and workers beside it. Default 1. The results are the
   * same bits for any number; what can be shared of a minibatch are its blocks of 256 rows.
   */
  readonly threads?: number
  /** Keep every interval of work, for `trainer.trace()`. Default false. */
  readonly profile?: boolean
  /**
   * Where `save()` and `restore()` keep checkpoints unless they are told otherwise. `updates()` refuses a folder that holds
   * another training, or checkpoints of this one that are yet to come, before it trains.
   */
  readonly folder?: string
}

function isAlgorithm(value: object | undefined): value is AlgorithmDefinition {
  return typeof (value as AlgorithmDefinition | undefined)?.bind === 'function'
}

function soleCohort(world: World, algorithm: AlgorithmDefinition): Record<string, AlgorithmDefinition> {
  if (world.drafts.every(({ kind }) => kind === 'conversations')) {
    const got = 'a world of conversations alone'
    throw new InputError('createTrainer(world, algorithm)', got, 'createTextTrainer(world, { sft, rl }) for it')
  }
  if (world.names.length > 1) {
    throw new InputError(
      'createTrainer(world, algorithm)',
      `one algorithm for ${world.names.length} cohorts`,
      `an object with one of ${world.names.join(', ')} for each key`,
    )
  }
  return { [world.names[0]!]: algorithm }
}

/** Trains the cohorts of a world that have an algorithm. */
export class Trainer {
  readonly world: World
  readonly #pupils: readonly Pupil[]
  readonly #numSteps: number
  readonly #stepsPerUpdate: number
  readonly #algorithms: Readonly<Record<string, AlgorithmDefinition>>
  readonly #folder: string | undefined
  /** What the workers are told at the start of an update: its number, how many there will be, the seconds so far. */
  readonly #command = new Float64Array(new SharedArrayBuffer(24))
  /** Each thread's intervals of work, if they are kept. */
  readonly #traces: readonly Float64Array[]
  /** Where each thread says that it goes on: a mark of its clock at a time. */
  readonly beats: Int32Array
  /** What the trainer was between the last two updates, and a checkpoint of it; kept where `keepsState`. */
  #settled: SavedState | undefined
  /** Whether an update that is given up still leaves a state to save: that before it. Costs a copy of the state an update. */
  keepsState = false
  #team: Team | undefined
  #failure: unknown
  #isUpdating = false
  /** Whether `close` was called since the update began. */
  #isClosed = false
  #update = 0
  #steps = 0
  #seconds = 0

  /** Use `createTrainer`. */
  constructor(
    world: World,
    algorithms: Readonly<Record<string, AlgorithmDefinition>>,
    { threads = 1, profile = false, folder }: TrainerOptions = {},
  ) {
    if (folder !== undefined) folderOf('createTrainer(world, algorithms, { folder })', folder)
    const entries = Object.entries(algorithms ?? {})
    if (entries.length === 0) throw new InputError('createTrainer(world, algorithms)', 'none', 'at least one algorithm')
    for (const [name, algorithm] of entries) {
      if (!world.names.includes(name)) throw unknownWord('cohort', name, world.names)
      if (!isAlgorithm(algorithm))
        throw new InputError(`algorithm of ${name}`, show(algorithm), 'an algorithm, like ppo()')
    }
    for (const [name, { id, module }] of threads > 1 ? entries : []) {
      if (module === undefined) {
        throw new InputError(
          `algorithm ${id} of ${name}`,
          `no module, and ${threads} threads`,
          'a definition with a module, or threads: 1',
        )
      }
    }
    world.split(threads)
    const numSteps = entries[0]![1].numSteps
    for (const [name, algorithm] of entries) {
      if (algorithm.numSteps !== numSteps) {
        throw new InputError(
          `numSteps of ${name}`,
          String(algorithm.numSteps),
          `${numSteps}, as in the world's other learners`,
        )
      }
      const draft = draftOf(world, name)
      const learner = { algorithm: algorithm.plan(shapeOf(world, draft)), accounts: accountsPlan() }
      world.reserve(draft, { numSteps, learner })
    }
    this.world = world
    this.#traces = profile ? Array.from({ length: threads }, () => traceBuffer()) : []
    this.beats = createBeats(threads)
    if (world.threads.index === 0) {
      world.clock.trace = this.#traces[0]
      world.clock.beat = this.beats.subarray(0, BEAT_WORDS)
    }
    this.#algorithms = algorithms
    this.#folder = folder
    this.#numSteps = numSteps
    this.#pupils = entries.map(([name, algorithm]) => createPupil(world, name, algorithm))
    this.#stepsPerUpdate = this.#pupils.reduce((sum, { cohort }) => sum + cohort.numLanes * numSteps, 0)
  }

  /** Updates done. */
  get update(): number {
    return this.#update
  }

  /** Environment steps done, of all recorded lanes. */
  get steps(): number {
    return this.#steps
  }

  /** Seconds spent in rollouts and updates. */
  get seconds(): number {
    return this.#seconds
  }

  /**
   * The rollout of the only learner: its columns as they stand, live until the next update.
   * @throws InputError if there are several; then it is `rollouts[name]`.
   */
  get rollout(): { readonly table: Table } {
    if (this.#pupils.length > 1) {
      const names = this.#pupils.map(({ cohort }) => cohort.name).join(', ')
      throw new InputError(
        'trainer.rollout',
        `${this.#pupils.length} learners`,
        `trainer.rollouts[name] with one of ${names}`,
      )
    }
    return this.rollouts[this.#pupils[0]!.cohort.name]!
  }

  /** The rollouts of all learners, by cohort name. */
  get rollouts(): Readonly<Record<string, { readonly table: Table }>> {
    const { seed } = this.world
    return Object.fromEntries(
      this.#pupils.map(({ cohort, algorithm }) => [
        cohort.name,
        { table: rolloutTable(cohort.rollout, cohort.finals, originOf(cohort, { seed, gamma: algorithm.gamma })) },
      ]),
    )
  }

  /** What became of a cohort's episodes; of the only learner's where no name is given. */
  progress(name?: string): Progress {
    const pupil = name === undefined ? this.#pupils[0] : this.#pupils.find(({ cohort }) => cohort.name === name)
    if (pupil === undefined)
      throw unknownWord(
        'cohort',
        String(name),
        this.#pupils.map(({ cohort }) => cohort.name),
      )
    const { episodes, accounts, solvedAtStep, solvedAtSeconds } = pupil
    return {
      episodes,
      episodeReturnLast100: meanAndStd(accounts.recent, Math.min(episodes, RECENT_EPISODES)),
      solvedAtStep,
      solvedAtSeconds,
    }
  }

  /**
   * Trains until `totalSteps` environment steps are done (in whole updates), yielding after each update. Break out of the
   * loop to stop; call it again to go on.
   *
   * @throws InputError if totalSteps is not a number ≥ 1, or something is wrong in a tick; before the first one, if the
   * trainer's `folder` holds another training, or checkpoints that this one has yet to come to.
   */
  async *updates({ totalSteps }: { totalSteps: number }): AsyncGenerator<UpdateMetrics, void, undefined> {
    if (!(Number.isFinite(totalSteps) && totalSteps >= 1))
      throw new InputError('totalSteps', show(totalSteps), 'a number ≥ 1')
    const numUpdates = Math.ceil(totalSteps / this.#stepsPerUpdate)
    if (this.#folder !== undefined) {
      const { refuseOtherTraining } = await import('./run-folder.ts')
      await refuseOtherTraining(this.#folder, {
        number: this.#update,
        compareCheckpoint: (subject, manifest) => this.#compareCheckpoint(subject, manifest),
        compareRun: (subject, run) => this.#compareRun(subject, run),
      })
    }
    while (this.#update < numUpdates) {
      yield await this.#advance(numUpdates)
      await nextTurn()
    }
  }

  /** Sends the workers home, and gives back what policies hold of devices; a later update takes both again. */
  close(): void {
    this.#isClosed = true
    this.world.close()
    this.#team?.end()
    this.#team = undefined
  }

  /** One rollout and what the learners make of it, by all threads. */
  async #advance(numUpdates: number): Promise<UpdateMetrics> {
    this.#checkBetweenUpdates('trainer.updates()')
    if (this.keepsState) this.#settled = this.#state(this.#settled)
    this.#isUpdating = true
    this.#isClosed = false
    let team: Team | undefined
    try {
      if (this.world.threads.count > 1 && this.#team === undefined) {
        this.#team = await this.#startTeam()
        endWhenDropped(this, this.#team)
      }
      team = this.#team
      if (this.#isClosed) team?.end() // While the workers were on their way.
      this.#command.set([this.#update, numUpdates, this.#seconds])
      team?.hold(true)
      if (team) await team.meet() // The command is there.
      const program = this.program(this.#command)
      for (;;) {
        const { done, value } = program.next()
        if (done) {
          team?.hold(false)
          return this.#report(value)
        }
        if (value !== undefined)
          await value // An answer of a policy that answers later.
        else if (team) {
          this.world.clock.rest()
          await team.meet()
          this.world.clock.mark(Work.waiting)
        }
      }
    } catch (error) {
      // The threads are at different places of an update that nobody can finish.
      this.#failure = error instanceof Aborted ? team!.failure : error
      this.close()
      throw this.#failure
    } finally {
      this.#isUpdating = false
      this.world.clock.rest()
    }
  }

  /** Gives up the update under way, in which other threads are stuck: its promise is rejected with the reason. */
  giveUp(reason: Error): void {
    this.#team?.fail(reason)
  }

  /** The lanes of each thread, in words. */
  get shares(): string[] {
    return Array.from({ length: this.world.threads.count }, (_, i) => shareOf(this.world)(i))
  }

  /** Throws in the middle of an update, or after one that failed: the columns are at no place from which to go on. */
  #checkBetweenUpdates(action: string): void {
    if (this.#failure !== undefined) throw this.#failure
    if (this.#isUpdating) throw new InputError(action, 'a call in the middle of an update', 'one between two updates')
  }

  /**
   * One update of one thread: the rollout of its lanes, and its share of the learning. At each `yield` all threads meet;
   * what is yielded by the only thread of a policy that answers later is awaited.
   * Thread 0 also accounts for episodes and returns the metrics of each cohort.
   */
  *program(command: Float64Array): Generator<void | Promise<void>, Measured> {
    const { index } = this.world.threads
    const [update, numUpdates, seconds] = command as unknown as [number, number, number]
    const { clock } = this.world
    clock.start()
    const start = performance.now()
    for (const { cohort } of this.#pupils) {
      closeRollout(cohort) // The next tick begins one with what the lanes see and remember carried over.
      cohort.policy.refresh?.()
      cohort.version = update
    }
    yield* collectShare(this.world, this.world.cohorts, this.#numSteps)
    yield // All lanes' rows are there.
    const collected = performance.now()
    const rolloutSeconds = (collected - start) / 1000
    const cohorts: Record<string, CohortMetrics> = {}
    for (const pupil of this.#pupils) {
      if (index === 0) this.#account(pupil, seconds + rolloutSeconds)
      clock.mark(Work.account)
      const learned = yield* pupil.learner.learn(update, numUpdates)
      const { cohort, accounts, episodes } = pupil
      const recent = Math.min(episodes, RECENT_EPISODES)
      cohorts[cohort.name] = {
        episodes,
        episodeReturn: meanAndStd(accounts.recent, recent).mean,
        episodeLength: meanAndStd(accounts.recentLength, recent).mean,
        ...learned,
      }
      clock.mark(Work.account)
    }
    return { cohorts, rolloutSeconds, updateSeconds: (performance.now() - collected) / 1000 }
  }

  /** Counts an update that is done. */
  #report({ cohorts, rolloutSeconds, updateSeconds }: Measured): UpdateMetrics {
    this.#update++
    this.#steps += this.#stepsPerUpdate
    this.#seconds += rolloutSeconds + updateSeconds
    for (const { cohort } of this.#pupils) cohort.version = this.#update
    const sole = this.#pupils.length === 1 ? cohorts[this.#pupils[0]!.cohort.name]! : noMetrics()
    return {
      update: this.#update,
      steps: this.#steps,
      seconds: this.#seconds,
      stepsPerSecond: this.#stepsPerUpdate / (rolloutSeconds + updateSeconds),
      ...sole,
      rolloutSeconds,
      updateSeconds,
      phaseSeconds: phaseSeconds(this.world.clock),
      cohorts,
    }
  }

  /**
   * What each thread did when, for Chrome's tracing view and Perfetto (ui.perfetto.dev): a JSON document. Each thread keeps
   * its first 200,000 intervals.
   * @throws InputError if the trainer was not made with `profile: true`.
   */
  trace(): string {
    if (this.#traces.length === 0) throw new InputError('trainer.trace()', 'a trainer that keeps none', 'profile: true')
    return chromeTrace(this.#traces)
  }

  /** Starts the workers, each of which makes its part of this trainer from definitions. */
  #startTeam(): Promise<Team> {
    const { world } = this
    const { count } = world.threads
    const control = new Int32Array(new SharedArrayBuffer(4 * CONTROL_WORDS))
    const cohorts = laneCohorts(world).map((cohort) => ({
      name: cohort.name,
      environment: recordOf(cohort.environment),
      policy: recordOf(cohort.policyDefinition),
      numLanes: cohort.numLanes,
      firstLane: cohort.firstLane,
      autoreset: cohort.autoreset,
      explore: cohort.explore,
    }))
    const orders = Array.from(
      { length: count - 1 },
      (_, i): LanesOrder => ({
        kind: 'lanes',
        memory: world.arena.memory,
        control,
        command: this.#command,
        index: i + 1,
        count,
        trace: this.#traces[i + 1],
        beat: this.beats.subarray(BEAT_WORDS * (i + 1), BEAT_WORDS * (i + 2)),
        seed: world.seed,
        kernels: world.kernelBuild,
        cohorts,
        algorithms: Object.fromEntries(
          Object.entries(this.#algorithms).map(([name, algorithm]) => [name, recordOf(algorithm)]),
        ),
      }),
    )
    return Team.start(orders, shareOf(world))
  }

  /** Counts the episodes that ended in the rollout, and notes when the environment was solved. */
  #account(pupil: Pupil, seconds: number): void {
    const { cohort, accounts, episodes } = pupil
    const { rollout, environment, numLanes } = cohort
    const solvedRow = this.world.kernels.accountEpisodes(
      accounts.totals,
      accounts.recent,
      accounts.recentLength,
      rollout.episodeReturn,
      rollout.step,
      rollout.terminated,
      rollout.truncated,
      rollout.valid,
      episodes,
      environment.returnThreshold ?? Number.POSITIVE_INFINITY,
      rollout.reward.length,
    )
    pupil.episodes += accounts.totals[0]!
    if (solvedRow >= 0 && pupil.solvedAtStep === null) {
      const ticks = Math.floor(solvedRow / numLanes) + 1 // In each, the lanes of all learners took a step.
      pupil.solvedAtStep = this.#steps + ticks * (this.#stepsPerUpdate / this.#numSteps)
      pupil.solvedAtSeconds = seconds
    }
  }

  /**
   * Writes a checkpoint to `<folder>/checkpoints/<update>` and returns its path: everything that training needs to go on
   * exactly as if it had not stopped. The folder is the trainer's where none is given.
   *
   * @throws InputError if there is no folder, it cannot be written, or in the middle of an update; after one that failed, its
   * error.
   */
  async save(folder?: string): Promise<string> {
    const target = folderOf('trainer.save(folder)', folder, this.#folder)
    const settled = this.#failure === undefined ? undefined : this.#settled
    if (settled === undefined) this.#checkBetweenUpdates('trainer.save()')
    // Copied before anything is waited for: a caller need not wait for the writing before the next update.
    const { tensors, manifest } = settled ?? this.#state()
    const { writeCheckpoint } = await import('./checkpoint.ts')
    return writeCheckpoint(target, tensors, manifest)
  }

  /** A copy of all that is saved, in the memory of a former one if there is one. */
  #state(former?: SavedState): SavedState {
    const { world } = this
    for (const { cohort } of this.#pupils) closeRollout(cohort)
    const tensors = savedTensors(world).map((tensor, i) => {
      const bytes = former?.tensors[i]?.bytes ?? new Uint8Array(tensor.bytes.byteLength)
      bytes.set(tensor.bytes)
      return { ...tensor, bytes }
    })
    const cohorts = Object.fromEntries(
      this.#pupils.map(({ cohort, algorithm, episodes, solvedAtStep, solvedAtSeconds }) => [
        cohort.name,
        {
          environment: withoutModule(cohort.environment),
          policy: withoutModule(cohort.policyDefinition),
          algorithm: withoutModule(algorithm),
          numLanes: cohort.numLanes,
          firstLane: cohort.firstLane,
          autoreset: cohort.autoreset,
          explore: cohort.explore,
          version: cohort.version,
          episodes,
          solvedAtStep,
          solvedAtSeconds,
        },
      ]),
    )
    const manifest = {
      colonnade: VERSION,
      node: process.version,
      kernels: world.kernelBuild,
      seed: world.seed,
      update: this.#update,
      steps: this.#steps,
      seconds: this.#seconds,
      cohorts,
    }
    return { tensors, manifest }
  }

  /**
   * Takes up the newest checkpoint of the folder, or that of the given update. Returns what a user should be warned of. The
   * folder is the trainer's where none is given.
   *
   * @throws InputError if there is none, it is corrupt, or it is of another training; then nothing is changed.
   */
  async restore(folder?: string, update?: number): Promise<{ readonly warnings: readonly string[] }> {
    const source = folderOf('trainer.restore(folder)', folder, this.#folder)
    this.#checkBetweenUpdates('trainer.restore()')
    const { readCheckpoint } = await import('./checkpoint.ts')
    const { path, manifest, tensors } = await readCheckpoint(source, update)
    const { world } = this
    const subject = `checkpoint ${path}`
    this.#compareCheckpoint(subject, manifest)
    restoreTensors(subject, world, tensors)
    for (const cohort of laneCohorts(world)) {
      cohort.t = cohort.numSteps
      cohort.bootstrap.length = 0
    }
    this.#update = manifest.update
    this.#steps = manifest.steps
    this.#seconds = manifest.seconds
    for (const pupil of this.#pupils) {
      const record = manifest.cohorts[pupil.cohort.name]!
      pupil.cohort.version = record.version
      pupil.episodes = record.episodes
      pupil.solvedAtStep = record.solvedAtStep
      pupil.solvedAtSeconds = record.solvedAtSeconds
    }
    return { warnings: differences(manifest, world) }
  }

  /** @throws InputError that names the first part in which a checkpoint is of another training. */
  #compareCheckpoint(subject: string, { seed, cohorts }: Manifest): void {
    compare(subject, 'seed', seed, this.world.seed)
    compare(
      subject,
      'cohorts',
      Object.keys(cohorts),
      this.#pupils.map(({ cohort }) => cohort.name),
    )
    for (const pupil of this.#pupils) {
      const { cohort } = pupil
      const record = cohorts[cohort.name]!
      compareCohort(subject, record, pupil)
      compare(subject, 'firstLane', record.firstLane, cohort.firstLane)
      compare(subject, 'autoreset', record.autoreset, cohort.autoreset)
      compare(subject, 'explore', record.explore, cohort.explore)
    }
  }

  /** @throws InputError that names the first part in which a run, which has one cohort, is of another training. */
  #compareRun(subject: string, run: RunRecord): void {
    compare(subject, 'seed', run.seed, this.world.seed)
    compare(subject, 'number of cohorts', 1, this.world.cohorts.length)
    compareCohort(subject, run, this.#pupils[0]!)
  }
}

/** @throws InputError that names the first part in which a cohort learns otherwise than a record says. */
function compareCohort(
  subject: string,
  record: Pick<RunRecord, 'environment' | 'policy' | 'algorithm' | 'numLanes'>,
  { cohort, algorithm }: Pupil,
): void {
  compare(subject, 'environment', record.environment, withoutModule(cohort.environment))
  compare(subject, 'policy', record.policy, withoutModule(cohort.policyDefinition))
  compare(subject, 'algorithm', record.algorithm, withoutModule(algorithm))
  compare(subject, 'numLanes', record.numLanes, cohort.numLanes)
}

/** @throws InputError where the cohort is none of episodes. */
function draftOf(world: World, name: string): EpisodeDraft {
  const draft = world.draft(name)
  if (draft.kind === 'episodes') return draft
  throw new InputError(`algorithm of ${name}`, 'one of episodes, and a cohort of conversations', 'a cohort of episodes')
}

/** The cohorts whose lanes step. */
function laneCohorts(world: World): EpisodeCohort[] {
  return world.cohorts.filter((cohort) => cohort.kind === 'episodes')
}

function shapeOf(world: World, { options, model }: EpisodeDraft) {
  const { observationSpace, actionSpace } = options.environment
  const { count: threads } = world.threads
  return {
    numLanes: options.numLanes,
    model,
    observationSpace,
    actionSpace,
    actionMaskWidth: actionMaskWidth(options.environment),
    threads,
  }
}

function createPupil(world: World, name: string, algorithm: AlgorithmDefinition): Pupil {
  const cohort = asEpisodes(`algorithm of ${name}`, world.cohort(name))
  const columns = cohort.learner as { algorithm: Columns<Plan>; accounts: Columns<ReturnType<typeof accountsPlan>> }
  const learner = algorithm.bind({
    ...shapeOf(world, draftOf(world, name)),
    rollout: cohort.rollout,
    columns: columns.algorithm,
    weights: cohort.weights,
    policy: cohort.policy,
    kernels: world.kernels,
    random: cohort.environmentLanes.random,
    clock: world.clock,
    thread: world.threads.index,
  })
  return {
    cohort,
    algorithm,
    learner,
    accounts: columns.accounts,
    episodes: 0,
    solvedAtStep: null,
    solvedAtSeconds: null,
  }
}

/** Where a cohort's rows come from, for its table. */
export function originOf(
  { environment, policyDefinition, numLanes }: EpisodeCohort,
  {
    seed,
    gamma = null,
    checkpoint = null,
  }: Pick<RolloutOrigin, 'seed'> & Partial<Pick<RolloutOrigin, 'gamma' | 'checkpoint'>>,
): RolloutOrigin {
  const { id, observationSpace, actionSpace } = environment
  const policy = recordOf(policyDefinition)
  return { environmentId: id, observationSpace, actionSpace, seed, gamma, numLanes, policy, checkpoint }
}

function phaseSeconds({ milliseconds }: Clock): Record<WorkName, number> {
  return Object.fromEntries(workNames.map((name, i) => [name, milliseconds[i]! / 1000])) as Record<WorkName, number>
}

/** Says a thread's lanes in words. Leads to the world, and not to its trainer. */
function shareOf(world: World): (index: number) => string {
  return (index) => {
    const { count } = world.threads
    const shares = laneCohorts(world).map(({ name, numLanes, episode }) => {
      const from = Math.floor((index * numLanes) / count)
      const to = Math.floor(((index + 1) * numLanes) / count)
      return from === to ? `no lanes of ${name}` : `lanes ${episode.lane[from]}–${episode.lane[to - 1]} of ${name}`
    })
    return `${count} threads (${shares.join(', ')})`
  }
}

/** Lets timers, signals and other work of the process run. */
function nextTurn(): Promise<void> {
  return new Promise((resolve) => {
    if (typeof setImmediate === 'function') setImmediate(resolve)
    else setTimeout(resolve, 0)
  })
}
