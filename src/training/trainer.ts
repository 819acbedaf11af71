/**
 * The trainer: it lets a world fill rollouts and learners learn from them, update by update, counts what happened, and
 * saves and restores the whole of it.
 */
import type { AlgorithmDefinition, Learner } from '../algorithms/algorithm.ts'
import { type Columns, column, type Plan, saved } from '../components/column.ts'
import { recordOf } from '../definition.ts'
import { InputError, show, unknownWord } from '../errors.ts'
import { type RolloutOrigin, rolloutTable, type Table } from '../tables/table.ts'
import { collect } from '../tick.ts'
import { VERSION } from '../version.ts'
import type { Cohort, World } from '../world.ts'
import { type CohortMetrics, meanAndStd, noMetrics, type UpdateMetrics } from './metrics.ts'
import { restoreTensors, savedTensors } from './snapshot.ts'

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
  readonly cohort: Cohort
  readonly algorithm: AlgorithmDefinition
  readonly learner: Learner
  readonly accounts: Columns<ReturnType<typeof accountsPlan>>
  episodes: number
  solvedAtStep: number | null
  solvedAtSeconds: number | null
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
 * @throws InputError if the world's memory is taken already, a cohort is unknown, or an algorithm does not fit it.
 * @example
 * const trainer = createTrainer(world, ppo({ numSteps: 128 }))
 * const trainer = createTrainer(world, { hunter: ppo(), hare: ppo({ gamma: 0.9 }) })
 */
export function createTrainer(
  world: World,
  algorithms: AlgorithmDefinition | Readonly<Record<string, AlgorithmDefinition>>,
): Trainer {
  return new Trainer(world, isAlgorithm(algorithms) ? soleCohort(world, algorithms) : algorithms)
}

function isAlgorithm(value: object): value is AlgorithmDefinition {
  return typeof (value as AlgorithmDefinition).bind === 'function'
}

function soleCohort(world: World, algorithm: AlgorithmDefinition): Record<string, AlgorithmDefinition> {
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
  #update = 0
  #steps = 0
  #seconds = 0

  /** Use `createTrainer`. */
  constructor(world: World, algorithms: Readonly<Record<string, AlgorithmDefinition>>) {
    const entries = Object.entries(algorithms)
    if (entries.length === 0) throw new InputError('createTrainer(world, algorithms)', 'none', 'at least one algorithm')
    for (const [name, algorithm] of entries) {
      if (!world.names.includes(name)) throw unknownWord('cohort', name, world.names)
      if (!isAlgorithm(algorithm))
        throw new InputError(`algorithm of ${name}`, show(algorithm), 'an algorithm, like ppo()')
    }
    const numSteps = entries[0]![1].numSteps
    for (const [name, algorithm] of entries) {
      if (algorithm.numSteps !== numSteps) {
        throw new InputError(
          `numSteps of ${name}`,
          String(algorithm.numSteps),
          `${numSteps}, as in the world's other learners`,
        )
      }
      const learner = { algorithm: algorithm.plan(shapeOf(world, name)), accounts: accountsPlan() }
      world.reserve(name, { numSteps, learner })
    }
    this.world = world
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
        { table: rolloutTable(cohort.rollout, originOf(cohort, seed, algorithm.gamma)) },
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
   * @throws InputError if totalSteps is not a number ≥ 1, or something is wrong in a tick.
   */
  async *updates({ totalSteps }: { totalSteps: number }): AsyncGenerator<UpdateMetrics, void, undefined> {
    if (!(Number.isFinite(totalSteps) && totalSteps >= 1))
      throw new InputError('totalSteps', show(totalSteps), 'a number ≥ 1')
    const numUpdates = Math.ceil(totalSteps / this.#stepsPerUpdate)
    while (this.#update < numUpdates) {
      yield this.#advance(this.#update / numUpdates)
      await nextTurn()
    }
  }

  /** One rollout and what the learners make of it. */
  #advance(progress: number): UpdateMetrics {
    const start = performance.now()
    collect(this.world, this.#numSteps)
    const collected = performance.now()
    const rolloutSeconds = (collected - start) / 1000
    for (const pupil of this.#pupils) this.#account(pupil, this.#seconds + rolloutSeconds)
    const cohorts: Record<string, CohortMetrics> = {}
    for (const { cohort, learner, accounts, episodes } of this.#pupils) {
      const learned = learner.learn(this.#update, progress)
      cohort.version++
      const recent = Math.min(episodes, RECENT_EPISODES)
      cohorts[cohort.name] = {
        episodes,
        episodeReturn: meanAndStd(accounts.recent, recent).mean,
        episodeLength: meanAndStd(accounts.recentLength, recent).mean,
        ...learned,
      }
    }
    const updateSeconds = (performance.now() - collected) / 1000
    this.#update++
    this.#steps += this.#stepsPerUpdate
    this.#seconds += rolloutSeconds + updateSeconds
    const sole = this.#pupils.length === 1 ? cohorts[this.#pupils[0]!.cohort.name]! : noMetrics()
    return {
      update: this.#update,
      steps: this.#steps,
      seconds: this.#seconds,
      stepsPerSecond: this.#stepsPerUpdate / (rolloutSeconds + updateSeconds),
      ...sole,
      rolloutSeconds,
      updateSeconds,
      cohorts,
    }
  }

  /** Counts the episodes that ended in the rollout, and notes when the environment was solved. */
  #account(pupil: Pupil, seconds: number): void {
    const { cohort, accounts, episodes } = pupil
    const { rollout, environment } = cohort
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
      const stepsOfUpdate = (Math.floor(solvedRow / cohort.numLanes) + 1) * cohort.numLanes
      pupil.solvedAtStep = this.#steps + stepsOfUpdate
      pupil.solvedAtSeconds = seconds
    }
  }

  /**
   * Writes a checkpoint to `<folder>/checkpoints/<update>` and returns its path: everything that training needs to go on
   * exactly as if it had not stopped. Call it between updates.
   *
   * @throws InputError if the folder cannot be written.
   */
  async save(folder: string): Promise<string> {
    const { writeCheckpoint } = await import('./checkpoint.ts')
    const { world } = this
    const cohorts = Object.fromEntries(
      this.#pupils.map(({ cohort, algorithm, episodes, solvedAtStep, solvedAtSeconds }) => [
        cohort.name,
        {
          environment: withoutModule(cohort.environment),
          policy: withoutModule(cohort.policyDefinition),
          algorithm: withoutModule(algorithm),
          numLanes: cohort.numLanes,
          version: cohort.version,
          episodes,
          solvedAtStep,
          solvedAtSeconds,
        },
      ]),
    )
    return writeCheckpoint(folder, savedTensors(world), {
      colonnade: VERSION,
      node: process.version,
      kernels: world.kernelBuild,
      seed: world.seed,
      update: this.#update,
      steps: this.#steps,
      seconds: this.#seconds,
      cohorts,
    })
  }

  /**
   * Takes up the newest checkpoint of the folder, or that of the given update. Returns what a user should be warned of.
   *
   * @throws InputError if there is none, it is corrupt, or it is of another training; then nothing is changed.
   */
  async restore(folder: string, update?: number): Promise<{ readonly warnings: readonly string[] }> {
    const { readCheckpoint } = await import('./checkpoint.ts')
    const { path, manifest, tensors } = await readCheckpoint(folder, update)
    const { world } = this
    const subject = `checkpoint ${path}`
    compare(subject, 'seed', manifest.seed, world.seed)
    compare(
      subject,
      'cohorts',
      Object.keys(manifest.cohorts),
      this.#pupils.map(({ cohort }) => cohort.name),
    )
    for (const { cohort, algorithm } of this.#pupils) {
      const record = manifest.cohorts[cohort.name]!
      compare(subject, 'environment', record.environment, withoutModule(cohort.environment))
      compare(subject, 'policy', record.policy, withoutModule(cohort.policyDefinition))
      compare(subject, 'algorithm', record.algorithm, withoutModule(algorithm))
      compare(subject, 'numLanes', record.numLanes, cohort.numLanes)
    }
    restoreTensors(subject, world, tensors)
    this.#update = manifest.update
    this.#steps = manifest.steps
    this.#seconds = manifest.seconds
    for (const pupil of this.#pupils) {
      const record = manifest.cohorts[pupil.cohort.name]!
      pupil.cohort.version = record.version
      pupil.cohort.t = pupil.cohort.numSteps // The next tick begins a rollout with the observations carried over.
      pupil.episodes = record.episodes
      pupil.solvedAtStep = record.solvedAtStep
      pupil.solvedAtSeconds = record.solvedAtSeconds
    }
    const warnings: string[] = []
    for (const [what, then, now] of [
      ['kernels', manifest.kernels, world.kernelBuild],
      ['version of Colonnade', manifest.colonnade, VERSION],
    ] as const) {
      if (then !== now) warnings.push(`${what} was ${then} and is ${now}: the run goes on, but not with the same bits`)
    }
    return { warnings }
  }
}

function shapeOf(world: World, name: string) {
  const { options, model } = world.draft(name)
  const { observationSpace, actionSpace } = options.environment
  return { numLanes: options.numLanes, numParameters: model.numParameters, observationSpace, actionSpace }
}

function createPupil(world: World, name: string, algorithm: AlgorithmDefinition): Pupil {
  const cohort = world.cohort(name)
  const columns = cohort.learner as { algorithm: Columns<Plan>; accounts: Columns<ReturnType<typeof accountsPlan>> }
  const learner = algorithm.bind({
    ...shapeOf(world, name),
    rollout: cohort.rollout,
    columns: columns.algorithm,
    weights: cohort.weights,
    policy: cohort.policy,
    kernels: world.kernels,
    random: cohort.environmentLanes.random,
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
export function originOf(cohort: Cohort, seed: number, gamma: number | null): RolloutOrigin {
  const { environment, numLanes } = cohort
  const { id, observationSpace, actionSpace } = environment
  return { environmentId: id, observationSpace, actionSpace, seed, gamma, numLanes }
}

function withoutModule(definition: { id: string; parameters: Readonly<Record<string, unknown>> }) {
  const { id, parameters } = recordOf(definition)
  return { id, parameters }
}

function compare(subject: string, what: string, got: unknown, expected: unknown): void {
  if (JSON.stringify(got) !== JSON.stringify(expected)) {
    throw new InputError(`${subject}, ${what}`, show(got), `${show(expected)}, as in this training`)
  }
}

/** Lets timers, signals and other work of the process run. */
function nextTurn(): Promise<void> {
  return new Promise((resolve) => {
    if (typeof setImmediate === 'function') setImmediate(resolve)
    else setTimeout(resolve, 0)
  })
}
