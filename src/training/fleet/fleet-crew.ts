/**
 * A crew of other processes: a learner puts the parts of rollouts into a queue, actors collect them, and references to the results come
 * back in another queue. Rows and weights are in a store.
 *
 * A part is a function of its lanes' state, the weights and the code, so it may be collected more than once: it goes to another actor when
 * its own falls silent, and the first result counts. The learner takes a result only if its state and weights are the next ones. It
 * acknowledges a result, and removes its rows, when a checkpoint contains what was learned from it (`checkpoint`), or after its update
 * (`update`). A learner that was killed continues at its checkpoint: it finds the results since then in the queue, or actors collect them
 * again.
 */
import { randomUUID } from 'node:crypto'
import { hostname } from 'node:os'
import { setTimeout as sleep } from 'node:timers/promises'
import type { StoreAddress } from '../../fleet/address.ts'
import type { Bus, Item, Queue, Values } from '../../fleet/bus/bus.ts'
import { holdLease, type Lease } from '../../fleet/bus/lease.ts'
import { BlobError, type OwnStore } from '../../fleet/store/store.ts'
import type { Crew, CrewDefinition, CrewParts, CrewTimes } from '../threads/crew.ts'
import type { Acknowledgement } from './acknowledgement.ts'
import { describeRun } from './description.ts'
import { FleetPool, GRADIENTS } from './fleet-pool.ts'
import {
  messageOf,
  type PartResult,
  type PartTask,
  rowsFromBytes,
  shareOfMember,
  stateFromBytes,
  stateToBytes,
} from './parts.ts'

/** Seconds without news after which a learner, and an actor, counts as gone. */
export const LEASE_SECONDS = 10
/** Seconds for which the learner keeps a result that it has taken. When it starts, it takes all results again. */
const HELD_SECONDS = 86_400
/** Milliseconds between two reports of the learner. */
const REPORT_MS = 1000
/** Milliseconds without an actor's result before that is reported. */
const LONELY_MS = 15_000
/** Milliseconds before a store that refused a blob is tried again. */
const AGAIN_MS = 2000

/** A fleet's bus and store, opened for its learner. */
export interface OpenedFleet {
  readonly bus: Bus
  readonly store: OwnStore
  /** How actors reach the store. */
  readonly storeAddress: StoreAddress
  close(): Promise<void>
}

export interface FleetOptions {
  /** `signal`: aborted when the crew ends. */
  open(signal: AbortSignal): Promise<OpenedFleet>
  readonly acknowledge: Acknowledgement
  /** Seconds without news after which a part goes to another actor. */
  readonly seconds: number
  /** Shares of a gradient, which helpers compute with the learner: one of `shareCounts`; default 1, the learner alone. */
  readonly learners?: number
  /** Called once when the run is ordered to stop. */
  onStop?(): void
  tell(message: string): void
}

/** A result with its item of the queue. */
interface Held {
  readonly item: Item
  readonly result: PartResult
}

/** The state of a member. */
interface Member {
  /** Rollouts whose part is in the columns. */
  collected: number
  /** The hash of its lanes' state after these. */
  before: string
  task: (PartTask & { readonly since: number }) | null
  /** Results of later rollouts, by rollout. */
  readonly held: Map<number, Held[]>
  waited: number
}

interface Opened extends OpenedFleet {
  readonly lease: Lease
  readonly tasks: Queue
  readonly results: Queue
  readonly run: Values
}

/** A crew of the processes that join a fleet. */
export function fleetCrew(options: FleetOptions): CrewDefinition {
  return (parts) => new FleetCrew(parts, options)
}

class FleetCrew implements Crew {
  readonly isElsewhere = true
  readonly pool: FleetPool | undefined
  readonly #parts: CrewParts
  readonly #options: FleetOptions
  readonly #session = randomUUID().slice(0, 8)
  readonly #members: Member[] = []
  /** Hashes of the published weights, by version. */
  readonly #weights = new Map<number, string>()
  /** Taken results of rollouts that may be needed again, by rollout. */
  readonly #unsettled = new Map<number, Held[]>()
  /** Seconds of a rollout's parts, and when they were begun. */
  readonly #times = new Map<number, { began: Float64Array; took: Float64Array }>()
  /** What is to be done, one after the other. */
  #work: Promise<unknown> = Promise.resolve()
  #opened: Opened | null = null
  #failure: Error | null = null
  #stop = new AbortController()
  #receiving: Promise<void> = Promise.resolve()
  #waiting: (() => void)[] = []
  #permitted = 0
  #version = 0
  #tasks = 0
  #reported = Number.NEGATIVE_INFINITY
  #heard = performance.now()

  /** Ends the waits of `arrival`. */
  readonly #wake = () => {
    for (const tell of this.#waiting.splice(0)) tell()
  }

  constructor(parts: CrewParts, options: FleetOptions) {
    this.#parts = parts
    this.#options = options
    const { learners = 1, seconds, tell } = options
    this.pool = learners === 1 ? undefined : new FleetPool(learners, this.#session, seconds, tell)
  }

  get failure(): Error | null {
    return this.#failure
  }

  async start(update: number): Promise<{ end(): boolean }> {
    this.#failure = null
    this.#reported = Number.NEGATIVE_INFINITY // An earlier start has reported its end.
    this.#stop = new AbortController()
    const fleet = await this.#options.open(this.#stop.signal)
    try {
      this.#opened = await this.#open(fleet)
    } catch (error) {
      await fleet.close()
      throw error
    }
    const { results, run } = this.#opened
    try {
      await this.#begin(update, this.#opened)
    } catch (error) {
      await this.close()
      throw error
    }
    await this.#watchOrders(run)
    this.#receiving = this.#receive(results)
    return this.#ending()
  }

  /** Takes the learner's place, and makes the run's queues and values. */
  async #open(fleet: OpenedFleet): Promise<Opened> {
    const { bus } = fleet
    const values = await bus.values('leases', { seconds: LEASE_SECONDS, isOwner: true })
    const owner = `${hostname()}, process ${process.pid}`
    const onLost = (error: Error) => this.fail(error)
    const lease = await holdLease({ values, key: 'learner', owner, seconds: LEASE_SECONDS, onLost })
    try {
      await bus.values('actors', { seconds: LEASE_SECONDS, isOwner: true })
      if (this.pool !== undefined) {
        const values = await bus.values(GRADIENTS, { seconds: LEASE_SECONDS, isOwner: true })
        await this.pool.open(values, fleet.store)
      }
      const run = await bus.values('run', { isOwner: true })
      const tasks = await bus.queue('tasks', { seconds: this.#options.seconds, isOwner: true })
      const results = await bus.queue('results', { seconds: HELD_SECONDS, isOwner: true })
      return { ...fleet, lease, run, tasks, results }
    } catch (error) {
      await lease.end()
      throw error
    }
  }

  async #begin(update: number, { tasks, results, run, store, storeAddress }: Opened): Promise<void> {
    const { algorithm, cohort, world, numMembers } = this.#parts
    await tasks.empty()
    await results.reclaim()
    this.#permitted = update
    this.#members.length = 0
    this.#unsettled.clear()
    for (let member = 0; member < numMembers; member++) {
      const before = await store.put(await stateToBytes(cohort, update, this.#shareOf(member)))
      this.#members.push({ collected: update, before, task: null, held: new Map(), waited: 0 })
    }
    // Of these versions a restored learner has the weights, and parts ahead were to be collected with them.
    const { published } = cohort.ahead!
    this.#weights.clear()
    for (let version = Math.max(0, update - published.length + 1); version < update; version++) {
      this.#weights.set(version, await store.put(this.#weightsOf(version)))
    }
    await this.#takeLeft(results)
    await run.remove('order')
    const rest = { session: this.#session, numMembers, store: storeAddress, seconds: this.#options.seconds }
    const pooled = this.pool === undefined ? null : { algorithm, shareCount: this.pool.shareCount }
    await run.put('description', { ...(await describeRun(world, cohort, pooled, rest)) })
    await this.#report(update)
  }

  #shareOf(member: number) {
    return shareOfMember(this.#parts.cohort, member, this.#parts.numMembers)
  }

  #weightsOf(version: number): Uint8Array {
    const { published } = this.#parts.cohort.ahead!
    const { buffer, byteOffset, byteLength } = published[version % published.length]!
    return new Uint8Array(buffer, byteOffset, byteLength).slice()
  }

  /** Puts a blob when the store takes it. A full store delays the run and does not end it. */
  async #put(bytes: Uint8Array): Promise<string> {
    for (let isTold = false; ; isTold = true) {
      try {
        return await this.#opened!.store.put(bytes)
      } catch (error) {
        if (this.#stop.signal.aborted) throw error
        if (!isTold) this.#options.tell(`${(error as Error).message}: the training waits for it`)
        await sleep(AGAIN_MS)
      }
    }
  }

  /** Ends the crew without holding its trainer. */
  #ending(): { end(): boolean } {
    return {
      end: () => {
        const isOpen = this.#opened !== null
        void this.close()
        return isOpen
      },
    }
  }

  async #watchOrders(run: Values): Promise<void> {
    const stop = await run.watch((key, value) => {
      if (key === 'order' && value?.order === 'stop') this.#options.onStop?.()
    })
    this.#stop.signal.addEventListener('abort', stop)
  }

  /** Takes the results that an earlier learner has not acknowledged, and removes all blobs that nothing names. */
  async #takeLeft(results: Queue): Promise<void> {
    const { store } = this.#opened!
    for (let left = await results.size(); left > 0; left--) {
      const item = await results.take({ seconds: 5 })
      if (item === null) break
      this.#hold(item)
    }
    const live = this.#live()
    for (const hash of await store.list()) if (!live.has(hash)) await store.drop(hash)
  }

  #live(): Set<string> {
    const held = [...this.#unsettled.values(), ...this.#members.flatMap((member) => [...member.held.values()])].flat()
    return new Set([
      ...this.#weights.values(),
      ...(this.pool?.live() ?? []),
      // An actor that takes an unfinished task over begins with its first rollout.
      ...this.#members.flatMap(({ before, task, collected }) => {
        return task !== null && collected < task.until ? [before, task.before] : [before]
      }),
      ...held.flatMap(({ result }) => [result.rows, result.before, result.after]),
    ])
  }

  async #receive(results: Queue): Promise<void> {
    const { signal } = this.#stop
    try {
      while (!signal.aborted) {
        const item = await results.take({ seconds: 2, signal })
        if (item === null) this.#tellLonely()
        else this.#do(() => this.#accept(item))
      }
    } catch (error) {
      this.fail(error as Error)
    }
  }

  #tellLonely(): void {
    if (performance.now() - this.#heard < LONELY_MS || this.#members.every(({ task }) => task === null)) return
    this.#heard = Number.POSITIVE_INFINITY // Reported once, until a result arrives.
    this.#options.tell(`no actor has returned a result for ${LONELY_MS / 1000} s: start actors with colonnade actor`)
  }

  /** Does something after what was begun before. */
  #do(work: () => Promise<unknown>): void {
    this.#work = this.#work.then(work).catch((error: Error) => this.fail(error))
  }

  async #accept(item: Item): Promise<void> {
    this.#heard = performance.now()
    const held = this.#hold(item)
    if (held !== null) await this.#pump(held.result.member)
  }

  /** Keeps a result until its turn. A result of a rollout that was already taken is given back, or kept beside the first one. */
  #hold(item: Item): Held | null {
    const result = item.value as unknown as PartResult
    const member = this.#members[result.member]
    const held = { item, result }
    if (result.error !== null) {
      this.#discard(held)
      if (result.id === member?.task?.id) throw new Error(`actor ${result.actor}: ${result.error}`)
      return null
    }
    if (member === undefined || result.rollout < member.collected) {
      const open = this.#unsettled.get(result.rollout)
      if (open === undefined) this.#discard(held)
      else open.push(held)
      return null
    }
    member.held.set(result.rollout, [...(member.held.get(result.rollout) ?? []), held])
    return held
  }

  /** Acknowledges a result, and removes what nothing else names. */
  #discard({ item, result }: Held): void {
    this.#do(async () => {
      if (this.#opened === null) return // The next start takes it again.
      const { store } = this.#opened
      await item.acknowledge()
      const live = this.#live()
      for (const hash of [result.rows, result.before]) if (hash !== '' && !live.has(hash)) await store.drop(hash)
    })
  }

  permit(version: number, permitted: number): void {
    this.#version = version
    this.#permitted = permitted
    this.#do(async () => {
      this.#weights.set(version, await this.#put(this.#weightsOf(version)))
      const oldest = version - this.#parts.cohort.ahead!.published.length
      for (const [each, hash] of this.#weights) {
        if (each >= oldest) continue
        this.#weights.delete(each)
        if (!this.#live().has(hash)) await this.#opened!.store.drop(hash)
      }
      for (let member = 0; member < this.#members.length; member++) await this.#pump(member)
      await this.#report(version)
    })
  }

  /** The version of the weights that collect a rollout: the newest one that did not learn from the rollout before it. */
  #versionOf(rollout: number): number {
    const lag = Math.min(1, this.#parts.cohort.ahead!.buffers.length - 1)
    return Math.min(this.#version, Math.max(0, rollout - lag))
  }

  /** Takes the results of a member that have arrived, and requests its next part. */
  async #pump(number: number): Promise<void> {
    const member = this.#members[number]!
    while (member.collected < this.#permitted && this.#opened !== null) {
      const rollout = member.collected
      const { task } = member
      const isAsked = task !== null && rollout < task.until
      const version = isAsked ? task.version : this.#versionOf(rollout)
      const weights = this.#weights.get(version)
      if (weights === undefined) return // They are on their way into the store.
      const results = member.held.get(rollout) ?? []
      const fits = ({ result }: Held) => result.before === member.before && result.weights === weights
      const found = results.find((held) => fits(held) && held.result.version === version)
      if (found === undefined) {
        if (!isAsked) await this.#ask(number, rollout, version, weights)
        return
      }
      const isTaken = await this.#take(number, rollout, found)
      member.held.delete(rollout)
      for (const other of results) if (other !== found || !isTaken) this.#discard(other)
      if (!isTaken) member.task = null // Somebody must collect it again.
    }
  }

  async #ask(number: number, rollout: number, version: number, weights: string): Promise<void> {
    const member = this.#members[number]!
    let until = rollout + 1
    while (until < this.#permitted && this.#versionOf(until) === version) until++
    const id = `${this.#session}.${this.#tasks++}`
    const { before, task: former } = member
    member.task = { id, member: number, from: rollout, until, version, weights, before, since: now() }
    const { since: _, ...task } = member.task
    await this.#opened!.tasks.put(id, messageOf(task))
    if (former !== null && !this.#live().has(former.before)) await this.#opened!.store.drop(former.before)
  }

  /** Writes a result into the columns; false if the store has lost it. */
  async #take(number: number, rollout: number, held: Held): Promise<boolean> {
    const { cohort, numMembers } = this.#parts
    const { store } = this.#opened!
    const { result } = held
    const share = this.#shareOf(number)
    try {
      const [rows, after] = await Promise.all([store.get(result.rows), store.get(result.after)])
      await rowsFromBytes(cohort, rollout, number, share, rows)
      await stateFromBytes(cohort, rollout + 1, share, after, false)
    } catch (error) {
      if (!(error instanceof BlobError)) throw error
      this.#options.tell(`${error.message}: rollout ${rollout} of member ${number} is collected again`)
      return false
    }
    const member = this.#members[number]!
    const times = this.#times.get(rollout) ?? {
      began: new Float64Array(numMembers),
      took: new Float64Array(numMembers),
    }
    times.took[number] = result.seconds
    times.began[number] = Math.max(member.task?.since ?? 0, now() - 1000 * result.seconds)
    this.#times.set(rollout, times)
    member.waited += result.waited
    member.before = result.after
    this.#unsettled.set(rollout, [...(this.#unsettled.get(rollout) ?? []), held])
    member.collected++
    this.#wake()
    return true
  }

  collected(member: number): number {
    return this.#members[member]!.collected
  }

  async arrival(member: number, collected: number, _: number, signal?: AbortSignal): Promise<void> {
    if (this.#failure !== null || this.collected(member) > collected) return
    await new Promise<void>((resolve) => {
      this.#waiting.push(resolve)
      signal?.addEventListener('abort', this.#wake)
    })
    signal?.removeEventListener('abort', this.#wake)
  }

  times(update: number): CrewTimes {
    const { began, took } = this.#times.get(update)!
    return { began, took, waited: this.#members.map(({ waited }) => waited) }
  }

  learned(update: number): void {
    this.#times.delete(update)
    if (this.#options.acknowledge === 'update') this.#settle(update + 1)
  }

  kept(updates: number): void {
    this.#settle(updates)
  }

  /** Acknowledges the results of all rollouts below a number. */
  #settle(below: number): void {
    for (const [rollout, results] of this.#unsettled) {
      if (rollout >= below) continue
      this.#unsettled.delete(rollout)
      for (const held of results) this.#discard(held)
    }
  }

  async #report(update: number): Promise<void> {
    if (performance.now() - this.#reported < REPORT_MS) return
    this.#reported = performance.now()
    const { numSteps, numLanes } = this.#parts.cohort
    const steps = update * numSteps * numLanes
    const report = { state: 'running', session: this.#session, update, steps, at: Date.now() }
    await this.#opened!.run.put('learner', report)
  }

  hold(): void {}

  fail(reason: Error): void {
    this.#failure ??= reason
    this.#stop.abort()
    this.#wake()
  }

  async close(): Promise<void> {
    if (this.#opened === null) return
    const { run, lease, close } = this.#opened
    this.fail(new Error('the trainer was closed during an update'))
    this.pool?.close()
    await this.#receiving
    await this.#work
    this.#opened = null
    try {
      // Another learner may hold the lease.
      const current = await run.get('learner')
      if (current?.value.session === this.#session) await run.put('learner', { ...current.value, state: 'ended' })
      await lease.end()
    } catch (error) {
      this.#options.tell(`the end of the run did not reach the fleet: ${(error as Error).message}`)
    } finally {
      await close()
    }
  }
}

function now(): number {
  return performance.timeOrigin + performance.now()
}
