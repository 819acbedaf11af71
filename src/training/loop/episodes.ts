/**
 * Trains all cohorts of episodes: their lanes fill rollouts and their learners train on them, update by update.
 *
 * Thread 0 runs the program of an update; other threads help with what it shares (`threads/sharing.ts`): each thread
 * collects the lanes dealt to it, and claims blocks of minibatches. For both, the trainer times several numbers of threads and keeps the
 * fastest (`threads/pace.ts`). With actors, the actors collect, and the program only learns.
 */
import type { AlgorithmDefinition, EstimateAdvantages, Undo } from '../../algorithms/algorithm.ts'
import { callsOf, traceBuffer, Work } from '../../base/clock.ts'
import { InputError, show, unknownWord } from '../../base/errors.ts'
import { checkMetricValues } from '../../base/metrics.ts'
import { alone } from '../../base/parted.ts'
import { numCores } from '../../base/threads/cores.ts'
import { concludeRollouts, settle } from '../../systems/tick.ts'
import type { Table } from '../../tables/table.ts'
import type { Cohort } from '../../world/cohort.ts'
import { openBuffer } from '../../world/episodes/ahead-buffers.ts'
import { closeRollout, type EpisodeCohort } from '../../world/episodes/cohort.ts'
import { markLearned } from '../../world/episodes/league.ts'
import { restoreLanes } from '../../world/episodes/population.ts'
import { rolloutTable } from '../../world/episodes/rollout-table.ts'
import { exchangeOldest } from '../../world/episodes/self-play.ts'
import type { World } from '../../world/world.ts'
import type { EpisodeRecord, Manifest } from '../folder/checkpoint.ts'
import type { RunRecord } from '../folder/run-record.ts'
import type { RecordedCorrection, RecordedRollouts } from '../recorded/recorded-rollouts.ts'
import { Actors } from '../threads/actors.ts'
import { checkPool } from '../threads/check-actors.ts'
import type { Crew, CrewDefinition } from '../threads/crew.ts'
import { Aborted, laneCohorts, shareOf } from '../threads/orders.ts'
import { Pace } from '../threads/pace.ts'
import { aborting, Sharing, sharingColumns } from '../threads/sharing.ts'
import type { OrderedTraining, Team } from '../threads/start.ts'
import { ThreadCrew } from '../threads/thread-crew.ts'
import { Collection } from './collection.ts'
import { compareCohort, compareRecord, recordOfSets, takeUpRecord } from './episode-record.ts'
import { type CohortMetrics, checkAlgorithmMetrics, type Measured, noMetrics, type UpdateMetrics } from './metrics.ts'
import {
  accountEpisodes,
  createTrainedSets,
  draftOf,
  type EpisodeProgress,
  episodeMetricsOf,
  keepAdvantages,
  playedOf,
  progressOf,
  type TrainedSet,
  trainedSetsPlan,
} from './trained-sets.ts'
import type { Goal, SavedTraining, Training } from './training.ts'

const teams = () => import('../threads/start.ts')

export interface EpisodeTrainingOptions {
  /** Record every interval of work. */
  readonly profile: boolean
  /** Each thread's progress: one mark of its clock at a time. */
  readonly beats: Int32Array
  /** Number of rollouts with columns; undefined if all threads collect, then all learn. */
  readonly numBuffers: number | undefined
  /** Seconds without progress after which an awaited actor is given up; 0: never. */
  readonly stallSeconds: number
  /** The crew that collects for a learner with actors; undefined: threads. */
  readonly crew?: CrewDefinition | undefined
  /** How its threads share work; undefined for one thread. */
  readonly sharing?: Sharing | undefined
}

/** Reserves recorders and learners; the result binds them. @throws InputError for an algorithm that does not fit. */
export function reserveEpisodes(
  world: World,
  algorithms: Readonly<Record<string, AlgorithmDefinition>>,
  options: EpisodeTrainingOptions,
): () => EpisodeTraining {
  for (const [name, algorithm] of Object.entries(algorithms)) {
    checkAlgorithmMetrics(algorithm)
    const draft = draftOf(world, name)
    world.reserve(draft, {
      numSteps: algorithm.numSteps,
      learner: trainedSetsPlan(world, draft, algorithm),
      ...(options.numBuffers !== undefined && { numBuffers: options.numBuffers }),
    })
  }
  return () => new EpisodeTraining(world, algorithms, options)
}

export class EpisodeTraining implements Training<UpdateMetrics> {
  readonly world: World
  readonly #sets: readonly TrainedSet[]
  readonly #learning: readonly EpisodeCohort[]
  /** The cohorts whose lanes step in its rollouts. */
  readonly #cohorts: readonly Cohort[]
  readonly #sharing: Sharing | undefined
  /** Undefined with actors. */
  readonly #collection: Collection | undefined
  /** How many threads pay for learning. */
  readonly #learningPace: Pace
  /** Each thread's intervals of work, if recorded. */
  readonly traces: readonly Float64Array[]
  /** A table's rollout with its advantages, when training on one; only in thread 0. */
  #recorded:
    | { readonly rollouts: RecordedRollouts; readonly i: number; readonly estimate: EstimateAdvantages | undefined }
    | undefined
  #team: Team | undefined
  /** The threads that collect while others learn; undefined if all do both, and in a worker. */
  readonly #actors: Actors | undefined
  readonly #ordered: OrderedTraining // The message to other threads.
  /** The error of a failed update, after which there is no other. */
  failure: unknown
  /** Rejects the promise that `advance` races with. */
  #abandon: (reason: Error) => void = () => {}
  #isUpdating = false
  /** Whether `close` was called since the update began. */
  #isClosed = false
  update = 0
  /** Environment steps done, of all recorded lanes. */
  steps = 0
  /** Seconds from each update's beginning, or the end of the one before, to its end. */
  seconds = 0
  since = performance.now() // When the time of this update began.

  constructor(
    world: World,
    algorithms: Readonly<Record<string, AlgorithmDefinition>>,
    { profile, beats, numBuffers, stallSeconds, crew, sharing: given }: EpisodeTrainingOptions,
  ) {
    this.world = world
    const { actors, index, count } = world.threads
    const learning = count - actors
    const own = () => new Sharing(sharingColumns(), 0, learning, numCores(), world.clock)
    const sharing = given ?? (learning > 1 ? own() : undefined)
    this.#sharing = sharing
    const share = sharing?.share ?? alone
    this.traces = profile ? Array.from({ length: world.threads.count - 1 }, () => traceBuffer()) : []
    this.#cohorts = world.cohorts.filter(({ name, kind }) => name in algorithms || kind === 'episodes')
    const ordered = { world, algorithms, sharing, numBuffers, traces: this.traces, beats }
    this.#ordered = ordered
    // The threads keep these closures, so none of them references the training: it could not be dropped.
    if (actors > 0 && index === 0) {
      const cohort = laneCohorts(world)[0]!
      const parts = { world, cohort, algorithm: algorithms[cohort.name]!, numMembers: actors }
      const describe = shareOf(world)
      const calls = callsOf(this.promises)
      const threads = (): Crew =>
        new ThreadCrew({
          ...{ ...parts, beats, seconds: stallSeconds, describe },
          orders: async (columns) => (await teams()).lanesOrders(ordered, count - actors, count, columns),
          describeCall: (thread, call) => `worker ${thread} of ${describe(thread)}: ${calls[call]}`,
        })
      this.#actors = new Actors(cohort, actors, crew?.(parts) ?? threads())
    }
    const pool = this.#actors?.pool
    this.#sets = Object.entries(algorithms).flatMap(([name, each]) => createTrainedSets(world, name, each, share, pool))
    if (pool !== undefined) checkPool(world, this.#sets[0]!, pool)
    this.#learning = this.#sets.filter(({ set }) => set === 0).map(({ cohort }) => cohort)
    if (actors === 0) this.#collection = new Collection(world, this.#learning, this.#cohorts, sharing)
    this.#learningPace = new Pace(learning)
  }

  /** The names of the learners: cohorts, and their further sets of weights. */
  get learners(): readonly string[] {
    return this.#sets.map(({ name }) => name)
  }

  /** The rollouts of all learners, by cohort name. */
  get rollouts(): Readonly<Record<string, { readonly table: Table }>> {
    return Object.fromEntries(
      this.#sets.map(({ cohort, algorithm }) => [
        cohort.name,
        { table: rolloutTable(cohort, { seed: cohort.seed, gamma: algorithm.gamma }) },
      ]),
    )
  }

  get checkpointNumber(): number {
    return this.update
  }

  /** Statistics of the episodes of a cohort or one of its sets of weights; default the first learner. */
  progress(name?: string): EpisodeProgress {
    const trained = name === undefined ? this.#sets[0] : this.#sets.find((each) => each.name === name)
    if (trained === undefined) throw unknownWord('cohort', String(name), this.learners)
    return progressOf(trained)
  }

  #numUpdates({ totalSteps }: Goal): number {
    if (!(typeof totalSteps === 'number' && Number.isFinite(totalSteps) && totalSteps >= 1)) {
      throw new InputError('totalSteps', show(totalSteps), 'a number ≥ 1')
    }
    // Assumes that the number of present lanes stays.
    const stepsPerUpdate = this.#stepsOf(({ population }) => population.present[0]!)
    return this.update + Math.ceil(Math.max(0, totalSteps - this.steps) / Math.max(1, stepsPerUpdate))
  }

  #stepsOf(lanes: (cohort: EpisodeCohort) => number): number {
    return this.#learning.reduce((sum, cohort) => sum + lanes(cohort) * cohort.numSteps, 0)
  }

  /** @throws InputError if no lane is present to train on. */
  #refuseExtinct(): void {
    for (const cohort of this.#learning) {
      if (cohort.population.present[0] !== 0) continue
      throw new InputError(`cohort ${cohort.name}`, 'no present lane', 'at least one to train on: spawn(cohort)')
    }
  }

  isDone(goal: Goal): boolean {
    const numUpdates = this.#numUpdates(goal)
    return goal.signal?.aborted === true || goal.phase !== undefined || this.update >= numUpdates
  }

  kept({ cohorts }: Pick<Manifest, 'cohorts'>): void {
    this.#actors?.kept((cohorts[this.#learning[0]!.name] as EpisodeRecord).update)
  }

  close(): void {
    this.#isClosed = true
    this.#team?.end()
    this.#team = undefined
    this.#actors?.close()
  }

  /** Like `close`. When it settles, no thread writes the lanes' columns any more. */
  async halt(): Promise<void> {
    this.close()
    await this.#actors?.halt()
  }

  /** One rollout and the learning from it, by all threads; undefined if the signal ends the wait for actors elsewhere. */
  async advance(goal: Goal): Promise<UpdateMetrics | undefined> {
    this.checkBetween('trainer.updates()')
    settle(this.#cohorts)
    this.#refuseExtinct()
    for (const { algorithm } of this.#sets) {
      if (!algorithm.needsTable) continue
      throw new InputError('trainer.updates()', `${algorithm.id}, which learns from tables`, 'trainer.learn(table)')
    }
    return this.#runUpdate(this.#numUpdates(goal), goal.signal)
  }

  /** Trains the only learner on a table's rollout `i`; `left` updates remain, including this one, for schedules. */
  async learnFrom(
    rollouts: RecordedRollouts,
    i: number,
    left: number,
    given: RecordedCorrection,
  ): Promise<UpdateMetrics> {
    this.checkBetween('trainer.learn()')
    this.#recorded = { rollouts, i, estimate: rollouts.estimate(given) }
    try {
      return (await this.#runUpdate(this.update + left))!
    } finally {
      this.#recorded = undefined
    }
  }

  /** The only learner's cohort and algorithm. @throws InputError if there are several. */
  sole(action: string): { readonly cohort: EpisodeCohort; readonly algorithm: AlgorithmDefinition } {
    const [trained, ...others] = this.#sets
    if (others.length === 0) return trained!
    const count = this.#learning.length
    const got = count > 1 ? `${count} cohorts that learn` : `${this.#sets.length} sets of weights that learn`
    throw new InputError(action, got, 'a trainer with one learner')
  }

  async #runUpdate(numUpdates: number, signal?: AbortSignal): Promise<UpdateMetrics | undefined> {
    this.#isUpdating = true
    this.#isClosed = false
    const abandoned = new Promise<never>((_, reject) => {
      this.#abandon = reject
    })
    abandoned.catch(() => {}) // Prevents an unhandled rejection if nothing awaits it.
    let team: Team | undefined
    try {
      const { count, actors } = this.world.threads
      if (count - actors > 1 && this.#team === undefined) {
        const sharing = this.#sharing!
        const { endWhenDropped, lanesOrders, Team } = await teams()
        sharing.restart()
        this.#team = await Team.start(lanesOrders(this.#ordered, 1, count - actors), shareOf(this.world))
        this.#team.onEnd = aborting(sharing.columns)
        endWhenDropped(this, this.#team)
      }
      if (this.#actors?.isStarted === false) {
        const ending = await this.#actors.start(this.update, signal).catch((error) => {
          if (signal?.aborted) return null
          throw error
        })
        if (ending === null) {
          this.#endTeam()
          return undefined
        }
        ;(await teams()).endWhenDropped(this, ending)
      }
      team = this.#team
      if (this.#isClosed) this.close() // While the workers were starting.
      if (team?.isOver) throw new Aborted('another thread failed')
      team?.hold(true)
      this.#actors?.hold(true)
      const program = this.#program(numUpdates, signal)
      for (;;) {
        const { done, value } = program.next()
        if (done) {
          team?.hold(false)
          this.#actors?.hold(false)
          if (value !== undefined) return this.#report(value)
          this.#endTeam()
          return undefined
        }
        if (value === undefined) continue
        const isOwn = this.#actors === undefined && this.#sharing?.isWaiting !== true
        if (isOwn) this.world.clock.await(this.#awaited())
        else this.world.clock.rest() // A stuck thread reports itself.
        await Promise.race([value, abandoned]) // An answer of an asynchronous policy, or what other threads do.
      }
    } catch (error) {
      // The update cannot be finished.
      this.failure = error instanceof Aborted ? team!.failure : error
      this.close()
      this.world.close()
      throw this.failure
    } finally {
      this.#isUpdating = false
      this.world.clock.rest()
    }
  }

  /** The next update begins the same rollout, with other threads. */
  #endTeam(): void {
    this.#team?.end()
    this.#team = undefined
  }

  /** Abandons a running update that is stuck: its promise is rejected with the reason. */
  giveUp(reason: Error): void {
    this.#abandon(reason)
    this.#team?.fail(reason)
    this.#actors?.fail(reason)
  }

  /** The promises that an update may await, as texts: a reply for each cohort, and those of policies and learners. */
  get promises(): string[] {
    return [
      ...this.#cohorts.map(({ name, kind }) =>
        kind === 'episodes' ? `infer of cohort ${name} (a promise)` : `a reply to cohort ${name}`,
      ),
      'values or learning (a promise)',
    ]
  }

  /** Index of the awaited one of `promises`: that of the first cohort with a pending reply. */
  #awaited(): number {
    const owed = this.#cohorts.findIndex((cohort) =>
      cohort.kind === 'episodes' ? cohort.answer !== null : cohort.pending.some((reply) => reply !== null),
    )
    return owed < 0 ? this.#cohorts.length : owed
  }

  /** Throws during an update or after a failed one, when training cannot continue from these columns. */
  checkBetween(action: string): void {
    if (this.failure !== undefined) throw this.failure
    if (this.#isUpdating) throw new InputError(action, 'a call during an update', 'a call between two updates')
  }

  /**
   * One update: a rollout, and the learning from it. Yields promises to await. Returns each cohort's metrics; undefined if the signal ends
   * the wait for the rollout.
   */
  *#program(numUpdates: number, signal?: AbortSignal): Generator<void | Promise<void>, Measured | undefined> {
    const update = this.update
    const isRecorded = this.#recorded !== undefined
    const { clock } = this.world
    clock.start()
    const start = performance.now()
    for (const cohort of this.#learning) {
      closeRollout(cohort)
      for (const policy of cohort.league?.policies ?? [cohort.policy]) policy.refresh?.()
      cohort.version = update
    }
    if (isRecorded) yield* this.#loadRecorded()
    else if (this.#actors === undefined) yield* this.#collection!.collect(update)
    else if (!(yield* this.#actors.deliver(this.world, update, numUpdates, signal))) return undefined
    for (const cohort of this.#learning) openBuffer(cohort, update)
    concludeRollouts(this.world, this.#cohorts)
    settle(this.#cohorts) // Learners read the rollout, which must not change.
    const collected = performance.now()
    const waitSeconds = (collected - start) / 1000
    const seconds = this.seconds + (collected - this.since) / 1000
    const rolloutSeconds = this.#actors?.rolloutSeconds ?? waitSeconds
    const cohorts: Record<string, CohortMetrics> = {}
    for (const { league, rollout } of this.#learning) if (league !== null) markLearned(league, rollout.valid)
    const learningBegan = performance.now()
    if (this.#sharing !== undefined) this.#sharing.team = this.#learningPace.threads
    for (const trained of this.#sets) {
      const { algorithm, stale } = trained
      if (!isRecorded) accountEpisodes(trained, this.#learning, this.world.kernels, this.steps, seconds)
      clock.mark(Work.account)
      if (stale !== null) yield* stale.evaluate(update)
      const staleness =
        stale !== null
          ? {
              ...stale.measure(update),
              ...this.#actors!.times,
              learnerWaitSeconds: waitSeconds,
              ...stale.countRows(update),
            }
          : {}
      const played = isRecorded ? {} : playedOf(trained.cohort)
      const learner = trained.learners[update % trained.learners.length]!
      const learned = yield* learner.learn(update, numUpdates, this.#recorded?.estimate ?? stale?.estimate)
      checkMetricValues(`${algorithm.id} metrics`, algorithm.metrics, learned)
      keepAdvantages(trained)
      trained.growMoments?.()
      cohorts[trained.name] = { ...episodeMetricsOf(trained), ...learned, ...staleness, ...played }
      clock.mark(Work.account)
    }
    this.#learningPace.took(performance.now() - learningBegan)
    for (const { selfPlay, league } of this.#learning) {
      if (selfPlay !== null && !isRecorded) exchangeOldest(selfPlay, league!, update + 1)
    }
    return { cohorts, rolloutSeconds, updateSeconds: (performance.now() - collected) / 1000 }
  }

  /** Writes a table's rollout in the place of the lanes'. */
  *#loadRecorded(): Generator<void | Promise<void>, void> {
    const { rollouts, i } = this.#recorded!
    rollouts.load(i)
    yield* rollouts.evaluate(i)
    this.world.clock.mark(Work.forward)
  }

  /** Counts an update. Rows of a table are not environment steps. */
  #report({ cohorts, rolloutSeconds, updateSeconds }: Measured): UpdateMetrics {
    this.update++
    this.#actors?.conclude()
    const steps = this.#recorded === undefined ? this.#stepsOf(({ present }) => present) : 0
    this.steps += steps
    const seconds = (performance.now() - this.since) / 1000
    this.seconds += seconds
    for (const cohort of this.#learning) cohort.version = this.update
    const sole =
      this.#sets.length === 1 ? cohorts[this.#sets[0]!.name]! : noMetrics(this.#sets.map(({ algorithm }) => algorithm))
    return {
      update: this.update,
      steps: this.steps,
      seconds: this.seconds,
      stepsPerSecond: steps / seconds,
      ...sole,
      rolloutSeconds,
      updateSeconds,
      phaseSeconds: this.world.clock.seconds(),
      cohorts,
    } as UpdateMetrics
  }

  /** Takes back the writes of an update to large columns. */
  get undos(): Undo[] {
    return this.#sets.flatMap(({ learners }) => learners.flatMap(({ undo = [] }) => undo))
  }

  saved(): SavedTraining {
    for (const cohort of this.#learning) closeRollout(cohort)
    settle(this.#cohorts)
    const of = { update: this.update, steps: this.steps, seconds: this.seconds }
    const cohorts = this.#learning.map((cohort) => {
      const sets = this.#sets.filter((trained) => trained.cohort === cohort)
      return [cohort.name, recordOfSets(sets, this.world.seed, of)] as const
    })
    const instead = this.#actors?.instead(this.update)
    return { tensors: [], cohorts: Object.fromEntries(cohorts), ...(instead !== undefined && { instead }) }
  }

  restore({ cohorts }: Manifest): void {
    this.#collection?.restart()
    for (const cohort of laneCohorts(this.world)) {
      cohort.t = cohort.numSteps
      cohort.bootstrap.length = 0
      restoreLanes(cohort)
    }
    for (const trained of this.#sets) {
      const record = cohorts[trained.cohort.name] as EpisodeRecord
      this.update = record.update
      this.steps = record.steps
      this.seconds = record.seconds
      takeUpRecord(trained, record)
    }
  }

  compareCheckpoint(subject: string, { cohorts, seed }: Manifest): string[] {
    for (const trained of this.#sets)
      compareRecord(subject, trained, cohorts[trained.cohort.name] as EpisodeRecord, seed)
    return []
  }

  compareRun(subject: string, run: RunRecord): string[] {
    compareCohort(subject, run, this.#sets[0]!)
    return []
  }
}
