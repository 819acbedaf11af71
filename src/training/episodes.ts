/**
 * The training of all cohorts of episodes: it lets their lanes fill rollouts and learners learn from them, update by update, and
 * counts what happened. All threads run its `program`.
 *
 * The program is the rollout of a thread's own lanes, then its own slots of each minibatch; at each `yield` threads
 * meet. What is small and ordered (advantages, the epoch's permutation, summing slots, the optimizer) thread 0 does
 * alone. Where there are actors, they collect, and the program is only the learning.
 */
import type { AlgorithmDefinition, EstimateAdvantages, Learner, LearnerShape } from '../algorithms/algorithm.ts'
import { stalenessSettings } from '../algorithms/staleness.ts'
import { BEAT_WORDS, callsOf, traceBuffer, Work } from '../clock.ts'
import { openBuffer } from '../cohorts/ahead.ts'
import type { Cohort } from '../cohorts/cohort.ts'
import { collecting, shareStart } from '../cohorts/episode-shares.ts'
import { asEpisodes, closeRollout, type EpisodeCohort, type EpisodeDraft } from '../cohorts/episodes.ts'
import { markLearned } from '../cohorts/league.ts'
import { restoreLanes } from '../cohorts/population.ts'
import { rolloutTable } from '../cohorts/rollout-table.ts'
import { exchangeOldest, ratePolicy } from '../cohorts/self-play.ts'
import { type Columns, column, type Plan, saved } from '../components/column.ts'
import { Lives } from '../components/population.ts'
import { type DefinitionRecord, recordOf, withoutModule } from '../definition.ts'
import { actionMaskWidth } from '../environments/environment.ts'
import { InputError, show, unknownWord } from '../errors.ts'
import { checkMetricValues, type MetricValues } from '../metrics.ts'
import type { Table } from '../tables/table.ts'
import { collectShare, concludeRollouts, settle } from '../tick.ts'
import type { World } from '../world.ts'
import { Actors } from './actors.ts'
import type { EpisodeRecord, Manifest } from './checkpoint.ts'
import { growMoments, inputMomentsPlan } from './input-moments.ts'
import {
  type CohortMetrics,
  checkAlgorithmMetrics,
  meanAndStd,
  noMetrics,
  type selfPlayMetrics,
  type UpdateMetrics,
} from './metrics.ts'
import type { RecordedCorrection, RecordedRollouts } from './recorded-rollouts.ts'
import type { RunRecord } from './run-folder.ts'
import { compare } from './snapshot.ts'
import { proximalPlan, StaleRollout } from './stale-rollout.ts'
import { Aborted, CONTROL_WORDS, endWhenDropped, type LanesOrder, Team } from './team.ts'
import type { Goal, SavedTraining, Training } from './training.ts'

/** Episodes over which returns are averaged, as is usual in the field. */
const RECENT_EPISODES = 100

/** What became of a cohort's episodes so far. */
export interface EpisodeProgress {
  readonly episodes: number
  /** Mean and deviation of the last 100 returns (of all, while they are fewer); NaN before the first. */
  readonly episodeReturnLast100: { readonly mean: number; readonly std: number }
  /** Environment steps after which the mean of the last 100 returns first reached the environment's threshold, or null. */
  readonly solvedAtStep: number | null
  /** Seconds of training at the end of the rollout in which it did, or null. */
  readonly solvedAtSeconds: number | null
  /** Who came and went; null in a cohort whose lanes stay. */
  readonly population: PopulationProgress | null
}

/** Who came to a cohort and went from it so far. */
export interface PopulationProgress {
  /** Lanes that are there now. */
  readonly present: number
  /** Births and deaths in the environment. */
  readonly born: number
  readonly died: number
  /** Births for which there was no room. */
  readonly refused: number
}

/** A cohort that learns: one of its sets of weights, where several do. */
interface Agent {
  /** The cohort's name, for its first set; `<cohort>.set1` and so on for further sets. */
  readonly name: string
  readonly cohort: EpisodeCohort
  /** Which of the cohort's sets of weights it is. */
  readonly set: number
  readonly algorithm: AlgorithmDefinition
  /** One for each buffer of rows that it learns from by turns. */
  readonly learners: readonly Learner[]
  /** What is done about rows of older weights; null where all threads collect, then all learn. */
  readonly stale: StaleRollout | null
  readonly accounts: Columns<ReturnType<typeof accountsPlan>>
  /** Takes in what was seen in the rollout; undefined where the policy takes observations as they are. */
  readonly growMoments: (() => void) | undefined
  episodes: number
  solvedAtStep: number | null
  solvedAtSeconds: number | null
}

/** What thread 0 measured in an update. */
interface Measured {
  readonly cohorts: Readonly<Record<string, CohortMetrics>>
  readonly rolloutSeconds: number
  /** Until the rollout was there: as many, or fewer where actors collect while others learn. */
  readonly waitSeconds: number
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

/** What a set of weights that learns needs. */
function learnerPlan(algorithm: AlgorithmDefinition, shape: LearnerShape) {
  return { algorithm: algorithm.plan(shape), accounts: accountsPlan(), inputs: inputMomentsPlan(shape.model) }
}

/** What the sets of weights that learn beside the first need, and where the advantages of all are kept. */
function furtherSetsPlan(learningSets: number, numRows: number, learner: () => ReturnType<typeof learnerPlan>) {
  const further = Array.from({ length: learningSets - 1 }, (_, i) => [`set${i + 1}`, learner()])
  const keptRows = learningSets > 1 ? numRows : 0
  return {
    advantage: column('f32', keptRows),
    return: column('f32', keptRows),
    further: Object.fromEntries(further) as Record<string, ReturnType<typeof learnerPlan>>,
  } satisfies Plan
}

/** True for an algorithm that learns from episodes. */
export function isAlgorithm(value: object | undefined): value is AlgorithmDefinition {
  return typeof (value as AlgorithmDefinition | undefined)?.bind === 'function'
}

/** How a training of episodes goes about its work. */
export interface EpisodeTrainingOptions {
  /** Keep every interval of work. */
  readonly profile: boolean
  /** Where each thread says that it goes on: a mark of its clock at a time. */
  readonly beats: Int32Array
  /** How many rollouts have columns; undefined where all threads collect, then all learn. */
  readonly numBuffers: number | undefined
  /** Seconds after which an actor that makes no progress is given up, while its rollout is awaited; 0: never. */
  readonly stallSeconds: number
}

/**
 * Gives the world's cohorts recorders and learners. What is returned binds them, when all who need columns have said so.
 * @throws InputError if the world's memory is taken already, or an algorithm does not fit its cohort.
 */
export function reserveEpisodes(
  world: World,
  algorithms: Readonly<Record<string, AlgorithmDefinition>>,
  options: EpisodeTrainingOptions,
): () => EpisodeTraining {
  for (const [name, algorithm] of Object.entries(algorithms)) {
    checkAlgorithmMetrics(algorithm)
    const draft = draftOf(world, name)
    const { numSteps } = algorithm
    const isStale = (algorithm.staleness?.maxStaleness ?? 0) > 0 && algorithm.staleness!.correction !== 'none'
    const shape = shapeOf(world, draft)
    const { numLanes, learningSets = 1 } = draft.options
    const learner = {
      ...learnerPlan(algorithm, shape),
      proximal: proximalPlan(isStale ? numSteps * numLanes : 0),
      sets: furtherSetsPlan(learningSets, numSteps * numLanes, () => learnerPlan(algorithm, shape)),
    }
    world.reserve(draft, {
      numSteps,
      learner,
      ...(options.numBuffers !== undefined && { numBuffers: options.numBuffers }),
    })
  }
  return () => new EpisodeTraining(world, algorithms, options)
}

/** Trains the cohorts of episodes that have an algorithm. */
export class EpisodeTraining implements Training<UpdateMetrics> {
  readonly world: World
  readonly #agents: readonly Agent[]
  /** The cohorts of these. */
  readonly #learning: readonly EpisodeCohort[]
  /** Those whose lanes move in its rollouts. */
  readonly #cohorts: readonly Cohort[]
  readonly #algorithms: Readonly<Record<string, AlgorithmDefinition>>
  /** What the workers are told at the start of an update: its number, how many there will be, the seconds so far; 1 if a table's is learned from. */
  readonly #command = new Float64Array(new SharedArrayBuffer(32))
  /** Each thread's intervals of work, if they are kept. */
  readonly #traces: readonly Float64Array[]
  readonly #beats: Int32Array
  /** The rollout of a table that is learned from, with its advantages; only in thread 0. */
  #recorded:
    | { readonly rollouts: RecordedRollouts; readonly i: number; readonly estimate: EstimateAdvantages | undefined }
    | undefined
  #team: Team | undefined
  /** The threads that collect while others learn; undefined where all do both, and in a worker. */
  readonly #actors: Actors | undefined
  #failure: unknown
  /** Rejects the promise that `advance` waits beside. */
  #abandon: (reason: Error) => void = () => {}
  #isUpdating = false
  /** Whether `close` was called since the update began. */
  #isClosed = false
  #update = 0
  #steps = 0
  #seconds = 0

  /** Use `reserveEpisodes`. */
  constructor(
    world: World,
    algorithms: Readonly<Record<string, AlgorithmDefinition>>,
    { profile, beats, stallSeconds }: EpisodeTrainingOptions,
  ) {
    this.world = world
    this.#traces = profile ? Array.from({ length: world.threads.count - 1 }, () => traceBuffer()) : []
    this.#beats = beats
    this.#algorithms = algorithms
    this.#agents = Object.entries(algorithms).flatMap(([name, algorithm]) => createAgents(world, name, algorithm))
    this.#learning = this.#agents.filter(({ set }) => set === 0).map(({ cohort }) => cohort)
    this.#cohorts = world.cohorts.filter(({ name, kind }) => name in algorithms || kind === 'episodes')
    const { actors, index } = world.threads
    if (actors > 0 && index === 0) {
      const describe = (i: number, call: number) =>
        `worker ${i} of ${shareOf(world)(i)}: ${callsOf(this.promises)[call]}`
      this.#actors = new Actors(this.#agents[0]!.cohort, actors, { beats, seconds: stallSeconds, describe })
    }
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

  /** The names of those that learn: cohorts, and further sets of weights of theirs. */
  get learners(): readonly string[] {
    return this.#agents.map(({ name }) => name)
  }

  /** The rollouts of all learners, by cohort name. */
  get rollouts(): Readonly<Record<string, { readonly table: Table }>> {
    return Object.fromEntries(
      this.#agents.map(({ cohort, algorithm }) => [
        cohort.name,
        { table: rolloutTable(cohort, { seed: cohort.seed, gamma: algorithm.gamma }) },
      ]),
    )
  }

  /** Updates. */
  get checkpointNumber(): number {
    return this.#update
  }

  /** What became of a cohort's episodes, or of those of one of its sets of weights; of the first learner's where no name is given. */
  progress(name?: string): EpisodeProgress {
    const agent = name === undefined ? this.#agents[0] : this.#agents.find((each) => each.name === name)
    if (agent === undefined) throw unknownWord('cohort', String(name), this.learners)
    const { cohort, episodes, accounts, solvedAtStep, solvedAtSeconds } = agent
    return {
      episodes,
      episodeReturnLast100: meanAndStd(accounts.recent, Math.min(episodes, RECENT_EPISODES)),
      solvedAtStep,
      solvedAtSeconds,
      population: populationOf(cohort),
    }
  }

  /** Updates until so many steps are done. */
  #numUpdates({ totalSteps }: Goal): number {
    if (!(typeof totalSteps === 'number' && Number.isFinite(totalSteps) && totalSteps >= 1)) {
      throw new InputError('totalSteps', show(totalSteps), 'a number ≥ 1')
    }
    const open = this.#learning.some(({ population }) => population !== null)
    if (!open) {
      const steps = this.#stepsOf(({ numLanes }) => numLanes)
      // Updates from tables take no steps.
      return this.#update + Math.ceil(totalSteps / steps) - this.#steps / steps
    }
    // As many as there will be if as many lanes are there as now.
    const stepsPerUpdate = this.#stepsOf(({ population, numLanes }) => population?.present[0] ?? numLanes)
    return this.#update + Math.ceil(Math.max(0, totalSteps - this.#steps) / Math.max(1, stepsPerUpdate))
  }

  /** Steps of all learners' rollouts, with so many lanes each. */
  #stepsOf(lanes: (cohort: EpisodeCohort) => number): number {
    return this.#learning.reduce((sum, cohort) => sum + lanes(cohort) * cohort.numSteps, 0)
  }

  /** @throws InputError where nobody is there to learn from. */
  #refuseExtinct(): void {
    for (const cohort of this.#learning) {
      if (cohort.population?.present[0] !== 0) continue
      throw new InputError(
        `cohort ${cohort.name}`,
        'no lane that is there',
        'at least one to learn from: spawn(cohort)',
      )
    }
  }

  isDone(goal: Goal): boolean {
    const numUpdates = this.#numUpdates(goal)
    return goal.signal?.aborted === true || goal.phase !== undefined || this.#update >= numUpdates
  }

  close(): void {
    this.#isClosed = true
    this.#team?.end()
    this.#team = undefined
    this.#actors?.close()
  }

  /** As `close`; when it settles nobody writes in the lanes' columns any more. */
  async halt(): Promise<void> {
    this.close()
    await this.#actors?.halt()
  }

  /** One rollout and what the learners make of it, by all threads. */
  async advance(goal: Goal): Promise<UpdateMetrics> {
    this.checkBetween('trainer.updates()')
    settle(this.#cohorts)
    this.#refuseExtinct()
    for (const { algorithm } of this.#agents) {
      if (!algorithm.needsTable) continue
      throw new InputError('trainer.updates()', `${algorithm.id}, which learns from tables`, 'trainer.learn(table)')
    }
    return this.#runUpdate(this.#numUpdates(goal))
  }

  /**
   * What the only learner makes of rollout `i` of a table, by all threads. `left` updates are to come with this one: schedules go
   * by all that were and will be.
   */
  async learnFrom(
    rollouts: RecordedRollouts,
    i: number,
    left: number,
    given: RecordedCorrection,
  ): Promise<UpdateMetrics> {
    this.checkBetween('trainer.learn()')
    this.#recorded = { rollouts, i, estimate: rollouts.estimate(given) }
    try {
      return await this.#runUpdate(this.#update + left)
    } finally {
      this.#recorded = undefined
    }
  }

  /** The only learner's cohort and algorithm. @throws InputError where there are several. */
  sole(action: string): { readonly cohort: EpisodeCohort; readonly algorithm: AlgorithmDefinition } {
    const [agent, ...others] = this.#agents
    if (others.length === 0) return agent!
    const count = this.#learning.length
    const got = count > 1 ? `${count} cohorts that learn` : `${this.#agents.length} sets of weights that learn`
    throw new InputError(action, got, 'a trainer with one')
  }

  async #runUpdate(numUpdates: number): Promise<UpdateMetrics> {
    this.#isUpdating = true
    this.#isClosed = false
    const abandoned = new Promise<never>((_, reject) => {
      this.#abandon = reject
    })
    abandoned.catch(() => {}) // Where nothing is awaited nobody needs to hear of it.
    let team: Team | undefined
    try {
      const { count, actors } = this.world.threads
      if (count - actors > 1 && this.#team === undefined) {
        this.#team = await Team.start(this.#orders(1, count - actors), shareOf(this.world))
        endWhenDropped(this, this.#team)
      }
      if (this.#actors?.isStarted === false) {
        const orders = this.#orders(count - actors, count)
        endWhenDropped(this, await this.#actors.start(this.#update, orders, shareOf(this.world)))
      }
      team = this.#team
      if (this.#isClosed) this.close() // While the workers were on their way.
      this.#command.set([this.#update, numUpdates, this.#seconds, this.#recorded === undefined ? 0 : 1])
      team?.hold(true)
      this.#actors?.hold(true)
      if (team) await team.meet() // The command is there.
      const program = this.program(this.#command)
      for (;;) {
        const { done, value } = program.next()
        if (done) {
          team?.hold(false)
          this.#actors?.hold(false)
          return this.#report(value)
        }
        if (value !== undefined) {
          if (this.#actors === undefined) this.world.clock.await(this.#awaited())
          else this.world.clock.rest() // An actor that is stuck says so itself.
          await Promise.race([value, abandoned]) // An answer of a policy that answers later, or a rollout.
        } else if (team) {
          this.world.clock.rest()
          await team.meet()
          this.world.clock.mark(Work.waiting)
        }
      }
    } catch (error) {
      // The threads are at different places of an update that nobody can finish.
      this.#failure = error instanceof Aborted ? team!.failure : error
      this.close()
      this.world.close()
      throw this.#failure
    } finally {
      this.#isUpdating = false
      this.world.clock.rest()
    }
  }

  /** What an update failed with, after which there is no other. */
  get failure(): unknown {
    return this.#failure
  }

  /** Gives up the update under way, in which other threads or a promise are stuck: its own is rejected with the reason. */
  giveUp(reason: Error): void {
    this.#abandon(reason)
    this.#team?.fail(reason)
    this.#actors?.fail(reason)
  }

  /** What an update may wait for, in words: an answer to each cohort, and what policies and learners promise besides. */
  get promises(): string[] {
    return [
      ...this.#cohorts.map(({ name, kind }) =>
        kind === 'episodes' ? `infer of cohort ${name} (a promise)` : `a reply to cohort ${name}`,
      ),
      'values or learning (a promise)',
    ]
  }

  /** Which of its `promises` the update waits for: that of the first cohort to which an answer is owed. */
  #awaited(): number {
    const owed = this.#cohorts.findIndex((cohort) =>
      cohort.kind === 'episodes' ? cohort.answer !== null : cohort.pending.some((reply) => reply !== null),
    )
    return owed < 0 ? this.#cohorts.length : owed
  }

  /** Throws in the middle of an update, or after one that failed: the columns are at no place from which to go on. */
  checkBetween(action: string): void {
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
    const [update, numUpdates, seconds, isRecorded] = command as unknown as [number, number, number, number]
    const { clock } = this.world
    clock.start()
    const start = performance.now()
    for (const cohort of this.#learning) {
      closeRollout(cohort) // The next tick begins one with what the lanes see and remember carried over.
      for (const policy of cohort.league?.policies ?? [cohort.policy]) policy.refresh?.()
      cohort.version = update
    }
    if (isRecorded) yield* this.#loadRecorded()
    else if (this.world.threads.actors === 0) yield* collectShare(this.world, this.#cohorts)
    else if (this.#actors !== undefined) yield* this.#actors.deliver(this.world, update, numUpdates)
    for (const cohort of this.#learning) openBuffer(cohort, update)
    yield // All lanes' rows are there.
    concludeRollouts(this.world, this.#cohorts)
    settle(this.#cohorts) // Learners read the rollout, which stays as it is.
    const collected = performance.now()
    const waitSeconds = (collected - start) / 1000
    const rolloutSeconds = this.#actors?.rolloutSeconds ?? waitSeconds
    const cohorts: Record<string, CohortMetrics> = {}
    for (const cohort of this.#learning) {
      if (index === 0 && cohort.league !== null) markLearned(cohort.league, cohort.rollout.valid)
    }
    for (const agent of this.#agents) {
      const { accounts, algorithm, stale } = agent
      if (index === 0 && !isRecorded) this.#account(agent, seconds + waitSeconds)
      const { episodes } = agent
      clock.mark(Work.account)
      if (stale !== null) yield* stale.evaluate()
      const staleness =
        index === 0 && stale !== null
          ? {
              ...stale.measure(update),
              ...this.#actors!.times,
              learnerWaitSeconds: waitSeconds,
              ...stale.countRows(update),
            }
          : {}
      const played = index === 0 && !isRecorded ? playedOf(agent.cohort) : {}
      const learner = agent.learners[update % agent.learners.length]!
      const learned = yield* learner.learn(update, numUpdates, this.#recorded?.estimate ?? stale?.estimate)
      if (index === 0) checkMetricValues(`${algorithm.id} metrics`, algorithm.metrics, learned)
      if (index === 0) keepAdvantages(agent)
      if (index === 0) agent.growMoments?.()
      const recent = Math.min(episodes, RECENT_EPISODES)
      cohorts[agent.name] = {
        episodes,
        episodeReturn: meanAndStd(accounts.recent, recent).mean,
        episodeLength: meanAndStd(accounts.recentLength, recent).mean,
        ...learned,
        ...staleness,
        ...played,
      }
      clock.mark(Work.account)
    }
    for (const { selfPlay, league } of this.#learning) {
      if (index === 0 && selfPlay !== null && !isRecorded) exchangeOldest(selfPlay, league!, update + 1)
    }
    return { cohorts, rolloutSeconds, waitSeconds, updateSeconds: (performance.now() - collected) / 1000 }
  }

  /** Has thread 0 write a table's rollout where the lanes would have written theirs, which are over. */
  *#loadRecorded(): Generator<void | Promise<void>, void> {
    yield // All lanes' last rows are kept.
    if (this.#recorded === undefined) return
    const { rollouts, i } = this.#recorded
    rollouts.load(i)
    yield* rollouts.evaluate(i)
    this.world.clock.mark(Work.forward)
  }

  /** Counts an update that is done. Rows of a table are no steps of the environment. */
  #report({ cohorts, rolloutSeconds, waitSeconds, updateSeconds }: Measured): UpdateMetrics {
    this.#update++
    this.#actors?.conclude()
    const steps = this.#recorded === undefined ? this.#stepsOf(({ present }) => present) : 0
    this.#steps += steps
    const seconds = waitSeconds + updateSeconds
    this.#seconds += seconds
    for (const cohort of this.#learning) cohort.version = this.#update
    const sole =
      this.#agents.length === 1
        ? cohorts[this.#agents[0]!.name]!
        : noMetrics(this.#agents.map(({ algorithm }) => algorithm))
    return {
      update: this.#update,
      steps: this.#steps,
      seconds: this.#seconds,
      stepsPerSecond: steps / seconds,
      ...sole,
      rolloutSeconds,
      updateSeconds,
      phaseSeconds: this.world.clock.seconds(),
      cohorts,
    } as UpdateMetrics
  }

  /** What each worker did when, if it is kept. */
  get traces(): readonly Float64Array[] {
    return this.#traces
  }

  /** What the threads from one index to another are told, each of which makes its part of this trainer from definitions. */
  #orders(from: number, to: number): LanesOrder[] {
    const { world } = this
    const { count, actors } = world.threads
    const isActors = actors > 0 && from === count - actors
    const command = isActors ? new Float64Array(new SharedArrayBuffer(8)) : this.#command
    const control = new Int32Array(new SharedArrayBuffer(4 * CONTROL_WORDS))
    const cohorts = laneCohorts(world).map((cohort) => ({
      name: cohort.name,
      environment: recordOf(cohort.environment),
      policy: cohort.sharesWith ?? recordOf(cohort.policyDefinition),
      numLanes: cohort.numLanes,
      ...(cohort.population !== null && { present: cohort.present }),
      firstLane: cohort.firstLane,
      ...(cohort.seed !== world.seed && { seed: cohort.seed }),
      autoreset: cohort.autoreset,
      explore: cohort.explore,
      ...(cohort.selfPlay === null
        ? { weightSets: cohort.league?.weights.length ?? 1, learningSets: cohort.league?.learned.length ?? 1 }
        : { selfPlay: cohort.selfPlay.options }),
      systems: cohort.systems.map(({ definition }) => ({ ...recordOf(definition), columns: definition.columns })),
    }))
    const indices = Array.from({ length: to - from }, (_, i) => from + i)
    return indices.map(
      (index): LanesOrder => ({
        kind: 'lanes',
        memory: world.arena.memory,
        control,
        command,
        index,
        count: to - from + 1, // With this one.
        threads: { count, actors },
        actor: isActors ? this.#actors!.columns : null,
        numBuffers: this.#agents[0]!.cohort.ahead?.buffers.length,
        trace: this.#traces[index - 1],
        beat: this.#beats.subarray(BEAT_WORDS * index, BEAT_WORDS * (index + 1)),
        seed: world.seed,
        kernels: world.kernelBuild,
        cohorts,
        algorithms: Object.fromEntries(
          Object.entries(this.#algorithms).map(([name, algorithm]) => [name, recordOf(algorithm)]),
        ),
      }),
    )
  }

  /** Counts the episodes that ended in the rollout, and notes when the environment was solved. */
  #account(agent: Agent, seconds: number): void {
    const { cohort, set, accounts, episodes } = agent
    const { rollout, environment, numLanes, league } = cohort
    const solvedRow = this.world.kernels.accountEpisodes(
      accounts.totals,
      accounts.recent,
      accounts.recentLength,
      rollout.episodeReturn,
      rollout.step,
      rollout.terminated,
      rollout.truncated,
      league?.learned[set] ?? rollout.valid,
      episodes,
      environment.returnThreshold ?? Number.POSITIVE_INFINITY,
      rollout.reward.length,
    )
    agent.episodes += accounts.totals[0]!
    if (solvedRow >= 0 && agent.solvedAtStep === null) {
      const ticks = Math.floor(solvedRow / numLanes) + 1
      // Until then the lanes of all learners took as many steps, or as many as their rollouts have.
      const steps = this.#learning.reduce((sum, cohort) => sum + cohort.present * Math.min(ticks, cohort.numSteps), 0)
      agent.solvedAtStep = this.#steps + steps
      agent.solvedAtSeconds = seconds
    }
  }

  saved(): SavedTraining {
    for (const cohort of this.#learning) closeRollout(cohort)
    settle(this.#cohorts)
    const of = { update: this.#update, steps: this.#steps, seconds: this.#seconds }
    const cohorts = this.#agents.flatMap(({ cohort, set, algorithm, episodes, solvedAtStep, solvedAtSeconds }) => {
      if (set > 0) return []
      const further = this.#agents.filter((agent) => agent.cohort === cohort && agent.set > 0)
      const { name, environment, policyDefinition, numLanes, firstLane, autoreset, explore, version } = cohort
      const record: EpisodeRecord = {
        kind: 'episodes',
        environment: withoutModule(environment),
        policy: withoutModule(policyDefinition),
        algorithm: withoutModule(algorithm),
        ...{ numLanes, firstLane, autoreset, explore, version },
        ...{ episodes, solvedAtStep, solvedAtSeconds },
        ...(cohort.seed !== this.world.seed && { seed: cohort.seed }),
        ...(cohort.systems.length > 0 && { systems: systemsOf(cohort) }),
        ...(cohort.selfPlay !== null && { selfPlay: cohort.selfPlay.options }),
        ...(further.length > 0 && { learningSets: further.map(progressOf) }),
        ...of,
      }
      return [[name, record] as const]
    })
    const instead = this.#actors?.instead(this.#update)
    return { tensors: [], cohorts: Object.fromEntries(cohorts), ...(instead !== undefined && { instead }) }
  }

  restore({ cohorts }: Manifest): void {
    for (const cohort of laneCohorts(this.world)) {
      cohort.t = cohort.numSteps
      cohort.bootstrap.length = 0
      restoreLanes(cohort)
    }
    for (const agent of this.#agents) {
      const record = cohorts[agent.cohort.name] as EpisodeRecord
      this.#update = record.update
      this.#steps = record.steps
      this.#seconds = record.seconds
      agent.cohort.version = record.version
      Object.assign(agent, progressOf(agent.set === 0 ? record : record.learningSets![agent.set - 1]!))
    }
  }

  compareCheckpoint(subject: string, { cohorts, seed }: Manifest): string[] {
    for (const agent of this.#agents) {
      const { cohort } = agent
      const record = cohorts[cohort.name]!
      compare(subject, `kind of cohort ${cohort.name}`, record.kind, cohort.kind)
      const {
        firstLane,
        autoreset,
        explore,
        systems = [],
        learningSets = [],
        selfPlay = null,
      } = record as EpisodeRecord
      compareCohort(subject, record as EpisodeRecord, agent)
      compare(subject, 'firstLane', firstLane, cohort.firstLane)
      compare(subject, `seed of cohort ${cohort.name}`, (record as EpisodeRecord).seed ?? seed, cohort.seed)
      compare(subject, 'autoreset', autoreset, cohort.autoreset)
      compare(subject, 'explore', explore, cohort.explore)
      compare(subject, 'systems', systems, systemsOf(cohort))
      compare(subject, 'selfPlay', selfPlay, cohort.selfPlay?.options ?? null)
      compare(subject, 'learningSets', 1 + learningSets.length, cohort.league?.learned.length ?? 1)
    }
    return []
  }

  compareRun(subject: string, run: RunRecord): string[] {
    compareCohort(subject, run, this.#agents[0]!)
    return []
  }
}

/** @throws InputError that names the first part in which a cohort learns otherwise than a record says. */
function compareCohort(
  subject: string,
  record: Pick<RunRecord, 'environment' | 'policy' | 'algorithm' | 'numLanes'>,
  { cohort, algorithm }: Agent,
): void {
  compare(subject, 'environment', record.environment, withoutModule(cohort.environment))
  compare(subject, 'policy', record.policy, withoutModule(cohort.policyDefinition))
  compare(subject, 'algorithm', withStaleness(record.algorithm, algorithm), withoutModule(algorithm))
  compare(subject, 'numLanes', record.numLanes, cohort.numLanes)
}

/**
 * The record of an algorithm with the settings of staleness, as their defaults, where it is older than these and the algorithm has
 * them: such a training had no actors.
 */
function withStaleness(record: DefinitionRecord, { staleness }: AlgorithmDefinition): DefinitionRecord {
  if (staleness === undefined || 'maxStaleness' in record.parameters) return record
  const defaults = Object.entries(stalenessSettings()).map(([name, setting]) => [name, setting.default])
  return { ...record, parameters: { ...Object.fromEntries(defaults), ...record.parameters } }
}

/** @throws InputError where the cohort is none of episodes. */
function draftOf(world: World, name: string): EpisodeDraft {
  const draft = world.draft(name)
  if (draft.kind === 'episodes') return draft
  throw new InputError(`algorithm of ${name}`, 'one of episodes, and a cohort of conversations', 'a cohort of episodes')
}

/** A cohort's own systems, as far as bits depend on them. */
function systemsOf({ systems }: EpisodeCohort): DefinitionRecord[] {
  return systems.map(({ definition }) => withoutModule(definition))
}

function populationOf({ population }: EpisodeCohort): PopulationProgress | null {
  if (population === null) return null
  const { present, totals } = population
  return { present: present[0]!, born: totals[Lives.born]!, died: totals[Lives.died]!, refused: totals[Lives.refused]! }
}

/** The cohorts whose lanes step. */
function laneCohorts(world: World): EpisodeCohort[] {
  return world.cohorts.filter((cohort) => cohort.kind === 'episodes')
}

function shapeOf(world: World, { options, model }: EpisodeDraft) {
  const { observationSpace, actionSpace } = options.environment
  const { count, actors } = world.threads
  return {
    numLanes: options.numLanes,
    model,
    observationSpace,
    actionSpace,
    actionMaskWidth: actionMaskWidth(options.environment),
    threads: count - actors,
  }
}

/** Rates a cohort's policy by the games of its rollout, where it plays against earlier selves: what the update tells of that. */
function playedOf({
  selfPlay,
  league,
  rollout,
  environment,
}: EpisodeCohort): MetricValues<typeof selfPlayMetrics> | object {
  if (selfPlay === null) return {}
  const { games, score } = ratePolicy(selfPlay, league!, rollout, environment.numAgents!)
  const [own, ...opponents] = selfPlay.rating
  return {
    eloRating: own!,
    eloRatingOpponents: opponents.reduce((sum, each) => sum + each, 0) / opponents.length,
    opponentGames: games,
    opponentScore: score,
  }
}

/** What a checkpoint keeps of an agent's episodes, beside the columns. */
function progressOf({
  episodes,
  solvedAtStep,
  solvedAtSeconds,
}: Pick<Agent, 'episodes' | 'solvedAtStep' | 'solvedAtSeconds'>) {
  return { episodes, solvedAtStep, solvedAtSeconds }
}

/**
 * A learner writes advantages of its own rows, and 0 elsewhere: where several sets of weights learn, those of each are kept until
 * the last has learned, and then stand in the rollout.
 */
function keepAdvantages({ cohort, set }: Agent): void {
  const { rollout, league } = cohort
  if (league === null || league.learned.length === 1) return
  const learned = league.learned[set]!
  const { advantage, return: returns } = learnerColumns(cohort).sets
  if (set === 0) {
    advantage.fill(0)
    returns.set(rollout.value)
  }
  for (let row = 0; row < learned.length; row++) {
    if (learned[row] === 0) continue
    advantage[row] = rollout.advantage[row]!
    returns[row] = rollout.return[row]!
  }
  if (set < league.learned.length - 1) return
  rollout.advantage.set(advantage)
  rollout.return.set(returns)
}

function learnerColumns(cohort: EpisodeCohort) {
  return cohort.learner as Columns<{
    algorithm: Plan
    accounts: ReturnType<typeof accountsPlan>
    inputs: Plan
    proximal: ReturnType<typeof proximalPlan>
    sets: ReturnType<typeof furtherSetsPlan>
  }>
}

/** A cohort's agents: one for each of its sets of weights that learn. */
function createAgents(world: World, name: string, algorithm: AlgorithmDefinition): Agent[] {
  const cohort = asEpisodes(`algorithm of ${name}`, world.cohort(name))
  const { rollout, league } = cohort
  const columns = learnerColumns(cohort)
  const { maxStaleness = 0, correction = 'none', rhoMax = 1, cMax = 1 } = algorithm.staleness ?? {}
  const stale =
    cohort.ahead === null
      ? null
      : new StaleRollout(world, cohort, { maxStaleness, correction, rhoMax, cMax }, columns.proximal)
  return Array.from({ length: league?.learned.length ?? 1 }, (_, set): Agent => {
    const own = set === 0 ? columns : columns.sets.further[`set${set}`]!
    const weights = league?.weights[set] ?? cohort.weights
    const isNormalized = Object.keys(own.inputs).length > 0
    const seen = (rollout: EpisodeCohort['rollout']) =>
      league === null ? rollout : { ...rollout, valid: league.learned[set]! }
    const bind = (rollout: EpisodeCohort['rollout']) =>
      algorithm.bind({
        ...shapeOf(world, draftOf(world, name)),
        rollout: stale === null ? seen(rollout) : stale.seen(rollout),
        finals: () => cohort.finals,
        columns: own.algorithm,
        weights,
        policy: league?.policies[set] ?? cohort.policy,
        kernels: world.kernels,
        random: cohort.environmentLanes.random,
        clock: world.clock,
        thread: world.threads.index,
      })
    return {
      name: set === 0 ? cohort.name : `${cohort.name}.set${set}`,
      cohort,
      set,
      algorithm,
      learners: cohort.ahead === null ? [bind(rollout)] : cohort.ahead.buffers.map(({ rollout }) => bind(rollout)),
      stale,
      accounts: own.accounts,
      growMoments: isNormalized
        ? () => growMoments(own.inputs, weights, seen(cohort.rollout), world.kernels)
        : undefined,
      episodes: 0,
      solvedAtStep: null,
      solvedAtSeconds: null,
    }
  })
}

/** Says a thread's lanes in words. Leads to the world, and not to its trainer. */
export function shareOf(world: World): (index: number) => string {
  return (index) => {
    const { count } = world.threads
    const collector = collecting({ ...world.threads, index })
    const shares = laneCohorts(world).map(({ name, present, episode, environment: { numAgents } }) => {
      const [from, to] = [collector.index, collector.index + 1].map((i) =>
        shareStart(Math.max(0, i), collector.count, present, numAgents),
      ) as [number, number]
      return from === to ? `no lanes of ${name}` : `lanes ${episode.lane[from]}–${episode.lane[to - 1]} of ${name}`
    })
    return `${count} threads (${shares.join(', ')})`
  }
}
