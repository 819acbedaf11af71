/**
 * An actor of a fleet: it reads the run's description, collects the parts that it takes from the queue, and puts their rows into the store.
 * If it is killed, only the part that it was collecting is lost, and another actor collects it.
 */
import { hostname } from 'node:os'
import { InputError, thrownText } from '../../base/errors.ts'
import type { Bus, Item, Queue, Values } from '../../fleet/bus/bus.ts'
import type { EpisodeCohort } from '../../world/episodes/cohort.ts'
import { openWorld, type World } from '../../world/world.ts'
import { nextTurn } from '../loop/training.ts'
import { collectAhead } from '../threads/crew.ts'
import { WatchedRollouts } from '../watch/watched-rollouts.ts'
import type { JoinedRun } from './description.ts'
import { FleetMember, type MemberOptions } from './fleet-member.ts'
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
export type ActorOptions = MemberOptions

/** What an actor did. */
export interface ActorSummary {
  readonly actor: string
  readonly rollouts: number
  readonly steps: number
  readonly failures: number
  readonly end: FleetMember['end']
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
  readonly #member: FleetMember
  #joined: JoinedRun | null = null
  readonly #posts = new Map<number, Post>()
  readonly #told = { rollouts: 0, steps: 0, failures: 0, seconds: 0, version: 0, lanes: 0, lastError: '' }
  /** Whether the environment or the policy is running: their errors belong to the run. */
  #isCollecting = false

  constructor(bus: Bus, options: ActorOptions) {
    this.#member = new FleetMember(bus, options)
  }

  async run(): Promise<ActorSummary> {
    const member = this.#member
    try {
      await member.follow((run) => this.#collect(run))
    } finally {
      this.#leave()
    }
    const { rollouts, steps, failures } = this.#told
    return { actor: member.name, rollouts, steps, failures, end: member.end }
  }

  async #collect(run: Values): Promise<void> {
    const { bus, name, signal } = this.#member
    const actors = await bus.values('actors', { isOwner: false })
    const results = await bus.queue('results', { seconds: 1, isOwner: false })
    const reports = setInterval(() => void this.#report(actors).catch(() => {}), REPORT_MS) // The next report follows soon.
    try {
      while (!signal.aborted) {
        const { description } = await this.#member.joined(run, (joined) => this.#join(joined))
        const { seconds } = description
        const tasks = await bus.queue('tasks', { seconds, isOwner: false })
        const since = performance.now()
        const item = await tasks.take({ seconds: 5, signal })
        if (item !== null) await this.#do(item, results, seconds, (performance.now() - since) / 1000)
      }
    } finally {
      clearInterval(reports)
      await actors.remove(name)
    }
  }

  async #join(joined: JoinedRun): Promise<void> {
    this.#leave()
    this.#joined = joined
    await this.#post(0) // Refuses columns that are not as the learner's before it takes a part.
    const { environment, policy, cohort } = joined.description
    this.#member.options.tell?.(`collects ${environment.id} by ${policy.id}, ${cohort.numLanes} lanes in parts`)
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
      this.#member.options.tell?.(`rollout ${task.from} of member ${task.member}: ${this.#told.lastError}`)
      if (!isOurs || item.deliveries < FAILURES_MAX) return item.release(isOurs ? 1 : AGAIN_SECONDS)
      const { until: _, ...rest } = task
      const none = { rows: '', after: '', seconds: 0, waited, error: this.#told.lastError }
      await results.put(
        `${task.id}.failed`,
        messageOf({ ...rest, ...none, rollout: task.from, actor: this.#member.name }),
      )
      await item.acknowledge()
    } finally {
      clearInterval(extend)
    }
  }

  async #collectParts(task: PartTask, results: Queue, waited: number): Promise<void> {
    const { member, version, weights, until } = task
    const post = await this.#post(member)
    const { cohort, world } = post
    const store = this.#member.store!
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
        ...{
          id,
          actor: this.#member.name,
          member,
          rollout,
          version,
          weights,
          before,
          rows,
          after,
          seconds,
          error: null,
        },
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
    await actors.put(this.#member.name, { ...this.#told, host: hostname(), at: Date.now() })
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
