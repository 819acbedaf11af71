/**
 * Which groups may begin, which are learned from, and in which order: the bookkeeping between those who sample and those
 * who learn. It has no task, no clock and no client: whoever drives it tells what happened and asks what may happen next,
 * so synchronous and asynchronous trainings are settings of it, and each of its answers can be tested.
 *
 * A group is the unit: begun, judged, delivered or dropped whole, and each one once. Groups are numbered in the order in
 * which they begin. By default a batch has the lowest numbers that were admitted, and waits until all before them are
 * settled: what is delivered is then a function of the data, whoever is done first.
 *
 * Staleness is kept low by pace, not by throwing away (AReaL, arXiv 2505.24298): of groups that wait or are under way there
 * are never more than the batches of the next η updates have room for. So a group that is delivered by number began at most
 * η updates before. Where more groups begin than are wanted, or they are delivered by arrival, some can become too old:
 * those are dropped after an update, and counted.
 */
import { checkCount, checkGiven, InputError, show, unknownWord } from '../base/errors.ts'

/** In which order groups are delivered: by number, or by who is done first. */
export const deliveryOrders = ['number', 'arrival'] as const
/** One of them. */
export type DeliveryOrder = (typeof deliveryOrders)[number]

/** What becomes of a group one of whose members failed. */
export type FailurePolicy =
  /** The failure is thrown. */
  | { readonly kind: 'throw' }
  /** A member is sampled again, so many times at most; a group with one that still fails is dropped. */
  | { readonly kind: 'retry'; readonly retries: number }
  /** The group goes on without it, while it has so many members; else it is dropped. */
  | { readonly kind: 'shrink'; readonly minMembers: number }

/** What an admission goes by. */
export interface AdmissionSettings {
  /** Groups that an update learns from: a whole number ≥ 1. */
  readonly groupsPerBatch: number
  /** Members of a group: a whole number ≥ 1. */
  readonly groupSize: number
  /**
   * η: updates that may lie between a group's beginning and the update that learns from it: a whole number ≥ 0, or Infinity where
   * `ahead` is given. Default 0, synchronous.
   */
  readonly maxStaleness?: number
  /** Batches whose groups may begin before the update in front of them is made: from 0 to η, which is the default. */
  readonly ahead?: number
  /** Groups under way at once, at most. Default: as many as staleness permits. */
  readonly maxConcurrent?: number
  /** Groups begun for each that is wanted: a number ≥ 1, default 1. More make up for those that are dropped. */
  readonly overSampling?: number
  /** Groups dropped for one batch, at most; those that an update made too old do not count. Default: no limit. */
  readonly dropsMax?: number
  /** Updates that there are to be: no group begins for a later one. Default: no end. */
  readonly updates?: number
  /** Default `number`. */
  readonly order?: DeliveryOrder
  /** Default `throw`. */
  readonly failure?: FailurePolicy
}

/** A member of a group that is to be sampled. */
export interface Ticket {
  readonly group: number
  /** From 0 to groupSize − 1. */
  readonly member: number
  /** How often it was begun before, because it had failed. */
  readonly attempt: number
}

/** What a batch is made of. */
export interface Delivery {
  /** Numbers of the groups to learn from, ascending. */
  readonly groups: readonly number[]
  /** Updates between each group's beginning and now. */
  readonly staleness: readonly number[]
  /** Groups that were dropped since the batch before, by reason. */
  readonly drops: Readonly<Record<string, number>>
}

/** Too many groups in a row were dropped: training would never go on. */
export class RolloutStarvedError extends InputError {
  /** How many groups were dropped since the last batch, by reason. */
  readonly drops: Readonly<Record<string, number>>

  constructor(drops: Readonly<Record<string, number>>, dropsMax: number) {
    const total = Object.values(drops).reduce((sum, count) => sum + count, 0)
    const words = Object.entries(drops).map(([reason, count]) => `${count} ${reason}`)
    const expected = `at most ${dropsMax}: another filter, or a task that is neither too easy nor too hard`
    super('dropsMax', `${total} groups dropped for one update (${words.join(', ')})`, expected)
    this.drops = drops
  }
}

interface Group {
  readonly number: number
  /** The version of the weights with which it began. */
  readonly versionStart: number
  /** Members that were not begun yet. */
  unbegun: number
  /** Members that were neither done nor given up. */
  open: number
  /** Members that were done. */
  done: number
  state: 'sampling' | 'whole' | 'admitted'
  /** Its place among the admitted ones, in the order of arrival. */
  arrival: number
}

/** What a checkpoint has of it: plain JSON. */
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
 * The groups between those who sample and those who learn.
 * @example
 * const admission = new Admission({ groupsPerBatch: 8, groupSize: 4, maxStaleness: 1 })
 * const ticket = admission.begin() // A member to sample; null where none may begin.
 * if (admission.finish(ticket)) admission.judge(ticket.group, { keep: true })
 * const delivery = admission.take() // Null until a batch is there; learn from it, and then:
 * admission.advance()
 */
export class Admission {
  readonly settings: Required<AdmissionSettings>
  /** The version of the weights: how many updates were made. */
  version = 0
  /** Groups that were dropped, by reason. */
  readonly drops: Record<string, number> = {}
  /** Since the last batch. */
  #dropsSince: Record<string, number> = {}
  /** How many of them nobody is at fault for: an update has made them too old, or all were dropped. */
  #outdatedSince = 0
  /** How many groups were dropped, for any reason. */
  numDropped = 0
  #next = 0
  #taken = 0
  #arrivals = 0
  /** Groups that are neither delivered nor dropped, by number, ascending. */
  readonly #groups = new Map<number, Group>()
  /** Members to sample again. */
  #again: Ticket[] = []
  /** Members that are being sampled. */
  readonly #underWay = new Map<string, Ticket>()

  /** @throws InputError that says which setting is wrong. */
  constructor(settings: AdmissionSettings) {
    checkGiven('settings of Admission', settings, ['groupsPerBatch', 'groupSize'])
    this.settings = checkedSettings(settings)
  }

  /** Groups under way: begun, and not yet admitted or dropped. */
  get sampling(): number {
    let count = 0
    for (const { state } of this.#groups.values()) if (state !== 'admitted') count++
    return count
  }

  /** Groups that wait to be learned from. */
  get waiting(): number {
    return this.#groups.size - this.sampling
  }

  /** True until the group is delivered or dropped. */
  has(group: number): boolean {
    return this.#groups.has(group)
  }

  /** Groups that are whole and not judged yet, ascending. */
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

  /** The next member to sample: one that failed, else of the newest group, else of a new one. Null where none may begin. */
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
   * A member is done. Returns true where its group is whole and is to be judged; false where others are awaited, or where the
   * group was dropped in the meantime.
   * @throws InputError where that member is not under way: each is done once.
   */
  finish(ticket: Ticket): boolean {
    return this.#settle(ticket, true)
  }

  /**
   * A member failed. Returns true where its group is whole without it, and is to be judged.
   * @throws InputError where that member is not under way; the cause, where failures are thrown.
   */
  fail(ticket: Ticket, cause: unknown): boolean {
    const { failure } = this.settings
    if (!this.#groups.has(ticket.group)) return this.#settle(ticket, false) // It was dropped: nobody waits for its members.
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
    const got = `member ${member} of group ${group}, attempt ${attempt}, which is not under way`
    throw new InputError('ticket', got, 'one that begin() gave, once')
  }

  /**
   * A whole group was judged: it waits to be learned from, or is dropped for a reason.
   * @throws InputError where it is not to be judged; RolloutStarvedError where too many were dropped.
   */
  judge(number: number, decision: { readonly keep: boolean; readonly reason?: string }): void {
    const group = this.#groups.get(number)
    if (group?.state !== 'whole') throw new InputError('group', `${number}, which is not whole`, 'one to be judged')
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
   * The groups of the next batch, which are the learner's from now on. Null where they are not there yet. A group that `isFresh`
   * says no of is dropped as stale: it was sampled with older weights than it began with, or others have put them aside.
   * @throws RolloutStarvedError where too many were dropped.
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

  /** Whether the groups of a batch are there, unless some of them are stale. */
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
   * An update was made of the batch that was taken. Returns the groups that have become too old by it and are dropped: whoever
   * samples their members can be told to stop.
   */
  advance(): readonly number[] {
    this.version++
    const { maxStaleness } = this.settings
    const stale = [...this.#groups.values()].filter(({ versionStart }) => this.version - versionStart > maxStaleness)
    this.#outdatedSince += stale.length // Nobody is at fault: they do not count against those who judge.
    for (const group of stale) this.#drop(group, 'stale')
    return stale.map(({ number }) => number)
  }

  /**
   * Drops all groups that are neither delivered nor dropped, for a reason that is nobody's fault: others begin in their place.
   * Whoever samples their members can be told to stop.
   */
  dropAll(reason: string): void {
    this.#outdatedSince += this.#groups.size
    for (const group of [...this.#groups.values()]) this.#drop(group, reason)
  }

  /** What a checkpoint keeps; members under way are to be sampled again after it is taken up. */
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

  /** Takes up what was saved. Members that were under way then are begun again, the first of all. */
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
