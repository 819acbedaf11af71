/**
 * An actor of a fleet: it reads the run's description, collects the parts that it takes from the queue, and puts their rows into the store.
 * If it is killed, only the part that it was collecting is lost, and another actor collects it.
 */
import { randomUUID } from 'node:crypto'
import { hostname } from 'node:os'
import { setTimeout as sleep } from 'node:timers/promises'
import { InputError, thrownText } from '../../base/errors.ts'
import { openStore } from '../../fleet/address.ts'
import { type Bus, type Item, type Message, NoRunError, type Queue, type Values } from '../../fleet/bus/bus.ts'
import type { Store } from '../../fleet/store/store.ts'
import type { EpisodeCohort } from '../../world/episodes/cohort.ts'
import { openWorld, type World } from '../../world/world.ts'
import { nextTurn } from '../loop/training.ts'
import { collectAhead } from '../threads/crew.ts'
import { WatchedRollouts } from '../watch/watched-rollouts.ts'
import { type Description, type JoinedRun, joinRun } from './description.ts'
import {
  messageOf,
  type PartResult,
  type PartTask,
  rowsToBytes,
  schemaOf,
  shareOfMember,
  stateFromBytes,
  stateToBytes,
} from './parts.ts'

/** Milliseconds of collecting after which other work of the process has a turn, and between two reports. */
const [TURN_MS, REPORT_MS] = [200, 1000]
/** How often a part may fail before the error goes to the learner. */
const FAILURES_MAX = 3
/** Seconds before a part is tried again after the store or the bus refused it, for example because it is full. */
const AGAIN_SECONDS = 3

/** Options of an actor of a fleet. */
export interface ActorOptions {
  /** Paths of modules that it may import; it imports no others. */
  readonly modules?: readonly string[]
  /** Whether it waits for the next learner of this name when a run ends; default false. */
  readonly stay?: boolean
  /** When aborted, it ends after the rollout that it collects. */
  readonly signal?: AbortSignal
  tell?(message: string): void
}

/** What an actor did. */
export interface ActorSummary {
  readonly actor: string
  readonly rollouts: number
  readonly steps: number
  readonly failures: number
  /** Why it ended: the run did, it was drained, or its signal. */
  readonly end: 'run' | 'drain' | 'signal'
}

/** A member's lanes in this process. */
interface Post {
  readonly world: World
  readonly cohort: EpisodeCohort
  readonly watched: WatchedRollouts
  /** The hash of the state in its lanes; empty without one. */
  state: string
  /** The hash of its weights. */
  weights: string
}

/**
 * Collects for the run on this bus, until the run ends or the actors are drained.
 * @throws InputError for a run of another version of Colonnade, other code, or a store that cannot be reached from here.
 */
export async function runActor(bus: Bus, options: ActorOptions = {}): Promise<ActorSummary> {
  let sum = { rollouts: 0, steps: 0, failures: 0 }
  for (;;) {
    const { rollouts, steps, failures, ...last } = await new FleetActor(bus, options).run()
    sum = { rollouts: sum.rollouts + rollouts, steps: sum.steps + steps, failures: sum.failures + failures }
    if (options.stay !== true || last.end !== 'run') return { ...last, ...sum }
  }
}

class FleetActor {
  readonly #bus: Bus
  readonly #options: ActorOptions
  readonly #name = `${hostname()}-${process.pid}-${randomUUID().slice(0, 4)}`.replace(/[^\w-]/g, '-')
  /** Aborted to end it. */
  readonly #over = new AbortController()
  #end: ActorSummary['end'] = 'signal'
  #joined: JoinedRun | null = null
  #store: Store | null = null
  readonly #posts = new Map<number, Post>()
  readonly #told = { rollouts: 0, steps: 0, failures: 0, seconds: 0, version: 0, lanes: 0, lastError: '' }

  constructor(bus: Bus, options: ActorOptions) {
    this.#bus = bus
    this.#options = options
  }

  async run(): Promise<ActorSummary> {
    const { signal } = this.#options
    const stop = () => this.#over.abort()
    if (signal?.aborted) stop()
    signal?.addEventListener('abort', stop)
    try {
      await this.#collect()
    } finally {
      signal?.removeEventListener('abort', stop)
      this.#leave()
      await this.#store?.close()
    }
    const { rollouts, steps, failures } = this.#told
    return { actor: this.#name, rollouts, steps, failures, end: this.#end }
  }

  async #collect(): Promise<void> {
    const run = await this.#awaitRun()
    if (run === null) return
    const unwatch = await run.watch((key, value) => this.#follow(key, value))
    const bus = this.#bus
    const actors = await bus.values('actors', { isOwner: false })
    const results = await bus.queue('results', { seconds: 1, isOwner: false })
    const reports = setInterval(() => void this.#report(actors).catch(() => {}), REPORT_MS) // The next report follows soon.
    try {
      while (!this.#over.signal.aborted) {
        const { seconds } = await this.#join(run)
        const tasks = await bus.queue('tasks', { seconds, isOwner: false })
        const since = performance.now()
        const item = await tasks.take({ seconds: 5, signal: this.#over.signal })
        if (item !== null) await this.#do(item, results, seconds, (performance.now() - since) / 1000)
      }
    } finally {
      clearInterval(reports)
      unwatch()
      await actors.remove(this.#name)
    }
  }

  /** Waits until a learner has begun the run; null if it is to end before. */
  async #awaitRun(): Promise<Values | null> {
    for (let isTold = false; !this.#over.signal.aborted; isTold = true) {
      try {
        const run = await this.#bus.values('run', { isOwner: false })
        const learner = await run.get('learner')
        if (learner?.value.state === 'running' && (await run.get('description')) !== null) return run
      } catch (error) {
        if (!(error instanceof NoRunError)) throw error
      }
      if (!isTold) this.#options.tell?.('waits for a learner')
      await sleep(500)
    }
    return null
  }

  #follow(key: string, value: Message | null): void {
    const end =
      key === 'learner' && value?.state === 'ended'
        ? 'run'
        : key === 'order' && value?.order === 'drain'
          ? 'drain'
          : null
    if (key === 'description') this.#description = value
    if (end === null || this.#over.signal.aborted) return
    this.#end = end
    this.#over.abort()
    if (end === 'run') void this.#store?.close() // No learner waits for what it is about to put.
  }

  #description: Message | null = null
  /** Whether the environment or the policy is running: their errors belong to the run. */
  #isCollecting = false

  /** Joins the run as it is described now. */
  async #join(run: Values): Promise<Description> {
    const described = this.#description ?? (await run.get('description'))!.value
    if (this.#joined !== null && this.#joined.description.session === described.session) return this.#joined.description
    this.#leave()
    this.#joined = await joinRun(described, this.#options.modules ?? [])
    await this.#store?.close()
    this.#store = await openStore(this.#joined.description.store)
    await this.#post(0) // Refuses columns that are not as the learner's before it takes a part.
    const { environment, policy, cohort } = this.#joined.description
    this.#options.tell?.(`collects ${environment.id} by ${policy.id}, ${cohort.numLanes} lanes in parts`)
    return this.#joined.description
  }

  #leave(): void {
    for (const { world } of this.#posts.values()) world.close()
    this.#posts.clear()
  }

  /** A member's lanes, made when they are first needed. */
  async #post(member: number): Promise<Post> {
    const former = this.#posts.get(member)
    if (former !== undefined) return former
    const { description, options, kernels } = this.#joined!
    const { seed, numMembers, schema, cohort: given } = description
    const world = await openWorld({ cohorts: [options], seed, kernels }, { index: 1 + member })
    const draft = world.draft()
    if (draft.kind !== 'episodes') throw new InputError('environment', draft.kind, 'one of episodes')
    world.reserve(draft, { numSteps: given.numSteps, learner: {}, numBuffers: 1 })
    world.split(1 + numMembers, numMembers)
    const cohort = world.cohort() as EpisodeCohort
    const own = schemaOf(cohort)
    if (own !== schema) {
      const expected = `${schema}, as the learner's: the same code of environment and policy`
      throw new InputError('columns of the actor', own, expected)
    }
    const post = { world, cohort, watched: new WatchedRollouts(), state: '', weights: '' }
    this.#posts.set(member, post)
    return post
  }

  async #do(item: Item, results: Queue, seconds: number, waited: number): Promise<void> {
    const task = item.value as unknown as PartTask
    const extend = setInterval(() => item.extend(), (1000 * seconds) / 4)
    try {
      await this.#collectParts(task, results, waited)
      await item.acknowledge()
    } catch (error) {
      this.#posts.delete(task.member) // In the middle of a rollout.
      const isOurs = this.#isCollecting // Otherwise the store or the bus failed, which others may mend.
      this.#isCollecting = false
      this.#told.failures++
      this.#told.lastError = thrownText(error)
      this.#options.tell?.(`rollout ${task.from} of member ${task.member}: ${this.#told.lastError}`)
      if (!isOurs || item.deliveries < FAILURES_MAX) return item.release(isOurs ? 1 : AGAIN_SECONDS)
      const { until: _, ...rest } = task
      const none = { rows: '', after: '', seconds: 0, waited, error: this.#told.lastError }
      await results.put(`${task.id}.failed`, messageOf({ ...rest, ...none, rollout: task.from, actor: this.#name }))
      await item.acknowledge()
    } finally {
      clearInterval(extend)
    }
  }

  async #collectParts(task: PartTask, results: Queue, waited: number): Promise<void> {
    const { member, version, weights, until } = task
    const post = await this.#post(member)
    const { cohort, world } = post
    const store = this.#store!
    const share = shareOfMember(cohort, member, this.#joined!.description.numMembers)
    if (post.weights !== weights) {
      const bytes = await store.get(weights)
      const [target] = cohort.ahead!.published
      const own = new Uint8Array(target!.buffer, target!.byteOffset, target!.byteLength)
      if (bytes.length !== own.length) throw new InputError('weights', `${bytes.length} bytes`, `${own.length}`)
      own.set(bytes)
      post.weights = weights
    }
    if (post.state !== task.before) {
      await stateFromBytes(cohort, 0, share, await store.get(task.before), true)
      post.watched.restart() // These are not the observations that its last step left.
    }
    for (let rollout = task.from, before = task.before; rollout < until; rollout++) {
      const began = performance.now()
      post.state = ''
      world.clock.start()
      this.#isCollecting = true
      for (const waiting of collectAhead(world, cohort, 0, version, post.watched, turns())) await waiting
      this.#isCollecting = false
      const seconds = (performance.now() - began) / 1000
      const blobs = [await rowsToBytes(cohort, 0, member, share), await stateToBytes(cohort, 0, share)]
      const [rows, after] = (await Promise.all(blobs.map((bytes) => store.put(bytes)))) as [string, string]
      const { id } = task
      const result: PartResult = {
        ...{ id, actor: this.#name, member, rollout, version, weights, before, rows, after, seconds, error: null },
        waited: rollout === task.from ? waited : 0,
      }
      await results.put(`${id}.${rollout}`, messageOf(result))
      post.state = after
      before = after
      const steps = cohort.numSteps * (share.to - share.from)
      Object.assign(this.#told, { version, lanes: share.to - share.from, rollouts: this.#told.rollouts + 1 })
      this.#told.steps += steps
      this.#told.seconds += seconds
    }
  }

  async #report(actors: Values): Promise<void> {
    await actors.put(this.#name, { ...this.#told, host: hostname(), at: Date.now() })
  }
}

/** Lets timers and messages of the process have a turn from time to time. */
function turns(): () => Promise<void> | undefined {
  let last = performance.now()
  return () => {
    if (performance.now() - last < TURN_MS) return undefined
    return nextTurn().then(() => {
      last = performance.now()
    })
  }
}
