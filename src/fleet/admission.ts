/**
 * Admission of groups: which groups may begin, which are learned from, and in which order. It has no tasks, clocks or clients: its driver
 * reports events and asks what may happen next, so that synchronous and asynchronous training differ only in settings and every decision
 * can be tested.
 *
 * A group is begun, judged, and delivered or dropped as a whole, once. Groups are numbered as they begin. By default a batch has the
 * lowest admitted numbers and waits until all earlier ones are settled, so that deliveries depend only on the data, not on timing.
 *
 * Pacing, not dropping, limits staleness (AReaL, arXiv 2505.24298): the number of groups that wait or are in progress never exceeds the
 * batches of the next η updates. So a group delivered by number began at most η updates earlier. With over-sampling or delivery by
 * arrival some groups can become too old; they are dropped after an update and counted.
 */
import { checkCount, checkGiven, InputError, show, unknownWord } from '../base/errors.ts'

/** Orders of delivery: by number, or by arrival. */
export const deliveryOrders = ['number', 'arrival'] as const
/** An order of delivery. */
export type DeliveryOrder = (typeof deliveryOrders)[number]

/** What happens to a group with a failed member. */
export type FailurePolicy =
  /** The failure is thrown. */
  | { readonly kind: 'throw' }
  /** The member is sampled again, at most `retries` times; then the group is dropped. */
  | { readonly kind: 'retry'; readonly retries: number }
  /** The group continues without it while it has at least `minMembers`; otherwise it is dropped. */
  | { readonly kind: 'shrink'; readonly minMembers: number }

/** Settings of an admission. */
export interface AdmissionSettings {
  /** Groups per update, a whole number ≥ 1. */
  readonly groupsPerBatch: number
  /** Members per group, a whole number ≥ 1. */
  readonly groupSize: number
  /**
   * η: maximum of updates between a group's start and the update that learns from it, a whole number ≥ 0, or Infinity with `ahead`.
   * Default 0, synchronous.
   */
  readonly maxStaleness?: number
  /** Number of further batches whose groups may begin before the current update: from 0 to η, the default. */
  readonly ahead?: number
  /** Maximum groups in progress. Default: as many as staleness permits. */
  readonly maxConcurrent?: number
  /** Groups begun per needed group, a number ≥ 1; default 1. More make up for dropped ones. */
  readonly overSampling?: number
  /** Maximum dropped groups per batch, without those that became too old. Default: no limit. */
  readonly dropsMax?: number
  /** Total number of updates: no group begins for a later one. Default: no end. */
  readonly updates?: number
  readonly order?: DeliveryOrder
  readonly failure?: FailurePolicy
}

/** A group member to sample. */
export interface Ticket {
  readonly group: number
  readonly member: number
  /** Number of earlier failed attempts. */
  readonly attempt: number
}

/** The contents of a batch. */
export interface Delivery {
  /** Numbers of the groups to learn from, ascending. */
  readonly groups: readonly number[]
  /** Updates between each group's start and now. */
  readonly staleness: readonly number[]
  /** Groups dropped since the previous batch, by reason. */
  readonly drops: Readonly<Record<string, number>>
}

/** So many groups were dropped that training would never continue. */
export class RolloutStarvedError extends InputError {
  /** Groups dropped since the last batch, by reason. */
  readonly drops: Readonly<Record<string, number>>

  constructor(drops: Readonly<Record<string, number>>, dropsMax: number) {
    const total = Object.values(drops).reduce((sum, count) => sum + count, 0)
    const words = Object.entries(drops).map(([reason, count]) => `${count} ${reason}`)
    const expected = `at most ${dropsMax}: use another filter, or a task that is neither too easy nor too hard`
    super('dropsMax', `${total} groups dropped for one update (${words.join(', ')})`, expected)
    this.drops = drops
  }
}

interface Group {
  readonly number: number
  /** Version of the weights at its start. */
  readonly versionStart: number
  /** Number of members not begun yet. */
  unbegun: number
  /** Number of members neither done nor failed. */
  open: number
  done: number
  state: 'sampling' | 'whole' | 'admitted'
  /** Its rank among the admitted groups, by arrival. */
  arrival: number
}

/** Its state in a checkpoint: plain JSON. */
export interface SavedAdmission {
  readonly version: number
  readonly next: number
  readonly taken: number
  readonly arrivals: number
  readonly drops: Readonly<Record<string, number>>
  readonly dropsSince: Readonly<Record<string, number>>
  readonly outdatedSince: number
  readonly groups: readonly Readonly<Group>[]
  readonly again: readonly Ticket[]
  readonly underWay: readonly Ticket[]
}

/**
 * The groups between sampling and learning.
 * @example
 * const admission = new Admission({ groupsPerBatch: 8, groupSize: 4, maxStaleness: 1 })
 * const ticket = admission.begin() // A member to sample; null if none may begin.
 * if (admission.finish(ticket)) admission.judge(ticket.group, { keep: true })
 * const delivery = admission.take() // Null until a batch is complete; learn from it, then:
 * admission.advance()
 */
export class Admission {
  readonly settings: Required<AdmissionSettings>
  /** Version of the weights: the number of updates so far. */
  version = 0
  /** Dropped groups, by reason. */
  readonly drops: Record<string, number> = {}
  /** Since the last batch. */
  #dropsSince: Record<string, number> = {}
  /** How many of them do not count against `dropsMax`: an update made them too old, or all were dropped. */
  #outdatedSince = 0
  numDropped = 0
  #next = 0
  #taken = 0
  #arrivals = 0
  /** Groups neither delivered nor dropped, by number, ascending. */
  readonly #groups = new Map<number, Group>()
  #again: Ticket[] = []
  /** Members in progress. */
  readonly #underWay = new Map<string, Ticket>()

  /** @throws InputError with the wrong setting. */
  constructor(settings: AdmissionSettings) {
    checkGiven('settings of Admission', settings, ['groupsPerBatch', 'groupSize'])
    this.settings = checkedSettings(settings)
  }

  /** Number of groups in progress: begun, and not yet admitted or dropped. */
  get sampling(): number {
    let count = 0
    for (const { state } of this.#groups.values()) if (state !== 'admitted') count++
    return count
  }

  /** Number of groups that wait to be learned from. */
  get waiting(): number {
    return this.#groups.size - this.sampling
  }

  /** Whether the group is neither delivered nor dropped. */
  has(group: number): boolean {
    return this.#groups.has(group)
  }

  /** Complete groups that are not judged yet, ascending. */
  get unjudged(): readonly number[] {
    return [...this.#groups.values()].filter(({ state }) => state === 'whole').map(({ number }) => number)
  }

  /** How many more groups may begin now. */
  get capacity(): number {
    const { groupsPerBatch, ahead, maxConcurrent, overSampling, updates } = this.settings
    const { sampling } = this
    const batches = Math.min(ahead + this.version + 1, updates)
    const wanted = batches * groupsPerBatch - this.#taken - this.waiting
    return Math.max(0, Math.min(maxConcurrent, Math.ceil(overSampling * wanted)) - sampling)
  }

  /** The next member to sample: a failed one, otherwise of the newest group, otherwise of a new one. Null if none may begin. */
  begin(): Ticket | null {
    const ticket = this.#again.shift() ?? this.#nextMember()
    if (ticket !== null) this.#underWay.set(keyOf(ticket), ticket)
    return ticket
  }

  #nextMember(): Ticket | null {
    const { groupSize } = this.settings
    let group = this.#groups.get(this.#next - 1)
    if (group === undefined || group.unbegun === 0) {
      if (this.capacity === 0) return null
      const counts = { unbegun: groupSize, open: groupSize, done: 0 }
      group = { number: this.#next++, versionStart: this.version, ...counts, state: 'sampling', arrival: -1 }
      this.#groups.set(group.number, group)
    }
    return { group: group.number, member: groupSize - group.unbegun--, attempt: 0 }
  }

  /**
   * Reports that a member is done. Returns true if its group is complete and must be judged; false if other members are pending or the
   * group has been dropped.
   * @throws InputError if that member is not in progress.
   */
  finish(ticket: Ticket): boolean {
    return this.#settle(ticket, true)
  }

  /**
   * Reports that a member failed. Returns true if its group is complete without it and must be judged.
   * @throws InputError if that member is not in progress; the cause, with failure policy `throw`.
   */
  fail(ticket: Ticket, cause: unknown): boolean {
    const { failure } = this.settings
    if (!this.#groups.has(ticket.group)) return this.#settle(ticket, false) // The group was dropped.
    if (failure.kind === 'throw') throw cause
    if (failure.kind === 'retry' && ticket.attempt < failure.retries) {
      this.#takeBack(ticket)
      this.#again.push({ ...ticket, attempt: ticket.attempt + 1 })
      return false
    }
    return this.#settle(ticket, false)
  }

  #settle(ticket: Ticket, isDone: boolean): boolean {
    this.#takeBack(ticket)
    const group = this.#groups.get(ticket.group)
    if (group === undefined) return false
    group.open--
    if (isDone) group.done++
    const { failure, groupSize } = this.settings
    const needed = failure.kind === 'shrink' ? failure.minMembers : groupSize
    if (group.done + group.open < needed) this.#drop(group, 'failed')
    else if (group.open === 0) group.state = 'whole'
    return group.state === 'whole'
  }

  #takeBack(ticket: Ticket): void {
    if (this.#underWay.delete(keyOf(ticket))) return
    const { group, member, attempt } = ticket
    const got = `member ${member} of group ${group}, attempt ${attempt}, which is not in progress`
    throw new InputError('ticket', got, 'a ticket of begin(), used once')
  }

  /**
   * Reports the judgment of a complete group: it waits to be learned from, or is dropped for a reason.
   * @throws InputError if the group is not waiting for judgment; RolloutStarvedError if too many were dropped.
   */
  judge(number: number, decision: { readonly keep: boolean; readonly reason?: string }): void {
    const group = this.#groups.get(number)
    if (group?.state !== 'whole') throw new InputError('group', `${number}, which is not complete`, 'a complete group')
    if (decision.keep) {
      group.state = 'admitted'
      group.arrival = this.#arrivals++
    } else this.#drop(group, decision.reason ?? 'filter')
  }

  #drop(group: Group, reason: string): void {
    this.#groups.delete(group.number)
    this.#again = this.#again.filter(({ group: number }) => number !== group.number)
    this.drops[reason] = (this.drops[reason] ?? 0) + 1
    this.numDropped++
    this.#dropsSince[reason] = (this.#dropsSince[reason] ?? 0) + 1
    const total = Object.values(this.#dropsSince).reduce((sum, count) => sum + count, 0)
    const { dropsMax } = this.settings
    if (total - this.#outdatedSince > dropsMax) throw new RolloutStarvedError({ ...this.#dropsSince }, dropsMax)
  }

  /**
   * Takes the groups of the next batch for learning. Returns null if they are not complete yet. A group for which `isFresh` returns false
   * is dropped as stale: older weights than at its start sampled it, or it was superseded.
   * @throws RolloutStarvedError if too many were dropped.
   */
  take(isFresh: (group: number) => boolean = () => true): Delivery | null {
    const { groupsPerBatch } = this.settings
    for (;;) {
      const batch = this.#ready().slice(0, groupsPerBatch)
      if (batch.length < groupsPerBatch) return null
      const stale = batch.filter(({ number }) => !isFresh(number))
      for (const group of stale) this.#drop(group, 'stale')
      if (stale.length === 0) return this.#deliver(batch.sort((a, b) => a.number - b.number))
    }
  }

  /** Whether the groups of a batch are complete, unless some of them are stale. */
  get isReady(): boolean {
    return this.#ready().length >= this.settings.groupsPerBatch
  }

  /** The admitted groups that may be delivered, in the order of delivery. */
  #ready(): Group[] {
    const { order } = this.settings
    const ready: Group[] = []
    for (const group of this.#groups.values()) {
      if (group.state === 'admitted') ready.push(group)
      else if (order === 'number') break
    }
    return order === 'arrival' ? ready.sort((a, b) => a.arrival - b.arrival) : ready
  }

  #deliver(batch: readonly Group[]): Delivery {
    for (const { number } of batch) this.#groups.delete(number)
    this.#taken += batch.length
    const drops = this.#dropsSince
    this.#dropsSince = {}
    this.#outdatedSince = 0
    return {
      groups: batch.map(({ number }) => number),
      staleness: batch.map(({ versionStart }) => this.version - versionStart),
      drops,
    }
  }

  /**
   * Reports an update with the taken batch. Returns the groups that are now too old and dropped, so that sampling of their members can
   * stop.
   */
  advance(): readonly number[] {
    this.version++
    const { maxStaleness } = this.settings
    const stale = [...this.#groups.values()].filter(({ versionStart }) => this.version - versionStart > maxStaleness)
    this.#outdatedSince += stale.length // They do not count against dropsMax.
    for (const group of stale) this.#drop(group, 'stale')
    return stale.map(({ number }) => number)
  }

  /** Drops all undelivered groups for a reason that does not count against `dropsMax`; new ones begin in their place. */
  dropAll(reason: string): void {
    this.#outdatedSince += this.#groups.size
    for (const group of [...this.#groups.values()]) this.#drop(group, reason)
  }

  /** The state for a checkpoint; members in progress will be sampled again after a restore. */
  saved(): SavedAdmission {
    return {
      version: this.version,
      next: this.#next,
      taken: this.#taken,
      arrivals: this.#arrivals,
      drops: { ...this.drops },
      dropsSince: { ...this.#dropsSince },
      outdatedSince: this.#outdatedSince,
      groups: [...this.#groups.values()].map((group) => ({ ...group })),
      again: [...this.#again],
      underWay: [...this.#underWay.values()],
    }
  }

  /** Restores a saved state. Members that were in progress begin again, before all others. */
  restore(saved: SavedAdmission): void {
    this.version = saved.version
    this.#next = saved.next
    this.#taken = saved.taken
    this.#arrivals = saved.arrivals
    for (const reason of Object.keys(this.drops)) delete this.drops[reason]
    Object.assign(this.drops, saved.drops)
    this.numDropped = Object.values(saved.drops).reduce((sum, count) => sum + count, 0)
    this.#dropsSince = { ...saved.dropsSince }
    this.#outdatedSince = saved.outdatedSince
    this.#groups.clear()
    for (const group of saved.groups) this.#groups.set(group.number, { ...group })
    this.#underWay.clear()
    this.#again = [...saved.underWay.filter(({ group }) => this.#groups.has(group)), ...saved.again]
  }
}

function keyOf({ group, member, attempt }: Ticket): string {
  return `${group} ${member} ${attempt}`
}

function checkedSettings(settings: AdmissionSettings): Required<AdmissionSettings> {
  const { groupsPerBatch, groupSize, maxStaleness = 0, overSampling = 1, order = 'number' } = settings
  const { maxConcurrent = Number.POSITIVE_INFINITY, dropsMax = Number.POSITIVE_INFINITY } = settings
  const { updates = Number.POSITIVE_INFINITY, ahead = maxStaleness, failure = { kind: 'throw' } } = settings
  checkCount('groupsPerBatch', groupsPerBatch)
  checkCount('groupSize', groupSize)
  if (ahead === maxStaleness || maxStaleness !== Number.POSITIVE_INFINITY) checkCount('maxStaleness', maxStaleness, 0)
  checkCount('ahead', ahead, 0)
  if (ahead > maxStaleness) throw new InputError('ahead', show(ahead), `at most maxStaleness, ${maxStaleness}`)
  if (maxConcurrent !== Number.POSITIVE_INFINITY) checkCount('maxConcurrent', maxConcurrent)
  if (dropsMax !== Number.POSITIVE_INFINITY) checkCount('dropsMax', dropsMax, 0)
  if (updates !== Number.POSITIVE_INFINITY) checkCount('updates', updates, 0)
  if (!(overSampling >= 1 && Number.isFinite(overSampling))) {
    throw new InputError('overSampling', show(overSampling), 'a number ≥ 1')
  }
  if (!deliveryOrders.includes(order)) throw unknownWord('order', order, deliveryOrders)
  switch (failure.kind) {
    case 'throw':
      break
    case 'retry':
      checkCount('failure.retries', failure.retries)
      break
    case 'shrink':
      checkCount('failure.minMembers', failure.minMembers)
      if (failure.minMembers > groupSize) {
        throw new InputError('failure.minMembers', show(failure.minMembers), `at most the group size, ${groupSize}`)
      }
      break
    default:
      throw unknownWord('failure.kind', (failure as { kind?: unknown }).kind, ['throw', 'retry', 'shrink'])
  }
  const others = { ahead, maxConcurrent, overSampling, dropsMax, updates, order, failure }
  return { groupsPerBatch, groupSize, maxStaleness, ...others }
}
