/**
 * Collects groups with an admission: it starts as many conversations as permitted, ticks until an update's groups are
 * complete and admitted, and replaces dropped ones. With `maxStaleness` 0 no conversation runs while the weights
 * change, so nothing is stale, unless somebody else changed the engine's weights; such groups are dropped and counted.
 * With more, conversations of later updates keep running.
 *
 * Every wait ends: replies and turns have time limits, and a late lane is reported.
 *
 * Conversations are numbered by start, like the admission's tickets: member m of group g is conversation g · groupSize
 * + m.
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
  /** Only these lanes move while it collects. */
  readonly #moved: readonly ConversationCohort[]
  /** Permitted and running conversations, by number. */
  readonly #tickets = new Map<number, Ticket>()
  readonly #turns: TurnLimit
  #ticks = 0
  isMidway = false
  isBetweenUpdates = true
  /** Number of processed rows of the log. */
  #taken = 0
  /** Whether something changed that may permit starts or complete a batch. */
  #hasNews = true
  /** A learner reads the log: its rows must not move. */
  #isRead = false
  /** Drop running conversations of dropped groups, and those that begin below this number. */
  #abandonBelow = 0
  /** Idle lane-seconds since the last batch; the idle fraction since a time in ms. */
  #idle = { seconds: 0, part: 0, since: 0 }

  constructor(world: World, cohort: ConversationCohort, rl: RlDefinition) {
    const { groupSize, failure } = rl.settings
    this.#world = world
    this.#cohort = cohort
    this.#rl = rl
    // Kept failures are not reported to the admission.
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

  async collect(signal: AbortSignal | undefined): Promise<boolean> {
    if (this.isBetweenUpdates) {
      this.isBetweenUpdates = false
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

  /** Ticks until the condition holds; false if the signal stops it before. */
  async #tickUntil(signal: AbortSignal | undefined, isThere: (hasNews: boolean) => boolean): Promise<boolean> {
    const { clock } = this.#world
    let rested = clock.lastRead
    let isTimed = true // Time-dependent conditions are checked where the clock is read.
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
      this.isMidway = true
      if (this.#isRead) clock.endTicks() // A learner's time is between these ticks.
      isTimed = clock.beginTick()
      clock.wake()
      const moved = runSystems(this.#world, this.#moved)
      if (moved !== undefined) await moved
      clock.rest() // Pending replies have their own time limit.
      this.#takeIn()
      this.#abandon()
      if (isTimed) this.#turns.look()
      this.isMidway = false
      this.#ticks++
      if (!this.#isRead) checkLogRoom(this.#cohort)
      const waiting = awaitAnswers(this.#moved)
      if (waiting !== undefined) {
        clock.endTicks()
        await this.#turns.orLate(signal === undefined ? waiting : orAborted(waiting, signal))
      }
      if (!isTimed || clock.lastRead - rested < 50) continue
      await nextTurn() // Lets interrupts and timers through.
      rested = clock.lastRead
    }
  }

  /** Starts as many conversations as the admission permits. */
  #release(): void {
    for (let ticket = this.#groups.begin(); ticket !== null; ticket = this.#groups.begin()) {
      this.#tickets.set(this.#cohort.released++, ticket)
    }
  }

  /** Reports newly finished conversations to the admission, and judges complete groups. */
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
      if (this.#taken + 1 < count && segment[this.#taken + 1] !== 0) continue // Its last row has its end.
      const { group, member, stopReason, error } = trajectories.row(this.#taken)
      const number = group * groupSize + member
      const ticket = this.#tickets.get(number)
      if (ticket === undefined) continue // Of a group dropped before a checkpoint.
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

  /** After groups were dropped: frees their rows and lanes. */
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

  /** Frees the lanes of dropped groups' conversations. */
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

  /** Counts the time in which lanes had nothing to do. */
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
    this.isBetweenUpdates = true
  }

  close(): void {
    cancelReplies(this.#cohort)
  }

  saved(): SavedCollector {
    return {
      ticks: this.#ticks,
      isBetweenUpdates: this.isBetweenUpdates,
      released: this.#cohort.released,
      ...this.#groups.saved(),
    }
  }

  restore(saved: SavedCollector): void {
    const { ticks, isBetweenUpdates, released, admission } = saved
    this.#ticks = ticks
    this.isBetweenUpdates = isBetweenUpdates
    this.#cohort.released = released
    this.#groups.restore(saved)
    this.#abandonBelow = released
    this.#tickets.clear()
    // Running and permitted conversations get their tickets back.
    for (const { group, member } of admission.underWay) {
      if (!this.#admission.has(group)) continue
      this.#tickets.set(group * this.#cohort.groupSize + member, this.#admission.begin()!)
    }
    this.#taken = this.#cohort.trajectories.count
  }
}

/** The training's error for a conversation that the engine could not generate, if failures are thrown. */
function failureOf({ group, member }: Ticket, error: string): InputError {
  return new InputError(
    `group ${group}, member ${member}`,
    error,
    'turns that are generated, or rl.failure keep or drop',
  )
}

async function orAborted(waiting: Promise<void>, signal: AbortSignal): Promise<void> {
  if (signal.aborted) return
  let stop = () => {}
  const aborted = new Promise<void>((resolve) => {
    stop = resolve
  })
  signal.addEventListener('abort', stop)
  try {
    await Promise.race([waiting, aborted])
  } finally {
    signal.removeEventListener('abort', stop)
  }
}
