/**
 * Groups of conversations by the actors of a fleet: the learner puts groups into a queue, actors generate them with their own engines, and
 * references to the rows come back in another queue. Rows and weights are in a store.
 *
 * A group is collected with the weights that were the newest when it began. It may be collected more than once: the first result counts.
 * The learner acknowledges a result, and removes its rows, when a checkpoint contains what was learned from it (`checkpoint`), or after the
 * update (`update`).
 */

import type { RlDefinition } from '../../algorithms/tokens/rl.ts'
import { type TokenLearnerColumns, trainedOf } from '../../algorithms/tokens/token-learner.ts'
import type { Ticket } from '../../fleet/admission.ts'
import type { Item } from '../../fleet/bus/bus.ts'
import { BlobError, nameOfBlob } from '../../fleet/store/store.ts'
import type { Trajectory } from '../../tables/trajectories/trajectory.ts'
import type { ConversationCohort } from '../../world/conversations/cohort.ts'
import type { World } from '../../world/world.ts'
import type { CollectorDefinition, SavedCollector } from '../loop/collector.ts'
import { type EndedMember, MemberCollector, type MemberRunner } from '../text/collect/member-collector.ts'
import { type ConversationDescription, describeConversations } from './description.ts'
import { FleetLearner, type FleetOptions } from './fleet-learner.ts'
import type { FleetPool } from './fleet-pool.ts'
import { type GroupResult, type GroupTask, groupsFromBytes } from './group-parts.ts'

/** A result with its item of the queue. */
interface Held {
  readonly item: Item
  readonly result: GroupResult
  /** The number of updates when all of its groups had been learned from or dropped; null before. */
  done: number | null
}

/** A group that actors have to collect. */
interface Asked {
  readonly version: number
  /** The task's; empty before it is put. */
  id: string
  readonly members: Map<number, { resolve(ended: EndedMember): void; reject(cause: Error): void }>
}

/** A collector whose groups come from the processes that join a fleet, in `actors` parts of an update. */
export function fleetCollector(actors: number, options: FleetOptions): CollectorDefinition {
  return (world, cohort, rl) =>
    new MemberCollector(world, cohort, rl, new FleetGroups(world, cohort, rl, actors, options))
}

class FleetGroups implements MemberRunner {
  readonly maxMembers = Number.POSITIVE_INFINITY
  readonly #cohort: ConversationCohort
  readonly #rl: RlDefinition
  readonly #options: FleetOptions
  readonly #learner: FleetLearner
  /** Groups of a task. */
  readonly #groupsPerTask: number
  readonly #asked = new Map<number, Asked>()
  /** Groups whose task is not put yet. */
  #fresh: number[] = []
  #results: Held[] = []
  /** Hashes of weights in the store, and copies that are on their way there, by version. */
  #weights = new Map<number, string>()
  readonly #copies = new Map<number, Uint8Array>()
  /** The versions that a checkpoint after so many updates needs; and the newest on disk. */
  readonly #savedVersions = new Map<number, readonly number[]>()
  #pinned: readonly number[] = []
  #updates = 0
  #conversations = 0
  #tasks = 0

  constructor(world: World, cohort: ConversationCohort, rl: RlDefinition, actors: number, options: FleetOptions) {
    const { groupsPerUpdate, overSampling } = rl.settings
    this.#cohort = cohort
    this.#rl = rl
    this.#options = options
    this.#groupsPerTask = Math.ceil((groupsPerUpdate * overSampling) / actors)
    this.#learner = new FleetLearner(options, {
      begin: () => this.#begin(),
      hold: (item) => this.#hold(item),
      describe: (common) => {
        const numLanes = this.#groupsPerTask * cohort.groupSize
        return describeConversations(world, cohort, { ...common, numLanes, gradients: this.#gradients })
      },
      accept: (item) => this.#take(this.#hold(item)),
      live: () => [...this.#weights.values(), ...this.#results.map(({ result }) => result.rows)],
      progress: () => ({ update: this.#updates, steps: this.#conversations }),
      isAwaiting: () => this.#asked.size > 0,
      failed: () => this.#failed(),
    })
  }

  get pool(): FleetPool | undefined {
    return this.#learner.pool
  }

  /** What helpers need to know of the learner's gradients. */
  get #gradients(): ConversationDescription['gradients'] {
    if (this.pool === undefined) return null
    const { gradient, packed } = this.#cohort.learner as TokenLearnerColumns
    const numSlots = Math.floor(gradient.length / this.#trained.length)
    return { shareCount: this.pool.shareCount, numSlots, rows: packed[0]!.target.length }
  }

  async start(signal?: AbortSignal): Promise<void> {
    const { failure, opened } = this.#learner
    if (opened === null) await this.#learner.start(signal)
    else if (failure !== null) throw failure
  }

  async #begin(): Promise<void> {
    this.#results = []
    this.#copies.clear() // A version may have other weights since then.
    const there = new Set(await this.#learner.opened!.store.list())
    const { version } = this.#cohort
    for (const [each, hash] of this.#weights) if (each >= version || !there.has(hash)) this.#weights.delete(each)
  }

  #failed(): void {
    const asked = [...this.#asked.values()]
    this.#asked.clear()
    for (const { members } of asked) for (const { reject } of members.values()) reject(this.#learner.failure!)
  }

  run({ group, member }: Ticket, signal: AbortSignal, lag: number): Promise<EndedMember> {
    const { failure } = this.#learner
    if (failure !== null) return Promise.reject(failure)
    return new Promise((resolve, reject) => {
      const asked = this.#asked.get(group) ?? this.#ask(group, lag)
      asked.members.set(member, { resolve, reject })
      const stop = () => {
        asked.members.delete(member)
        if (asked.members.size === 0 && this.#asked.get(group) === asked) this.#asked.delete(group)
        resolve({ rows: [], failure: null })
      }
      signal.addEventListener('abort', stop, { once: true })
    })
  }

  #ask(group: number, lag: number): Asked {
    const { version: newest } = this.#cohort
    const isThere = lag === 0 || this.#weights.has(newest - lag)
    if (!isThere) this.#options.tell(`group ${group} is collected with newer weights: its own are gone`)
    const version = isThere ? newest - lag : newest
    if (!this.#weights.has(version) && !this.#copies.has(version)) {
      const { buffer, byteOffset, byteLength } = this.#trained
      this.#copies.set(version, new Uint8Array(buffer, byteOffset, byteLength).slice())
    }
    const asked: Asked = { version, id: '', members: new Map() }
    this.#asked.set(group, asked)
    // Groups that begin together are dealt together.
    if (this.#fresh.push(group) === 1) queueMicrotask(() => this.#learner.do(() => this.#deal(this.#fresh.splice(0))))
    return asked
  }

  get #trained(): Float32Array {
    const { weights, quantized, adapter } = this.#cohort
    return trainedOf(quantized ?? weights, adapter)
  }

  /** Puts groups into the queue that no result has. */
  async #deal(groups: readonly number[]): Promise<void> {
    for (const [version, bytes] of this.#copies) {
      this.#weights.set(version, await this.#learner.put(bytes))
      this.#copies.delete(version)
    }
    for (const held of [...this.#results]) await this.#take(held)
    const open = groups.filter((group) => this.#asked.get(group)?.id === '').sort((a, b) => a - b)
    for (let i = 0; i < open.length; ) {
      const from = open[i]!
      const { version } = this.#asked.get(from)!
      let until = from
      while (open[i] === until && until - from < this.#groupsPerTask && this.#asked.get(until)!.version === version) {
        until++
        i++
      }
      const id = `${this.#learner.session}.${this.#tasks++}`
      for (let group = from; group < until; group++) this.#asked.get(group)!.id = id
      const task: GroupTask = { id, from, until, version, weights: this.#weights.get(version)! }
      await this.#learner.opened!.tasks.put(id, { ...task })
    }
    await this.#learner.report()
  }

  #hold(item: Item): Held {
    const result = item.value as unknown as GroupResult
    const held: Held = { item, result, done: null }
    this.#results.push(held)
    return held
  }

  /** Gives the rows of a result to those who wait for them. */
  async #take(held: Held): Promise<void> {
    const { result } = held
    const { error, actor, from, until, version, weights } = result
    const waiting = [...this.#asked].filter(([group, asked]) => {
      return group >= from && group < until && asked.version === version && this.#weights.get(version) === weights
    })
    if (error !== null) {
      this.#forget(held)
      if (waiting.some(([, { id }]) => id === result.id)) throw new Error(`actor ${actor}: ${error}`)
      return
    }
    if (waiting.length === 0) return
    let groups: ReadonlyMap<number, readonly (readonly Trajectory[])[]>
    try {
      groups = await groupsFromBytes(this.#cohort, result, await this.#learner.opened!.store.get(result.rows))
    } catch (error) {
      if (!(error instanceof BlobError)) throw error
      this.#options.tell(`${error.message}: groups ${from} to ${until - 1} are collected again`)
      this.#forget(held)
      for (const [, asked] of waiting) asked.id = ''
      return this.#deal(waiting.map(([group]) => group))
    }
    for (const [group, asked] of waiting) {
      if (this.#asked.get(group) !== asked) continue // It was stopped meanwhile.
      this.#asked.delete(group)
      for (const [member, { resolve }] of asked.members) {
        const rows = groups.get(group)![member]!
        this.#conversations++
        resolve({ rows, failure: this.#failureOf(rows) })
      }
    }
  }

  #failureOf(rows: readonly Trajectory[]): string | null {
    const { stopReason, error } = rows.at(-1)!
    return stopReason === 'aborted' && this.#rl.settings.failure !== 'keep' ? error : null
  }

  #forget(held: Held): void {
    this.#results = this.#results.filter((each) => each !== held)
    this.#learner.discard(held.item, held.result.rows)
  }

  learned(updates: number, isDone: (group: number) => boolean): void {
    this.#updates = updates
    for (const held of this.#results) {
      const { from, until } = held.result
      const groups = Array.from({ length: until - from }, (_, i) => from + i)
      if (held.done === null && groups.every(isDone)) held.done = updates
    }
    if (this.#options.acknowledge === 'update') this.#settle(updates)
    this.#prune()
  }

  kept(updates: number): void {
    this.#pinned = this.#savedVersions.get(updates) ?? this.#pinned
    for (const each of this.#savedVersions.keys()) if (each <= updates) this.#savedVersions.delete(each)
    this.#settle(updates)
    this.#prune()
  }

  #settle(updates: number): void {
    for (const held of this.#results) if (held.done !== null && held.done <= updates) this.#forget(held)
  }

  /** The oldest version that a group under way may need. */
  get #oldest(): number {
    return this.#cohort.version - this.#rl.settings.maxStaleness
  }

  #prune(): void {
    const old = [...this.#weights].filter(([version]) => version < this.#oldest && !this.#pinned.includes(version))
    for (const [version] of old) this.#weights.delete(version)
    if (this.#learner.opened !== null) this.#learner.do(() => this.#learner.drop(...old.map(([, hash]) => hash)))
  }

  saved(): SavedCollector['runner'] {
    // Copies on their way are named by what the store will name them.
    const copies = [...this.#copies].map(([version, bytes]) => [version, nameOfBlob(bytes)] as const)
    const needed = [...this.#weights, ...copies].filter(([version]) => version >= this.#oldest)
    const versions = needed.map(([version]) => version)
    this.#savedVersions.set(this.#updates, versions)
    return needed
  }

  restore(saved: SavedCollector['runner'], updates: number, numEnded: number): void {
    this.#updates = updates
    this.#conversations = numEnded
    this.#weights = new Map(saved)
    this.#pinned = [...this.#weights.keys()]
  }

  close(): Promise<void> {
    return this.#learner.close()
  }
}
