/**
 * The collector of groups over an admission: it begins as many conversations as the admission permits, ticks until the groups of an
 * update are whole and admitted, and begins others in place of those that are dropped. With `maxStaleness` 0 no conversation is
 * under way while the weights change, so nothing that it takes is stale; what is, since somebody else gave the engine other
 * weights, is dropped and counted.
 *
 * Conversations are numbered in the order in which they begin, and so are the admission's tickets: member m of group g is
 * conversation g · groupSize + m.
 */
import type { RlDefinition } from '../../algorithms/rl.ts'
import { Work } from '../../clock.ts'
import { checkLogRoom } from '../../cohorts/conversation-log.ts'
import { type ConversationCohort, cancelReplies } from '../../cohorts/conversations.ts'
import { Admission, type Delivery, type Ticket } from '../../orchestration/admission.ts'
import { awaitAnswers, runSystems } from '../../tick.ts'
import type { World } from '../../world.ts'
import type { Collector, CollectorProgress, SavedCollector } from '../collector.ts'
import { nextTurn } from '../training.ts'
import { isFresh, refusalOf, rowsOfGroup } from './group-filter.ts'

export class GroupCollector implements Collector {
  readonly #world: World
  readonly #cohort: ConversationCohort
  readonly #rl: RlDefinition
  readonly #admission: Admission
  /** Its own lanes alone move while it collects. */
  readonly #moved: readonly ConversationCohort[]
  /** Of the conversations that may begin or are under way, by number. */
  readonly #tickets = new Map<number, Ticket>()
  #ticks = 0
  #isMidway = false
  #isBetweenUpdates = true
  #delivery: Delivery | null = null
  /** Rows of the log that were taken in. */
  #taken = 0

  constructor(world: World, cohort: ConversationCohort, rl: RlDefinition) {
    const { groupsPerUpdate, groupSize, dropsMax, updates } = rl.settings
    this.#world = world
    this.#cohort = cohort
    this.#rl = rl
    this.#admission = new Admission({ groupsPerBatch: groupsPerUpdate, groupSize, dropsMax, updates })
    this.#moved = [cohort]
    cohort.released = 0
  }

  get progress(): CollectorProgress {
    return { ticks: this.#ticks, drops: this.#delivery?.drops ?? {} }
  }

  get isMidway(): boolean {
    return this.#isMidway
  }

  get isBetweenUpdates(): boolean {
    return this.#isBetweenUpdates
  }

  async collect(signal: AbortSignal | undefined): Promise<boolean> {
    if (this.#isBetweenUpdates) {
      this.#isBetweenUpdates = false
      this.#forget()
    }
    let isThere = false
    try {
      isThere = await this.#tickUntil(signal, () => this.#take())
      return isThere
    } finally {
      if (!isThere) this.close()
    }
  }

  /** Ticks until something is there; false where the signal stops it before. */
  async #tickUntil(signal: AbortSignal | undefined, isThere: () => boolean): Promise<boolean> {
    const { clock } = this.#world
    let rested = performance.now()
    for (;;) {
      this.#release()
      if (isThere()) return true
      if (signal?.aborted) return false
      this.#isMidway = true
      clock.charge(Work.waiting)
      clock.wake()
      const moved = runSystems(this.#world, this.#moved)
      if (moved !== undefined) await moved
      clock.rest() // Replies that are owed have a time limit of their own.
      this.#takeIn()
      this.#isMidway = false
      this.#ticks++
      checkLogRoom(this.#cohort)
      const waiting = awaitAnswers(this.#moved)
      if (waiting !== undefined) await (signal === undefined ? waiting : orAborted(waiting, signal))
      if (performance.now() - rested < 50) continue
      await nextTurn() // Interrupts and timers come through.
      rested = performance.now()
    }
  }

  /** Lets as many conversations begin as the admission permits. */
  #release(): void {
    for (let ticket = this.#admission.begin(); ticket !== null; ticket = this.#admission.begin()) {
      this.#tickets.set(this.#cohort.released++, ticket)
    }
  }

  /** Tells the admission of the conversations that are over since it was last told, and judges the groups that are whole. */
  #takeIn(): void {
    const { trajectories, groupSize } = this.#cohort
    const { count } = trajectories
    if (this.#taken === count) return
    this.#world.clock.charge(Work.waiting)
    const whole: number[] = []
    for (; this.#taken < count; this.#taken++) {
      const { group, member, segment } = trajectories.row(this.#taken)
      if (segment !== 0) continue // Its conversation was told of with its first row.
      const number = group * groupSize + member
      const ticket = this.#tickets.get(number)!
      this.#tickets.delete(number)
      if (this.#admission.finish(ticket)) whole.push(group)
    }
    for (const group of whole) this.#judge(group)
    this.#forget()
    this.#world.clock.charge(Work.account)
  }

  #judge(group: number): void {
    const { trajectories, tokenizer } = this.#cohort
    const rows = rowsOfGroup(trajectories, group)
    const reason = refusalOf(trajectories, tokenizer, rows, this.#oldest, this.#rl.filter)
    this.#admission.judge(group, reason === null ? { keep: true } : { keep: false, reason })
  }

  /** The oldest weights of which a token may be learned from. */
  get #oldest(): number {
    return this.#cohort.version - this.#admission.settings.maxStaleness
  }

  /** Takes the next batch, if it is there. */
  #take(): boolean {
    const { trajectories } = this.#cohort
    const delivery = this.#admission.take((group) =>
      isFresh(trajectories, rowsOfGroup(trajectories, group), this.#oldest),
    )
    if (delivery === null) return false
    this.#delivery = delivery
    return true
  }

  /** Forgets the rows of groups that were learned from or dropped. */
  #forget(): void {
    const { trajectories } = this.#cohort
    const { group } = trajectories.columns()
    const kept = Array.from(group.keys()).filter((row) => this.#admission.has(group[row]!))
    if (kept.length === 0) trajectories.clear()
    else if (kept.length < group.length) trajectories.keep(kept)
    this.#taken = trajectories.count
  }

  rows(): number[] {
    const { trajectories } = this.#cohort
    const { group } = trajectories.columns()
    const delivered = new Set(this.#delivery?.groups)
    return trajectories.order().filter((row) => delivered.has(group[row]!))
  }

  learned(): void {
    this.#admission.advance()
    this.#isBetweenUpdates = true
  }

  close(): void {
    cancelReplies(this.#cohort)
  }

  saved(): SavedCollector {
    return {
      ticks: this.#ticks,
      isBetweenUpdates: this.#isBetweenUpdates,
      released: this.#cohort.released,
      admission: this.#admission.saved(),
      delivery: this.#delivery,
    }
  }

  restore({ ticks, isBetweenUpdates, released, admission, delivery }: SavedCollector): void {
    this.#ticks = ticks
    this.#isBetweenUpdates = isBetweenUpdates
    this.#cohort.released = released
    this.#delivery = delivery
    this.#admission.restore(admission)
    this.#tickets.clear()
    // Conversations under way go on in their lanes, or are yet to begin: their tickets are theirs again.
    for (const { group, member } of admission.underWay) {
      if (!this.#admission.has(group)) continue
      this.#tickets.set(group * this.#cohort.groupSize + member, this.#admission.begin()!)
    }
    this.#taken = this.#cohort.trajectories.count
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
