/**
 * Actors that are threads of this process and write to the learner's own columns. They do not meet other threads; words hold their state.
 */
import { BEAT_WORDS, Work } from '../../base/clock.ts'
import { sharedBytes } from '../../base/shared.ts'
import type { EpisodeCohort } from '../../world/episodes/cohort.ts'
import type { World } from '../../world/world.ts'
import { WatchedRollouts } from '../loop/collection.ts'
import { type Crew, type CrewParts, type CrewTimes, collectAhead } from './crew.ts'
import type { ActorColumns, LanesOrder, WorkerProgram } from './orders.ts'
import { Team } from './team.ts'

/** Words that all actors read: the newest published version, and the number of permitted rollouts; then the collected ones. */
const Word = { version: 0, permitted: 1, collected: 2 } as const

/** Milliseconds since the epoch, which all threads share. */
function now(): number {
  return performance.timeOrigin + performance.now()
}

export interface ThreadCrewParts extends CrewParts {
  /** Each thread's progress marks. */
  readonly beats: Int32Array
  /** Seconds without progress after which an awaited actor is given up; 0: never. */
  readonly seconds: number
  orders(columns: ActorColumns): Promise<readonly LanesOrder[]>
  /** A thread's lanes as text, and with its current call. */
  describe(thread: number): string
  describeCall(thread: number, call: number): string
}

export class ThreadCrew implements Crew {
  readonly isElsewhere = false
  readonly #parts: ThreadCrewParts
  readonly #columns: ActorColumns
  #team: Team | undefined
  /** Settles when the threads of an earlier team are gone; until then they may write. */
  #gone: Promise<unknown> = Promise.resolve()

  constructor(parts: ThreadCrewParts) {
    this.#parts = parts
    const { cohort, numMembers } = parts
    const numBuffers = cohort.ahead!.buffers.length
    this.#columns = {
      words: new Int32Array(sharedBytes(4 * (Word.collected + numMembers))),
      times: new Float64Array(sharedBytes(8 * numMembers * (1 + 2 * numBuffers))),
    }
  }

  async start(update: number): Promise<Team> {
    const { words, times } = this.#columns
    words.fill(update)
    times.fill(0)
    const orders = await this.#parts.orders(this.#columns)
    orders[0]!.command[0] = update
    const team = await Team.start(orders, this.#parts.describe)
    team.onEnd = () => {
      for (let member = 0; member < this.#parts.numMembers; member++) Atomics.notify(words, Word.collected + member)
    }
    this.#team = team
    await team.meet() // The command has been written.
    return team
  }

  permit(version: number, permitted: number): void {
    const { words } = this.#columns
    Atomics.store(words, Word.version, version)
    Atomics.store(words, Word.permitted, permitted)
    Atomics.notify(words, Word.permitted)
  }

  collected(member: number): number {
    return Atomics.load(this.#columns.words, Word.collected + member)
  }

  get failure(): Error | null {
    if (this.#team === undefined) return new Error('the trainer was closed during an update')
    return this.#team.isOver ? this.#team.failure : null
  }

  /** Ends the threads if the awaited one makes no progress in time. */
  async arrival(member: number, collected: number, update: number): Promise<void> {
    const { beats, seconds, numMembers, describeCall } = this.#parts
    const thread = beats.length / BEAT_WORDS - numMembers + member
    const beat = beats.subarray(thread * BEAT_WORDS, (thread + 1) * BEAT_WORDS)
    const milliseconds = seconds === 0 ? Number.POSITIVE_INFINITY : 1000 * seconds
    for (let marks: number | null = null; ; ) {
      const word = Word.collected + member
      const waited = Atomics.waitAsync(this.#columns.words, word, collected, milliseconds).value
      if ((await waited) !== 'timed-out') return
      const marked = Atomics.load(beat, 0)
      if (marked === marks) {
        const call = describeCall(thread, Atomics.load(beat, 1) + 1)
        const reason = `${call} has not returned for ${seconds} s, and update ${update + 1} waits for its rollout`
        return this.fail(new Error(reason))
      }
      marks = marked
    }
  }

  times(update: number): CrewTimes {
    const { cohort, numMembers } = this.#parts
    const { times } = this.#columns
    const first = numMembers * (1 + 2 * (update % cohort.ahead!.buffers.length))
    return {
      waited: times.subarray(0, numMembers),
      began: times.subarray(first, first + numMembers),
      took: times.subarray(first + numMembers, first + 2 * numMembers),
    }
  }

  learned(): void {}

  kept(): void {}

  hold(isHeld: boolean): void {
    this.#team?.hold(isHeld)
  }

  fail(reason: Error): void {
    this.#team?.fail(reason)
  }

  close(): Promise<unknown> {
    this.#team?.end()
    this.#gone = this.#team?.gone ?? this.#gone
    this.#team = undefined
    return this.#gone
  }
}

/** An actor's program for its only command: it collects its lanes' parts of all rollouts. */
export function actorProgram(world: World, cohort: EpisodeCohort, { words, times }: ActorColumns): WorkerProgram {
  const { count, index, actors } = world.threads
  const actor = index - (count - actors)
  const numBuffers = cohort.ahead!.policies.length
  return function* (command) {
    const watched = new WatchedRollouts()
    for (let number = command[0]!; ; number++) {
      world.clock.start()
      world.clock.rest()
      times[actor] = times[actor]! + awaitPermission(words, number)
      // Versions from number − maxStaleness on are published; those after the previous rollout are not used.
      const newest = Math.max(0, number - Math.min(1, numBuffers - 1))
      const began = now()
      world.clock.mark(Work.waiting)
      yield* collectAhead(world, cohort, number, Math.min(Atomics.load(words, Word.version), newest), watched)
      const first = actors * (1 + 2 * (number % numBuffers))
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
