/**
 * The collector of groups over an admission: it begins as many conversations as the admission permits, ticks until the groups of an
 * update are whole and admitted, and begins others in place of those that are dropped. With `maxStaleness` 0 no conversation is
 * under way while the weights change, so nothing that it takes is stale; what is, since somebody else gave the engine other
 * weights, is dropped and counted. With more, conversations of later updates are under way meanwhile, and go on.
 *
 * Every wait ends: a reply and a turn have time limits of their own, and who exceeds one is told of by lane.
 *
 * Conversations are numbered in the order in which they begin, and so are the admission's tickets: member m of group g is
 * conversation g · groupSize + m.
 */
import type { RlDefinition } from '../../../algorithms/tokens/rl.ts'
import { Work } from '../../../base/clock.ts'
import { InputError } from '../../../base/errors.ts'
import { ConversationPhase } from '../../../components/conversation.ts'
import type { Admission, Ticket } from '../../../fleet/admission.ts'
import { awaitAnswers, runSystems } from '../../../systems/tick.ts'
import { type ConversationCohort, cancelReplies, canGoOn, owedAnswers } from '../../../world/conversations/cohort.ts'
import { checkLogRoom } from '../../../world/conversations/log.ts'
import { abandonConversation } from '../../../world/conversations/turns.ts'
import type { World } from '../../../world/world.ts'
import type { Collector, CollectorProgress, SavedCollector } from '../../loop/collector.ts'
import { nextTurn } from '../../loop/training.ts'
import { LoggedGroups } from './logged-groups.ts'
import { TurnLimit } from './turn-limit.ts'

export class GroupCollector implements Collector {
  readonly #world: World
  readonly #cohort: ConversationCohort
  readonly #rl: RlDefinition
  readonly #groups: LoggedGroups
  readonly #admission: Admission
  /** Its own lanes alone move while it collects. */
  readonly #moved: readonly ConversationCohort[]
  /** Of the conversations that may begin or are under way, by number. */
  readonly #tickets = new Map<number, Ticket>()
  readonly #turns: TurnLimit
  #ticks = 0
  #isMidway = false
  #isBetweenUpdates = true
  /** Rows of the log that were taken in. */
  #taken = 0
  /** Something has happened on which it depends who may begin, and whether a batch is there. */
  #hasNews = true
  /** A learner reads the log: its rows stay where they are. */
  #isRead = false
  /** Groups were dropped of which conversations are under way, or begin below this number. */
  #abandonBelow = 0
  /** Seconds in which lanes were idle since the last batch; the part of them that is so since a time in ms. */
  #idle = { seconds: 0, part: 0, since: 0 }

  constructor(world: World, cohort: ConversationCohort, rl: RlDefinition) {
    const { groupSize, failure } = rl.settings
    this.#world = world
    this.#cohort = cohort
    this.#rl = rl
    // Where a failure is kept, the admission is not told of it.
    const policy =
      failure === 'drop' ? ({ kind: 'shrink', minMembers: groupSize } as const) : ({ kind: 'throw' } as const)
    this.#groups = new LoggedGroups(cohort, rl, policy)
    this.#admission = this.#groups.admission
    this.#turns = new TurnLimit(cohort)
    this.#moved = [cohort]
    cohort.released = 0
  }

  get progress(): CollectorProgress {
    return { ticks: this.#ticks, ...this.#groups.told }
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
      this.#forgetRows()
    }
    let isThere = false
    this.#idle.since = performance.now()
    this.#hasNews = true
    this.#turns.begin()
    try {
      while (!isThere) {
        const isReady = (hasNews: boolean) => hasNews && this.#admission.isReady
        if (!(await this.#tickUntil(signal, isReady))) return false
        await this.prove()
        isThere = this.#take()
      }
      return true
    } finally {
      if (!isThere) this.close()
    }
  }

  /** Ticks until something is there; false where the signal stops it before. */
  async #tickUntil(signal: AbortSignal | undefined, isThere: (hasNews: boolean) => boolean): Promise<boolean> {
    const { clock } = this.#world
    let rested = clock.lastRead
    let isTimed = true // What goes by the time is looked at where the clock is read.
    for (;;) {
      const hasNews = this.#hasNews
      this.#hasNews = false
      if (hasNews) this.#release()
      if (hasNews || isTimed) this.#countIdle()
      const isReady = isThere(hasNews)
      if (isReady || signal?.aborted) {
        clock.endTicks()
        return isReady
      }
      this.#isMidway = true
      if (this.#isRead) clock.endTicks() // A learner's time lies between these ticks.
      isTimed = clock.beginTick()
      clock.wake()
      const moved = runSystems(this.#world, this.#moved)
      if (moved !== undefined) await moved
      clock.rest() // Replies that are owed have a time limit of their own.
      this.#takeIn()
      this.#abandon()
      if (isTimed) this.#turns.look()
      this.#isMidway = false
      this.#ticks++
      if (!this.#isRead) checkLogRoom(this.#cohort)
      const waiting = awaitAnswers(this.#moved)
      if (waiting !== undefined) {
        clock.endTicks()
        await this.#turns.orLate(signal === undefined ? waiting : orAborted(waiting, signal))
      }
      if (!isTimed || clock.lastRead - rested < 50) continue
      await nextTurn() // Interrupts and timers come through.
      rested = clock.lastRead
    }
  }

  /** Lets as many conversations begin as the admission permits. */
  #release(): void {
    for (let ticket = this.#groups.begin(); ticket !== null; ticket = this.#groups.begin()) {
      this.#tickets.set(this.#cohort.released++, ticket)
    }
  }

  /** Tells the admission of the conversations that are over since it was last told, and judges the groups that are whole. */
  #takeIn(): void {
    const { trajectories, groupSize } = this.#cohort
    const { count } = trajectories
    if (this.#taken === count) return
    this.#world.clock.charge(Work.waiting)
    const { segment } = trajectories.columns()
    const { numDropped } = this.#admission
    this.#hasNews = true
    const whole: number[] = []
    for (; this.#taken < count; this.#taken++) {
      if (this.#taken + 1 < count && segment[this.#taken + 1] !== 0) continue // Its last row tells how it ended.
      const { group, member, stopReason, error } = trajectories.row(this.#taken)
      const number = group * groupSize + member
      const ticket = this.#tickets.get(number)
      if (ticket === undefined) continue // Of a group that was dropped before a checkpoint.
      this.#tickets.delete(number)
      const isFailed = stopReason === 'aborted' && this.#rl.settings.failure !== 'keep'
      if (isFailed ? this.#admission.fail(ticket, failureOf(ticket, error!)) : this.#admission.finish(ticket)) {
        whole.push(group)
      }
    }
    for (const group of whole) this.#groups.judge(group)
    if (this.#admission.numDropped > numDropped) this.#dropped()
    this.#world.clock.charge(Work.account)
  }

  /** Groups were dropped: their rows make room, and their lanes are given to others. */
  #dropped(): void {
    this.#hasNews = true
    this.#abandonBelow = this.#cohort.released
    this.#groups.forgetBeginnings()
    if (!this.#isRead) this.#forgetRows()
  }

  async prove(): Promise<void> {
    const { engine } = this.#cohort
    if (engine.prove === undefined || (await engine.prove())) return
    this.#admission.dropAll('unproved')
    this.#dropped()
  }

  /** Frees the lanes of conversations whose groups were dropped. */
  #abandon(): void {
    const { conversation, numLanes, groupSize } = this.#cohort
    const { phase, group, member, begun } = conversation
    if (this.#abandonBelow === 0) return
    for (let n = 0; n < numLanes; n++) {
      if (
        phase[n] === ConversationPhase.free ||
        phase[n] === ConversationPhase.absent ||
        this.#admission.has(group[n]!)
      )
        continue
      abandonConversation(this.#cohort, n)
      this.#tickets.delete(group[n]! * groupSize + member[n]!)
    }
    if (begun[0]! >= this.#abandonBelow) this.#abandonBelow = 0
  }

  /** Counts the time in which lanes have had nothing to go on with. */
  #countIdle(): void {
    const { conversation, numLanes, released } = this.#cohort
    const now = performance.now()
    this.#idle.seconds += (this.#idle.part * (now - this.#idle.since)) / 1000
    this.#idle.since = now
    let [free, full] = [0, 0]
    for (const phase of conversation.phase) {
      if (phase === ConversationPhase.free) free++
      if (phase === ConversationPhase.ended) full++
    }
    const begin = released - conversation.begun[0]!
    this.#idle.part = (Math.max(0, free - begin) + full) / numLanes
  }

  /** Takes the next batch, if it is there. */
  #take(): boolean {
    const { numDropped } = this.#admission
    const isThere = this.#groups.take(this.#idle.seconds)
    if (this.#admission.numDropped > numDropped) this.#dropped()
    if (isThere) this.#idle.seconds = 0
    return isThere
  }

  async beside<T>(work: () => Promise<T>): Promise<T> {
    if (this.#cohort.engine.arrival === null) {
      this.#idle.part = 1
      return await work()
    }
    this.#isRead = true
    this.#hasNews = true
    const over = new AbortController()
    const isStill = () => owedAnswers(this.#cohort).length === 0 && !canGoOn(this.#cohort)
    let failure: { readonly cause: unknown } | null = null
    const ticking = this.#tickUntil(over.signal, isStill).catch((cause) => {
      failure = { cause }
    })
    let made: T
    try {
      made = await work()
    } finally {
      over.abort()
      await ticking
      this.#isRead = false
    }
    if (failure !== null) throw (failure as { readonly cause: unknown }).cause
    return made
  }

  #forgetRows(): void {
    this.#groups.forgetRows()
    this.#taken = this.#cohort.trajectories.count
  }

  rows(): number[] {
    return this.#groups.rows()
  }

  learned(): void {
    const stale = this.#admission.advance()
    this.#groups.forgetBeginnings()
    if (stale.length > 0) this.#abandonBelow = this.#cohort.released
    this.#abandon()
    this.#countIdle()
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
      ...this.#groups.saved(),
    }
  }

  restore(saved: SavedCollector): void {
    const { ticks, isBetweenUpdates, released, admission } = saved
    this.#ticks = ticks
    this.#isBetweenUpdates = isBetweenUpdates
    this.#cohort.released = released
    this.#groups.restore(saved)
    this.#abandonBelow = released
    this.#tickets.clear()
    // Conversations under way go on in their lanes, or are yet to begin: their tickets are theirs again.
    for (const { group, member } of admission.underWay) {
      if (!this.#admission.has(group)) continue
      this.#tickets.set(group * this.#cohort.groupSize + member, this.#admission.begin()!)
    }
    this.#taken = this.#cohort.trajectories.count
  }
}

/** What a training ends with where an engine could not generate a conversation, and failures are thrown. */
function failureOf({ group, member }: Ticket, error: string): InputError {
  return new InputError(
    `group ${group}, member ${member}`,
    error,
    'turns that are generated, or rl.failure keep or drop',
  )
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
