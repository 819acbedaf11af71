/**
 * Collects conversations that others hold, in groups, with the same admission as an environment's lanes: agents that ask through a gateway
 * over the cohort's engine, or the actors of a fleet. When a member of a group ends, the model's input and output go to
 * the cohort's log, from which the same trainer learns.
 */
import type { GradientPool } from '../../../algorithms/shared-gradient.ts'
import type { RlDefinition } from '../../../algorithms/tokens/rl.ts'
import { Work } from '../../../base/clock.ts'
import { InputError } from '../../../base/errors.ts'
import type { Admission, FailurePolicy, Ticket } from '../../../fleet/admission.ts'
import type { Trajectory } from '../../../tables/trajectories/trajectory.ts'
import type { ConversationCohort } from '../../../world/conversations/cohort.ts'
import type { World } from '../../../world/world.ts'
import type { Collector, CollectorProgress, SavedCollector } from '../../loop/collector.ts'
import { LoggedGroups } from './logged-groups.ts'

/** A member's conversation. */
export interface EndedMember {
  /** Empty without an answer of the model. */
  readonly rows: readonly Trajectory[]
  /** Why it does not count as sampled; null if it does. */
  readonly failure: string | null
}

/** Runs the members of groups. */
export interface MemberRunner {
  readonly maxMembers: number
  /** See `Collector`. */
  readonly pool?: GradientPool | undefined
  /** Called before members run. Rejects soon after the signal is aborted. */
  start?(signal: AbortSignal | undefined): Promise<void>
  /**
   * Runs a member to its end, or until the signal is aborted. `lag`: updates since its group began, which is above 0 only if a resumed
   * training runs it again. Rejects if nothing can be collected any more.
   */
  run(ticket: Ticket, signal: AbortSignal, lag: number): Promise<EndedMember>
  /** An update has been learned. `isDone`: whether a group was learned from or dropped. */
  learned?(updates: number, isDone: (group: number) => boolean): void
  /** A checkpoint after this number of updates is on disk. */
  kept?(updates: number): void
  /** Ends it with the trainer, or before another state is loaded. */
  close?(): Promise<void>
  /** The state for a resumed training: plain JSON. */
  saved?(): SavedCollector['runner']
  /** Takes up what was saved, after so many updates and ended members. */
  restore?(saved: SavedCollector['runner'], updates: number, numEnded: number): void
}

export class MemberCollector implements Collector {
  /** Members end in one piece, so between two of them there is always a state to resume from. */
  readonly isMidway = false
  readonly #world: World
  readonly #cohort: ConversationCohort
  readonly #runner: MemberRunner
  readonly #groups: LoggedGroups
  readonly #admission: Admission
  /** Running members, and what aborts each. */
  readonly #running = new Map<Ticket, AbortController>()
  /** Members that were aborted when the training stopped. */
  #interrupted: Ticket[] = []
  /** When the groups of a resumed training began, in updates. */
  #begun = new Map<number, number>()
  /** Groups from this number on have not begun. */
  #next = 0
  #numEnded = 0
  #isBetweenUpdates = true
  /** A learner reads the log: rows wait until it has finished. */
  #isRead = false
  readonly #aside: { readonly ticket: Ticket; readonly ended: EndedMember }[] = []
  #failure: { readonly cause: unknown } | null = null
  /** Wakes the waiter when a member has ended. */
  #tell = () => {}

  constructor(world: World, cohort: ConversationCohort, rl: RlDefinition, runner: MemberRunner) {
    const { groupSize, failure } = rl.settings
    this.#world = world
    this.#cohort = cohort
    this.#runner = runner
    const minMembers = failure === 'drop' ? groupSize : 1
    const policy: FailurePolicy = failure === 'throw' ? { kind: 'throw' } : { kind: 'shrink', minMembers }
    this.#groups = new LoggedGroups(cohort, rl, policy)
    this.#admission = this.#groups.admission
    cohort.released = 0
  }

  get pool(): GradientPool | undefined {
    return this.#runner.pool
  }

  get progress(): CollectorProgress {
    return { ticks: this.#numEnded, ...this.#groups.told }
  }

  get isBetweenUpdates(): boolean {
    return this.#isBetweenUpdates
  }

  async collect(signal: AbortSignal | undefined): Promise<boolean> {
    if (this.#isBetweenUpdates) {
      this.#isBetweenUpdates = false
      this.#groups.forgetRows()
    }
    try {
      await this.#runner.start?.(signal)
    } catch (error) {
      if (!signal?.aborted) throw error
      return false
    }
    for (;;) {
      if (this.#admission.isReady) await this.prove()
      this.#throwFailure()
      const isReady = this.#take()
      this.#begin() // After groups were dropped, others begin in their place.
      if (isReady || signal?.aborted) {
        if (!isReady) this.close()
        this.#world.clock.charge(Work.waiting)
        return isReady
      }
      await this.#news(signal)
    }
  }

  /** Starts as many members as the admission and the runner allow. */
  #begin(): void {
    while (this.#running.size < this.#runner.maxMembers) {
      const ticket = this.#interrupted.shift() ?? this.#groups.begin()
      if (ticket === null) return
      const { group } = ticket
      const { version } = this.#admission
      const stop = new AbortController()
      this.#running.set(ticket, stop)
      if (!this.#begun.has(group)) this.#begun.set(group, version)
      this.#next = Math.max(this.#next, group + 1)
      void this.#runner.run(ticket, stop.signal, version - this.#begun.get(group)!).then(
        (ended) => this.#ended(ticket, stop, ended),
        (cause) => this.#fail(cause),
      )
    }
  }

  #fail(cause: unknown): void {
    this.#failure ??= { cause }
    this.#tell()
  }

  #ended(ticket: Ticket, stop: AbortController, ended: EndedMember): void {
    if (this.#running.get(ticket) !== stop) return // From before another state was loaded.
    this.#running.delete(ticket)
    if (stop.signal.aborted) {
      if (this.#admission.has(ticket.group)) this.#interrupted.push(ticket)
      else this.#admission.fail(ticket, null) // Of a dropped group.
    } else if (this.#isRead) this.#aside.push({ ticket, ended })
    else this.#takeIn(ticket, ended)
    this.#tell()
  }

  /** Appends a member's rows to the log and informs the admission. */
  #takeIn(ticket: Ticket, { rows, failure }: EndedMember): void {
    const { trajectories } = this.#cohort
    const subject = `group ${ticket.group}, member ${ticket.member}`
    this.#numEnded++
    try {
      if (rows.length > 0 && this.#admission.has(ticket.group) && !trajectories.appendConversation(rows)) {
        const got = `conversations whose rows do not fit the log, which holds ${trajectories.numTokens} tokens`
        throw new InputError(subject, got, 'fewer rows of a conversation, or a longer context')
      }
      const isWhole =
        failure === null
          ? this.#admission.finish(ticket)
          : this.#admission.fail(ticket, new InputError(subject, failure, EXPECTED))
      if (isWhole) this.#groups.judge(ticket.group)
      if (!this.#admission.has(ticket.group)) this.#dropped()
    } catch (cause) {
      this.#failure ??= { cause }
    }
  }

  /** After groups were dropped: frees their rows and aborts their members. */
  #dropped(): void {
    this.#groups.forgetBeginnings()
    for (const [ticket, stop] of this.#running) if (!this.#admission.has(ticket.group)) stop.abort()
    if (!this.#isRead) this.#groups.forgetRows()
  }

  async prove(): Promise<void> {
    const { engine } = this.#cohort
    if (engine.prove === undefined || (await engine.prove())) return
    this.#admission.dropAll('unproved')
    this.#dropped()
  }

  /** Takes the next batch if it is complete. */
  #take(): boolean {
    const { numDropped } = this.#admission
    const isThere = this.#groups.take(0)
    if (this.#admission.numDropped > numDropped) this.#dropped()
    return isThere
  }

  /** Settles when a member has ended or the signal is aborted. */
  #news(signal: AbortSignal | undefined): Promise<void> {
    return new Promise((resolve) => {
      const tell = () => {
        signal?.removeEventListener('abort', tell)
        resolve()
      }
      signal?.addEventListener('abort', tell)
      this.#tell = tell
    })
  }

  #throwFailure(): void {
    if (this.#failure === null) return
    const { cause } = this.#failure
    this.#failure = null
    this.close()
    throw cause
  }

  async beside<T>(work: () => Promise<T>): Promise<T> {
    this.#isRead = true
    try {
      return await work()
    } finally {
      this.#isRead = false
      for (const { ticket, ended } of this.#aside.splice(0)) this.#takeIn(ticket, ended)
    }
  }

  rows(): number[] {
    return this.#groups.rows()
  }

  learned(): void {
    const stale = this.#admission.advance()
    if (stale.length > 0) this.#dropped()
    const isDone = (group: number) => group < this.#next && !this.#admission.has(group)
    for (const group of this.#begun.keys()) if (isDone(group)) this.#begun.delete(group)
    this.#runner.learned?.(this.#admission.version, isDone)
    this.#isBetweenUpdates = true
  }

  kept(updates: number): void {
    this.#runner.kept?.(updates)
  }

  async end(): Promise<void> {
    this.close()
    await this.#runner.close?.()
  }

  /** Aborts the running members. A resumed training starts them again. */
  close(): void {
    for (const stop of this.#running.values()) stop.abort()
  }

  saved(): SavedCollector {
    return {
      ticks: this.#numEnded,
      isBetweenUpdates: this.#isBetweenUpdates,
      released: 0,
      ...this.#groups.saved(),
      ...(this.#runner.saved === undefined ? {} : { runner: this.#runner.saved() }),
    }
  }

  restore(saved: SavedCollector): void {
    const { ticks, isBetweenUpdates, admission } = saved
    this.close()
    this.#running.clear()
    this.#interrupted = []
    this.#numEnded = ticks
    this.#isBetweenUpdates = isBetweenUpdates
    this.#groups.restore(saved)
    this.#begun = new Map(admission.groups.map(({ number, versionStart }) => [number, versionStart]))
    this.#next = admission.next
    this.#runner.restore?.(saved.runner, admission.version, ticks)
  }
}

const EXPECTED = 'conversations that succeed, or rl.failure keep or drop'
