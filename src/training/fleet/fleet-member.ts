/** The common part of actors and helpers of a fleet: they wait for a learner, and follow its run and orders until their end. */
import { randomUUID } from 'node:crypto'
import { hostname } from 'node:os'
import { setTimeout as sleep } from 'node:timers/promises'
import { openStore } from '../../fleet/address.ts'
import { type Bus, type Message, NoRunError, type Values } from '../../fleet/bus/bus.ts'
import type { Store } from '../../fleet/store/store.ts'
import { type JoinedRun, joinRun } from './description.ts'

/** Milliseconds between two looks for a learner. */
const LOOK_MS = 500

/** Options of an actor or a helper of a fleet. */
export interface MemberOptions {
  /** Paths of modules that it may import; it imports no others. */
  readonly modules?: readonly string[]
  /** Whether it waits for the next learner of this name when a run ends, until the fleet is drained; default false. */
  readonly stay?: boolean
  /** When aborted, it ends after its current task. */
  readonly signal?: AbortSignal
  tell?(message: string): void
}

export class FleetMember {
  readonly bus: Bus
  readonly options: MemberOptions
  readonly name = `${hostname()}-${process.pid}-${randomUUID().slice(0, 4)}`.replace(/[^\w-]/g, '-')
  /** Why it ended: the run did, it was drained, or its signal. */
  end: 'run' | 'drain' | 'signal' = 'signal'
  /** Of the joined run. */
  store: Store | null = null
  readonly #over = new AbortController()
  #joined: JoinedRun | null = null
  #description: Message | null = null

  constructor(bus: Bus, options: MemberOptions) {
    this.bus = bus
    this.options = options
  }

  /** Aborted when it is to end. */
  get signal(): AbortSignal {
    return this.#over.signal
  }

  /** Works for a run, once a learner has begun it. `work` ends soon after `signal` is aborted. */
  async follow(work: (run: Values) => Promise<void>): Promise<void> {
    const { signal } = this.options
    const stop = () => this.#stop()
    if (signal?.aborted) stop()
    signal?.addEventListener('abort', stop)
    try {
      const run = await this.#awaitRun()
      if (run === null) return
      const unwatch = await run.watch((key, value) => this.#hear(key, value))
      try {
        await work(run)
      } finally {
        unwatch()
      }
    } finally {
      signal?.removeEventListener('abort', stop)
      await this.store?.close()
    }
  }

  #stop(): void {
    this.#over.abort()
    this.store?.leave?.()
  }

  /** Waits until a learner has begun the run; null if it is to end before. */
  async #awaitRun(): Promise<Values | null> {
    for (let isTold = false; !this.signal.aborted; isTold = true) {
      try {
        const run = await this.bus.values('run', { isOwner: false })
        const learner = await run.get('learner')
        if (learner?.value.state === 'running' && (await run.get('description')) !== null) return run
        if (this.options.stay === true && (await run.get('order'))?.value.order === 'drain') {
          this.end = 'drain'
          return null
        }
      } catch (error) {
        if (!(error instanceof NoRunError)) throw error
      }
      if (!isTold) this.options.tell?.('waits for a learner')
      await sleep(LOOK_MS)
    }
    return null
  }

  #hear(key: string, value: Message | null): void {
    const end =
      key === 'learner' && value?.state === 'ended'
        ? 'run'
        : key === 'order' && value?.order === 'drain'
          ? 'drain'
          : null
    if (key === 'description') this.#description = value
    if (end === null || this.signal.aborted) return
    this.end = end
    this.#stop()
    if (end === 'run') void this.store?.close() // No learner waits for its result.
  }

  /** The run as it is described now. `begin` is called first when it is another start of the learner. */
  async joined(run: Values, begin: (joined: JoinedRun) => Promise<void>): Promise<JoinedRun> {
    const described = this.#description ?? (await run.get('description'))!.value
    if (this.#joined !== null && this.#joined.description.session === described.session) return this.#joined
    this.#joined = null
    const joined = await joinRun(described, this.options.modules ?? [])
    await this.store?.close()
    this.store = await openStore(joined.description.store)
    await begin(joined)
    this.#joined = joined
    return joined
  }
}
