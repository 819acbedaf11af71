/**
 * The synchronous collector: it begins as many conversations as an update learns from, ticks until all of them are over, and begins
 * as many again as the filter drops. No conversation is under way while the weights change, so nothing that it takes is stale;
 * what is, since somebody else gave the engine other weights, is dropped and counted.
 */
import type { RlDefinition } from '../../algorithms/rl.ts'
import { Work } from '../../clock.ts'
import { checkLogRoom } from '../../cohorts/conversation-log.ts'
import { type ConversationCohort, cancelReplies } from '../../cohorts/conversations.ts'
import { InputError } from '../../errors.ts'
import { awaitAnswers, runSystems } from '../../tick.ts'
import type { World } from '../../world.ts'
import type { Collector, CollectorProgress, SavedCollector } from '../collector.ts'
import { nextTurn } from '../training.ts'
import { refuseGroups } from './group-filter.ts'

export class SynchronousCollector implements Collector {
  readonly maxStaleness = 0
  readonly #world: World
  readonly #cohort: ConversationCohort
  readonly #rl: RlDefinition
  /** Its own lanes alone move while it collects. */
  readonly #moved: readonly ConversationCohort[]
  #ticks = 0
  #isMidway = false
  #isBetweenUpdates = true
  #drops: Record<string, number> = {}
  readonly #admitted = new Set<number>()

  constructor(world: World, cohort: ConversationCohort, rl: RlDefinition) {
    this.#world = world
    this.#cohort = cohort
    this.#rl = rl
    this.#moved = [cohort]
    cohort.released = 0
  }

  get progress(): CollectorProgress {
    return { ticks: this.#ticks, drops: this.#drops }
  }

  get isMidway(): boolean {
    return this.#isMidway
  }

  get isBetweenUpdates(): boolean {
    return this.#isBetweenUpdates
  }

  async collect(signal: AbortSignal | undefined): Promise<boolean> {
    if (this.#isBetweenUpdates) this.#begin()
    try {
      return await this.#collect(signal)
    } finally {
      cancelReplies(this.#cohort)
    }
  }

  #begin(): void {
    const { groupsPerUpdate, groupSize } = this.#rl.settings
    this.#cohort.trajectories.clear()
    this.#cohort.released += groupsPerUpdate * groupSize
    this.#drops = {}
    this.#admitted.clear()
    this.#isBetweenUpdates = false
  }

  async #collect(signal: AbortSignal | undefined): Promise<boolean> {
    const { groupsPerUpdate, groupSize } = this.#rl.settings
    const { trajectories } = this.#cohort
    let rested = performance.now()
    const { clock } = this.#world
    for (;;) {
      while (trajectories.numConversations < groupsPerUpdate * groupSize) {
        if (signal?.aborted) return false
        this.#isMidway = true
        clock.charge(Work.waiting)
        clock.wake()
        const moved = runSystems(this.#world, this.#moved)
        if (moved !== undefined) await moved
        this.#isMidway = false
        clock.rest() // Replies that are owed have a time limit of their own.
        this.#ticks++
        checkLogRoom(this.#cohort)
        const waiting = awaitAnswers(this.#moved)
        if (waiting !== undefined) await (signal === undefined ? waiting : orAborted(waiting, signal))
        if (performance.now() - rested < 50) continue
        await nextTurn() // Interrupts and timers come through.
        rested = performance.now()
      }
      clock.charge(Work.waiting)
      const missing = this.#admit()
      clock.charge(Work.account)
      if (missing === 0) return true
      this.#cohort.released += missing * groupSize
    }
  }

  /** Drops the groups that are stale, and those that the filter refuses. Returns how many. */
  #admit(): number {
    const { settings, filter } = this.#rl
    const { trajectories, tokenizer, version } = this.#cohort
    const oldest = version - this.maxStaleness
    const { keep, dropped } = refuseGroups(trajectories, tokenizer, oldest, filter, this.#admitted, this.#drops)
    if (dropped === 0) return 0
    const total = Object.values(this.#drops).reduce((sum, count) => sum + count, 0)
    if (total > settings.dropsMax) {
      const reasons = Object.entries(this.#drops).map(([reason, count]) => `${count} ${reason}`)
      const got = `${total} groups dropped for one update (${reasons.join(', ')})`
      throw new InputError(
        'rl.dropsMax',
        got,
        `at most ${settings.dropsMax}: another filter, or a task that is neither too easy nor too hard`,
      )
    }
    trajectories.keep(keep)
    return dropped
  }

  rows(): number[] {
    return this.#cohort.trajectories.order()
  }

  learned(): void {
    this.#isBetweenUpdates = true
  }

  saved(): SavedCollector {
    return {
      ticks: this.#ticks,
      isBetweenUpdates: this.#isBetweenUpdates,
      released: this.#cohort.released,
      drops: { ...this.#drops },
      admitted: [...this.#admitted],
    }
  }

  restore({ ticks, isBetweenUpdates, released, drops, admitted }: SavedCollector): void {
    this.#ticks = ticks
    this.#isBetweenUpdates = isBetweenUpdates
    this.#cohort.released = released
    this.#drops = { ...drops }
    this.#admitted.clear()
    for (const group of admitted) this.#admitted.add(group)
  }
}

/** Settles with the promise, or once the signal is aborted. */
async function orAborted(waiting: Promise<void>, signal: AbortSignal): Promise<void> {
  if (signal.aborted) return
  let stop = () => {}
  const aborted = new Promise<void>((resolve) => {
    stop = resolve
  })
  signal.addEventListener('abort', stop)
  await Promise.race([waiting, aborted])
  signal.removeEventListener('abort', stop)
}
