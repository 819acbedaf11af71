/**
 * Collects conversations of agents, in groups of one task, with the same admission as an environment's lanes. Agents
 * run in or beside this process and ask through a gateway over the cohort's engine. When they end, what the model saw
 * and said goes to the cohort's log, from which the same trainer learns.
 */
import type { RlDefinition } from '../../algorithms/tokens/rl.ts'
import { Work } from '../../base/clock.ts'
import { InputError } from '../../base/errors.ts'
import type { Admission, FailurePolicy, Ticket } from '../../fleet/admission.ts'
import type { Collector, CollectorProgress, SavedCollector } from '../../training/loop/collector.ts'
import { LoggedGroups } from '../../training/text/collect/logged-groups.ts'
import type { ConversationCohort } from '../../world/conversations/cohort.ts'
import type { World } from '../../world/world.ts'
import { type AgentRunner, placeOf } from './agent-runner.ts'
import type { EndedSession } from './sessions.ts'

export class AgentCollector implements Collector {
  /** Agents end in one piece, so between two of them there is always a state to resume from. */
  readonly isMidway = false
  readonly #world: World
  readonly #cohort: ConversationCohort
  readonly #runner: AgentRunner
  readonly #groups: LoggedGroups
  readonly #admission: Admission
  /** Running agents, and what aborts each. */
  readonly #running = new Map<Ticket, AbortController>()
  /** Members whose agents were aborted when the training stopped. */
  #interrupted: Ticket[] = []
  #numEnded = 0
  #isBetweenUpdates = true
  /** A learner reads the log: rows wait until it has finished. */
  #isRead = false
  readonly #aside: { readonly ticket: Ticket; readonly ended: EndedSession }[] = []
  #failure: { readonly cause: unknown } | null = null
  /** Wakes the waiter when an agent has ended. */
  #tell = () => {}

  constructor(world: World, cohort: ConversationCohort, rl: RlDefinition, runner: AgentRunner) {
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
    for (;;) {
      this.#throwFailure()
      this.#begin()
      if (this.#admission.isReady) await this.prove()
      const isReady = this.#take()
      if (isReady || signal?.aborted) {
        if (!isReady) this.close()
        this.#world.clock.charge(Work.waiting)
        return isReady
      }
      await this.#news(signal)
    }
  }

  /** Starts as many agents as the admission and the runner allow. */
  #begin(): void {
    while (this.#running.size < this.#runner.maxAgents) {
      const ticket = this.#interrupted.shift() ?? this.#groups.begin()
      if (ticket === null) return
      const stop = new AbortController()
      this.#running.set(ticket, stop)
      const place = placeOf(ticket.group, ticket.member, this.#runner.tasks.length)
      void this.#runner.run(place, stop.signal).then((ended) => this.#ended(ticket, stop, ended))
    }
  }

  #ended(ticket: Ticket, stop: AbortController, ended: EndedSession): void {
    if (this.#running.get(ticket) !== stop) return // From before another state was loaded.
    this.#running.delete(ticket)
    if (stop.signal.aborted) {
      if (this.#admission.has(ticket.group)) this.#interrupted.push(ticket)
      else this.#admission.fail(ticket, null) // Of a dropped group.
    } else if (this.#isRead) this.#aside.push({ ticket, ended })
    else this.#takeIn(ticket, ended)
    this.#tell()
  }

  /** Appends an agent's rows to the log and informs the admission. */
  #takeIn(ticket: Ticket, ended: EndedSession): void {
    const { trajectories } = this.#cohort
    this.#numEnded++
    try {
      const isSilent = ended.rows.length === 0
      const why = ended.worth.error ?? 'the agent did not ask the model'
      if (!isSilent && this.#admission.has(ticket.group) && !trajectories.appendConversation(ended.rows)) {
        const got = `agents whose rows do not fit the log, which holds ${trajectories.numTokens} tokens`
        const expected = 'fewer rows of an agent, or a longer context'
        throw new InputError(`group ${ticket.group}, member ${ticket.member}`, got, expected)
      }
      const isWhole = isSilent
        ? this.#admission.fail(ticket, new InputError(`group ${ticket.group}, member ${ticket.member}`, why, EXPECTED))
        : this.#admission.finish(ticket)
      if (isWhole) this.#groups.judge(ticket.group)
      if (!this.#admission.has(ticket.group)) this.#dropped()
    } catch (cause) {
      this.#failure ??= { cause }
    }
  }

  /** After groups were dropped: frees their rows and aborts their agents. */
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

  /** Settles when an agent has ended or the signal is aborted. */
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
    this.#isBetweenUpdates = true
  }

  /** Aborts the running agents. A resumed training starts them again. */
  close(): void {
    for (const stop of this.#running.values()) stop.abort()
  }

  saved(): SavedCollector {
    return {
      ticks: this.#numEnded,
      isBetweenUpdates: this.#isBetweenUpdates,
      released: 0,
      ...this.#groups.saved(),
    }
  }

  restore(saved: SavedCollector): void {
    const { ticks, isBetweenUpdates } = saved
    this.close()
    this.#running.clear()
    this.#interrupted = []
    this.#numEnded = ticks
    this.#isBetweenUpdates = isBetweenUpdates
    this.#groups.restore(saved)
  }
}

const EXPECTED = 'an agent that asks the model, or rl.failure keep or drop'
