/**
 * Actors: threads that collect rollouts while others learn (IMPALA, Espeholt et al. 2018). Each has its own lanes and
 * inference, collects as many rollouts as permitted, and then sleeps.
 *
 * A rollout of all lanes is a group of `Admission`, and an actor's part is a member: updates learn from whole rollouts,
 * in order, each once. A rollout is permitted at most `maxStaleness` updates before the one that learns from it, so
 * none is thrown away, and it reuses the columns of the rollout learned from last (`world/episodes/ahead.ts`).
 *
 * An actor uses the newest weights published when it begins a rollout, but none learned from the rollout before it. So
 * with `maxStaleness` 1 the weights of rollout r are always version r − 1, and a training has the same bits each time,
 * as with 0.
 *
 * A checkpoint between two updates has the lanes' state at the start of the next rollout, and the published weights;
 * rollouts collected ahead are collected again.
 */
import type { AlgorithmDefinition } from '../../algorithms/algorithm.ts'
import { BEAT_WORDS, Work } from '../../base/clock.ts'
import { assert, checkCount, InputError, show } from '../../base/errors.ts'
import type { MetricValues } from '../../base/metrics.ts'
import { sharedBytes } from '../../base/shared.ts'
import type { Column } from '../../components/column.ts'
import { Admission } from '../../fleet/admission.ts'
import { beginningOf, keepBeginning, openBuffer } from '../../world/episodes/ahead-buffers.ts'
import type { EpisodeCohort } from '../../world/episodes/cohort.ts'
import type { World } from '../../world/world.ts'
import type { stalenessMetrics } from '../loop/metrics.ts'
import { collectWatched, WatchedRollouts } from '../watch/watched-rollouts.ts'
import { type ActorColumns, type LanesOrder, Team, type WorkerProgram } from './team.ts'

/** The number of threads and actors, and the staleness. @throws InputError for staleness without an actor. */
export function threadsFor(
  algorithms: readonly AlgorithmDefinition[],
  options: { readonly threads?: number; readonly actors?: number },
) {
  const maxStaleness = Math.max(0, ...algorithms.map(({ staleness }) => staleness?.maxStaleness ?? 0))
  const { actors = maxStaleness > 0 ? 1 : 0 } = options
  checkCount('actors', actors, 0)
  const { threads = actors === 0 ? 1 : 1 + actors } = options
  if (maxStaleness > 0 && threads < 2) {
    const expected = 'at least 2 threads: one collects while the other learns; or maxStaleness 0'
    throw new InputError('threads', `${show(threads)}, and a maxStaleness of ${maxStaleness}`, expected)
  }
  if (maxStaleness > 0 && actors === 0) {
    throw new InputError('actors', `0, and a maxStaleness of ${maxStaleness}`, 'at least 1, or maxStaleness 0')
  }
  return { threads, actors, maxStaleness }
}

/** @throws InputError if a world's rollouts cannot be collected ahead. */
export function checkAhead(world: World, algorithms: Readonly<Record<string, AlgorithmDefinition>>): void {
  const [draft, ...others] = world.drafts
  if (others.length > 0 || draft!.kind !== 'episodes') {
    const got = `cohorts ${world.names.join(', ')}`
    throw new InputError('actors', got, 'a world of one cohort of episodes, whose rollouts are collected ahead')
  }
  const { name, options, isOpen, model, sets } = draft!
  const { staleness } = algorithms[name]!
  const isCorrected = staleness !== undefined && staleness.maxStaleness > 0 && staleness.correction !== 'none'
  const refused = [
    [isOpen, 'lanes that come and go', 'lanes that stay'],
    [sets.all > 1, `${sets.all} sets of weights`, 'one'],
    [(options.systems ?? []).length > 0, 'systems of its own', 'none'],
    [isCorrected && (model.memoryWidth ?? 0) > 0, 'a policy with a memory', "one without, or correction 'none'"],
  ] as const
  for (const [isSo, got, expected] of refused) {
    if (isSo) throw new InputError(`cohort ${name}, whose rollouts are collected ahead`, got, expected)
  }
}

/** Words that all actors read: the newest published version, and the number of permitted rollouts. */
const Word = { version: 0, permitted: 1, collected: 2 } as const

/** Milliseconds since the epoch, which all threads share. */
function now(): number {
  return performance.timeOrigin + performance.now()
}

type DeliveryTimes = MetricValues<Pick<typeof stalenessMetrics, 'rolloutAge' | 'rolloutAgeMax' | 'actorWaitSeconds'>>

interface Patience {
  /** Each thread's progress marks. */
  readonly beats: Int32Array
  /** Seconds without progress after which an awaited actor is given up; 0: never. */
  readonly seconds: number
  /** A thread's lanes and its current call, as text. */
  describe(thread: number, call: number): string
}

/** The actors of a training, for the thread that they work for. */
export class Actors {
  readonly #cohort: EpisodeCohort
  readonly #numActors: number
  readonly #maxStaleness: number
  readonly #patience: Patience
  readonly columns: ActorColumns
  #admission: Admission
  #team: Team | undefined
  /** Settles when the threads of an earlier team are gone; until then they may write. */
  #gone: Promise<unknown> = Promise.resolve()
  /** Whether lanes have advanced beyond the start of the next rollout. */
  #isAhead = false
  /** Permitted rollouts, and those that every actor has collected. */
  #permitted = 0
  readonly #collected: Uint32Array
  /** Seconds that all actors had waited at the last delivery. */
  #waited = 0
  #times: DeliveryTimes = { rolloutAge: 0, rolloutAgeMax: 0, actorWaitSeconds: 0 }
  /** Seconds of the slowest actor for the delivered rollout. */
  rolloutSeconds = 0

  constructor(cohort: EpisodeCohort, numActors: number, patience: Patience) {
    this.#cohort = cohort
    this.#patience = patience
    this.#numActors = numActors
    const numBuffers = cohort.ahead!.buffers.length
    this.#maxStaleness = numBuffers - 1
    this.columns = {
      words: new Int32Array(sharedBytes(4 * (Word.collected + numActors))),
      times: new Float64Array(sharedBytes(8 * numActors * (1 + 2 * numBuffers))),
    }
    this.#collected = new Uint32Array(numActors)
    this.#admission = this.#admit(0)
  }

  /** New bookkeeping of groups, starting at the update with this number. */
  #admit(update: number): Admission {
    const settings = { groupsPerBatch: 1, groupSize: this.#numActors, maxStaleness: this.#maxStaleness }
    const admission = new Admission(settings)
    const counts = { version: update, next: update, taken: update, arrivals: update }
    admission.restore({ ...admission.saved(), ...counts })
    return admission
  }

  get isStarted(): boolean {
    return this.#team !== undefined
  }

  async start(update: number, orders: readonly LanesOrder[], describe: (index: number) => string): Promise<Team> {
    await this.#gone
    for (const [column, kept] of beginningOf(this.#cohort, update)) {
      if (this.#isAhead) column.set(kept)
      else kept.set(column)
    }
    this.#isAhead = true
    const { words } = this.columns
    words.fill(update)
    this.#collected.fill(update)
    this.#permitted = update
    this.columns.times.fill(0)
    this.#waited = 0
    this.#admission = this.#admit(update)
    orders[0]!.command[0] = update
    const team = await Team.start(orders, describe)
    team.onEnd = () => {
      for (let actor = 0; actor < this.#numActors; actor++) Atomics.notify(words, Word.collected + actor)
    }
    this.#team = team
    await team.meet() // The command has been written.
    return team
  }

  /** Publishes weights, permits rollouts ahead, and waits for this update's. Yields promises to await. */
  *deliver(world: World, update: number, numUpdates: number): Generator<Promise<void>, void> {
    const { words, times } = this.columns
    const { published } = this.#cohort.ahead!
    published[update % published.length]!.set(this.#cohort.weights)
    Atomics.store(words, Word.version, update)
    this.#permit(numUpdates)
    let delivery = this.#take()
    for (; delivery === null; delivery = this.#take()) yield this.#arrival(update)
    assert(delivery.groups[0] === update, 'actors deliver the rollout of another update')
    world.clock.mark(Work.waiting)
    const waited = times.subarray(0, this.#numActors).reduce((sum, each) => sum + each)
    const first = this.#numActors * (1 + 2 * (update % published.length))
    const began = times.subarray(first, first + this.#numActors)
    const took = times.subarray(first + this.#numActors, first + 2 * this.#numActors)
    const ages = Array.from(began, (each) => (now() - each) / 1000)
    this.rolloutSeconds = Math.max(...took)
    this.#times = {
      rolloutAge: ages.reduce((sum, age) => sum + age) / this.#numActors,
      rolloutAgeMax: Math.max(...ages),
      actorWaitSeconds: (waited - this.#waited) / this.#numActors,
    }
    this.#waited = waited
  }

  get times(): DeliveryTimes {
    return this.#times
  }

  /** Marks the delivered rollout as learned from. */
  conclude(): void {
    this.#admission.advance()
  }

  #permit(numUpdates: number): void {
    const { words } = this.columns
    while (this.#permitted < numUpdates && this.#admission.begin() !== null) {
      for (let member = 1; member < this.#numActors; member++) this.#admission.begin()
      this.#permitted++
    }
    Atomics.store(words, Word.permitted, this.#permitted)
    Atomics.notify(words, Word.permitted)
  }

  /** Registers collected rollouts. Returns the next one if it is complete. */
  #take(): ReturnType<Admission['take']> {
    const { words } = this.columns
    const team = this.#team!
    if (team.isOver) throw team.failure
    for (let member = 0; member < this.#numActors; member++) {
      const collected = Atomics.load(words, Word.collected + member)
      for (; this.#collected[member]! < collected; this.#collected[member]!++) {
        const group = this.#collected[member]!
        if (this.#admission.finish({ group, member, attempt: 0 })) this.#admission.judge(group, { keep: true })
      }
    }
    return this.#admission.take()
  }

  /** Resolves when an awaited actor progresses or the threads are gone. Ends them if it makes no progress in time. */
  async #arrival(update: number): Promise<void> {
    const actor = this.#collected.findIndex((collected) => collected <= update)
    const { beats, seconds, describe } = this.#patience
    const thread = beats.length / BEAT_WORDS - this.#numActors + actor
    const beat = beats.subarray(thread * BEAT_WORDS, (thread + 1) * BEAT_WORDS)
    for (let marks: number | null = null; ; ) {
      const milliseconds = seconds === 0 ? Number.POSITIVE_INFINITY : 1000 * seconds
      const waited = Atomics.waitAsync(
        this.columns.words,
        Word.collected + actor,
        this.#collected[actor]!,
        milliseconds,
      ).value
      if ((await waited) !== 'timed-out') return
      const marked = Atomics.load(beat, 0)
      if (marked === marks) {
        const call = describe(thread, Atomics.load(beat, 1) + 1)
        this.fail(
          new Error(`${call} has not returned for ${seconds} s, and update ${update + 1} waits for its rollout`),
        )
        return
      }
      marks = marked
    }
  }

  /** Columns saved in place of the lanes' current ones: the state at the start of this update's rollout. */
  instead(update: number): ReadonlyMap<Column, Column> {
    return this.#isAhead ? beginningOf(this.#cohort, update) : new Map()
  }

  /** As `close`. When it settles nobody writes in the lanes' columns, and lanes continue from there. */
  async halt(): Promise<void> {
    this.close()
    await this.#gone
    this.#isAhead = false
  }

  /** Whether the threads keep the process alive. */
  hold(isHeld: boolean): void {
    this.#team?.hold(isHeld)
  }

  /** Ends the threads with a reason, which `deliver` throws. */
  fail(reason: Error): void {
    this.#team?.fail(reason)
  }

  /** Ends the threads. Rollouts collected ahead are collected again by the next ones. */
  close(): void {
    this.#team?.end()
    this.#gone = this.#team?.gone ?? this.#gone
    this.#team = undefined
  }
}

/** An actor's program for its only command: it collects its lanes' parts of all rollouts. */
export function actorProgram(world: World, cohort: EpisodeCohort, { words, times }: ActorColumns): WorkerProgram {
  const { count, index, actors } = world.threads
  const actor = index - (count - actors)
  const { policies } = cohort.ahead!
  const maxStaleness = policies.length - 1
  return function* (command) {
    const watched = new WatchedRollouts()
    for (let number = command[0]!; ; number++) {
      world.clock.start()
      world.clock.rest()
      times[actor] = times[actor]! + awaitPermission(words, number)
      // Versions from number − maxStaleness on are published; those after the previous rollout are not used.
      const newest = Math.max(0, number - Math.min(1, maxStaleness))
      const version = Math.min(Atomics.load(words, Word.version), newest)
      openBuffer(cohort, number)
      const policy = policies[version % policies.length]!
      policy.refresh?.()
      Object.assign(cohort, { policy, version })
      const began = now()
      world.clock.mark(Work.waiting)
      yield* collectWatched(world, [cohort], watched.next([cohort]))
      keepBeginning(cohort, number + 1)
      const first = actors * (1 + 2 * (number % policies.length))
      times[first + actor] = began
      times[first + actors + actor] = (now() - began) / 1000
      Atomics.store(words, Word.collected + actor, number + 1)
      Atomics.notify(words, Word.collected + actor)
    }
  }
}

/** Sleeps until the rollout with this number is permitted. Returns the seconds. */
function awaitPermission(words: Int32Array, number: number): number {
  const start = performance.now()
  for (;;) {
    const permitted = Atomics.load(words, Word.permitted)
    if (permitted > number) return (performance.now() - start) / 1000
    Atomics.wait(words, Word.permitted, permitted)
  }
}
