/**
 * The learner's side of a fleet, for episodes (`fleet-crew.ts`) and conversations (`fleet-groups.ts`): it takes the learner's place on the
 * bus, describes the run, receives results, and removes unneeded data from the store.
 */
import { randomUUID } from 'node:crypto'
import { hostname } from 'node:os'
import { setTimeout as sleep } from 'node:timers/promises'
import type { StoreAddress } from '../../fleet/address.ts'
import type { Bus, Item, Queue, Values } from '../../fleet/bus/bus.ts'
import { holdLease, type Lease } from '../../fleet/bus/lease.ts'
import type { OwnStore } from '../../fleet/store/store.ts'
import type { FleetStatus } from '../../telemetry/fleet-record.ts'
import type { Acknowledgement } from './acknowledgement.ts'
import type { Description } from './description.ts'
import { FleetPool, GRADIENTS } from './fleet-pool.ts'
import { statusReader } from './fleet-status.ts'

/** Seconds without news after which a learner, and an actor, counts as gone. */
export const LEASE_SECONDS = 10
/** Seconds for which the learner keeps a result that it has taken. When it starts, it takes all results again. */
const HELD_SECONDS = 86_400
/** Milliseconds between two reports of the learner. */
const REPORT_MS = 1000
/** Milliseconds between two reports of the fleet's state. */
const STATUS_MS = 2000
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
  /** `signal`: aborted when the learner ends; `begin`: when it is to wait no longer for the fleet to be there. */
  open(signal: AbortSignal, begin?: AbortSignal): Promise<OpenedFleet>
  readonly acknowledge: Acknowledgement
  /** Seconds without news after which a part goes to another actor. */
  readonly seconds: number
  /** Shares of a gradient, which helpers compute with the learner: one of `shareCounts`; default 1, the learner alone. */
  readonly learners?: number
  /** Called once when the run is ordered to stop. */
  onStop?(): void
  /** Called every two seconds, and at the end, with the fleet's state. */
  onStatus?(status: FleetStatus): Promise<void>
  tell(message: string): void
}

/** What differs between episodes and conversations. */
export interface LearnerWork {
  /** Puts what actors need at first, and forgets what an earlier start had. */
  begin(): Promise<void>
  /** Keeps a result that an earlier learner has not acknowledged. */
  hold(item: Item): void
  /** How far the run is; steps are conversations where it has those. */
  progress(): { readonly update: number; readonly steps: number }
  /** Describes the run for its actors. */
  describe(common: Pick<Description, 'session' | 'store' | 'seconds'>): Promise<Description>
  /** A result has come. */
  accept(item: Item): Promise<unknown> | undefined
  /** The hashes of blobs that are needed. */
  live(): Iterable<string>
  /** Whether an actor should be collecting. */
  isAwaiting(): boolean
  /** No more rollouts are collected. */
  failed(): void
}

export interface OpenedLearner extends OpenedFleet {
  readonly lease: Lease
  readonly tasks: Queue
  readonly results: Queue
  readonly run: Values
}

export class FleetLearner {
  readonly session = randomUUID().slice(0, 8)
  readonly pool: FleetPool | undefined
  readonly #options: FleetOptions
  readonly #work: LearnerWork
  /** The pending tasks, in order. */
  #queue: Promise<unknown> = Promise.resolve()
  #opened: OpenedLearner | null = null
  #failure: Error | null = null
  #stop = new AbortController()
  #receiving: Promise<void> = Promise.resolve()
  #telling: Promise<void> = Promise.resolve()
  #readState: Awaited<ReturnType<typeof statusReader>> | null = null
  #isUntold = false
  #reported = Number.NEGATIVE_INFINITY
  #heard = performance.now()

  constructor(options: FleetOptions, work: LearnerWork) {
    const { learners = 1, seconds, tell } = options
    this.#options = options
    this.#work = work
    this.pool = learners === 1 ? undefined : new FleetPool(learners, this.session, seconds, tell)
  }

  get failure(): Error | null {
    return this.#failure
  }

  /** Null before the start and after the end. */
  get opened(): OpenedLearner | null {
    return this.#opened
  }

  async start(begin?: AbortSignal): Promise<void> {
    this.#failure = null
    this.#reported = Number.NEGATIVE_INFINITY // An earlier start has reported its end.
    this.#stop = new AbortController()
    const fleet = await this.#options.open(this.#stop.signal, begin)
    try {
      this.#opened = await this.#open(fleet)
    } catch (error) {
      await fleet.close()
      throw error
    }
    try {
      await this.#begin(this.#opened)
    } catch (error) {
      await this.close()
      throw error
    }
    const { results, run } = this.#opened
    await this.#watchOrders(run)
    this.#receiving = this.#receive(results)
    if (this.#options.onStatus === undefined) return
    this.#readState = await statusReader(fleet.bus)
    this.#telling = this.#tellStates()
  }

  /** Takes the learner's place, and makes the run's queues and values. */
  async #open(fleet: OpenedFleet): Promise<OpenedLearner> {
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

  async #begin({ tasks, results, run, storeAddress }: OpenedLearner): Promise<void> {
    await tasks.empty()
    await results.reclaim()
    await this.#work.begin()
    await this.#takeLeft(results)
    await run.remove('order')
    const common = { session: this.session, store: storeAddress, seconds: this.#options.seconds }
    await run.put('description', { ...(await this.#work.describe(common)) })
    await this.report()
  }

  /** Takes the results that an earlier learner has not acknowledged, and removes all blobs that nothing names. */
  async #takeLeft(results: Queue): Promise<void> {
    const { store } = this.#opened!
    for (let left = await results.size(); left > 0; left--) {
      const item = await results.take({ seconds: 5 })
      if (item === null) break
      this.#work.hold(item)
    }
    const live = this.live()
    for (const hash of await store.list()) if (!live.has(hash)) await store.drop(hash)
  }

  async #watchOrders(run: Values): Promise<void> {
    const stop = await run.watch((key, value) => {
      if (key === 'order' && value?.order === 'stop') this.#options.onStop?.()
    })
    this.#stop.signal.addEventListener('abort', stop)
  }

  async #receive(results: Queue): Promise<void> {
    const { signal } = this.#stop
    try {
      while (!signal.aborted) {
        const item = await results.take({ seconds: 2, signal })
        if (item === null) this.#tellLonely()
        else {
          this.do(async () => {
            this.#heard = performance.now()
            await this.#work.accept(item)
          })
        }
      }
    } catch (error) {
      this.fail(error as Error)
    }
  }

  /** Reports the fleet's state until the learner ends. */
  async #tellStates(): Promise<void> {
    const { signal } = this.#stop
    while (!signal.aborted) {
      await this.#tellState()
      await sleep(STATUS_MS, undefined, { signal }).catch(() => {}) // It has ended.
    }
  }

  /** A failed report ends nothing; the user is warned about the first one. */
  async #tellState(): Promise<void> {
    try {
      await this.#options.onStatus!(await this.#readState!())
    } catch (error) {
      const isTold = this.#isUntold || this.#stop.signal.aborted
      this.#isUntold = true
      if (!isTold) this.#options.tell(`the state of the fleet cannot be shown: ${(error as Error).message}`)
    }
  }

  #tellLonely(): void {
    if (performance.now() - this.#heard < LONELY_MS || !this.#work.isAwaiting()) return
    this.#heard = Number.POSITIVE_INFINITY // Reported once, until a result arrives.
    this.#options.tell(`no actor has returned a result for ${LONELY_MS / 1000} s: start actors with colonnade actor`)
  }

  /** Runs a task after the earlier ones. */
  do(work: () => Promise<unknown>): void {
    this.#queue = this.#queue.then(work).catch((error: Error) => this.fail(error))
  }

  /** Puts a blob when the store takes it. A full store delays the run and does not end it. */
  async put(bytes: Uint8Array): Promise<string> {
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

  live(): Set<string> {
    return new Set([...(this.pool?.live() ?? []), ...this.#work.live()])
  }

  /** Removes blobs that nothing names any more. */
  async drop(...hashes: readonly string[]): Promise<void> {
    const live = this.live()
    for (const hash of hashes) if (hash !== '' && !live.has(hash)) await this.#opened!.store.drop(hash)
  }

  /** Acknowledges a result, and removes its blobs. */
  discard(item: Item, ...hashes: readonly string[]): void {
    this.do(async () => {
      if (this.#opened === null) return // The next start takes it again.
      await item.acknowledge()
      await this.drop(...hashes)
    })
  }

  /** Reports the progress of the run, at most once a second, and at the end. */
  async report(): Promise<void> {
    if (performance.now() - this.#reported < REPORT_MS) return
    this.#reported = performance.now()
    await this.#putState(this.#opened!.run, 'running')
  }

  async #putState(run: Values, state: 'running' | 'ended'): Promise<void> {
    await run.put('learner', { state, session: this.session, ...this.#work.progress(), at: Date.now() })
  }

  fail(reason: Error): void {
    this.#failure ??= reason
    this.#stop.abort()
    this.#work.failed()
  }

  async close(): Promise<void> {
    if (this.#opened === null) return
    const { run, lease, close } = this.#opened
    this.fail(new Error('the trainer was closed during an update'))
    this.pool?.close()
    await this.#receiving
    await this.#queue
    await this.#telling
    this.#opened = null
    try {
      // Another learner may hold the lease.
      const current = await run.get('learner')
      if (current?.value.session === this.session) await this.#putState(run, 'ended')
      await lease.end()
      if (this.#readState !== null) await this.#tellState()
    } catch (error) {
      this.#options.tell(`the end of the run did not reach the fleet: ${(error as Error).message}`)
    } finally {
      await close()
    }
  }
}
