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
import type { Item } from '../../fleet/bus/bus.ts'
import { BlobError } from '../../fleet/store/store.ts'
import type { Crew, CrewDefinition, CrewParts, CrewTimes } from '../threads/crew.ts'
import { describeEpisodes } from './description.ts'
import { FleetLearner, type FleetOptions } from './fleet-learner.ts'
import type { FleetPool } from './fleet-pool.ts'
import {
  messageOf,
  type PartResult,
  type PartTask,
  readState,
  rowsFromBytes,
  shareOfMember,
  stateToBytes,
} from './parts.ts'

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
  /** Writes that state to its place, in which a checkpoint may still need the state before an earlier rollout; null once it is there. */
  write: ((rollout: number) => void) | null
  task: (PartTask & { readonly since: number }) | null
  /** Results of later rollouts, by rollout. */
  readonly held: Map<number, Held[]>
  waited: number
}

/** A crew of the processes that join a fleet. */
export function fleetCrew(options: FleetOptions): CrewDefinition {
  return (parts) => new FleetCrew(parts, options)
}

class FleetCrew implements Crew {
  readonly isElsewhere = true
  readonly #parts: CrewParts
  readonly #options: FleetOptions
  readonly #learner: FleetLearner
  readonly #members: Member[] = []
  /** Hashes of the published weights, by version. */
  readonly #weights = new Map<number, string>()
  /** Taken results of rollouts that may be needed again, by rollout. */
  readonly #unsettled = new Map<number, Held[]>()
  /** Seconds of a rollout's parts, and when they were begun. */
  readonly #times = new Map<number, { began: Float64Array; took: Float64Array }>()
  #waiting: (() => void)[] = []
  #permitted = 0
  /** How many have been learned. */
  #updates = 0
  #version = 0
  #tasks = 0

  /** Ends the waits of `arrival`. */
  readonly #wake = () => {
    for (const tell of this.#waiting.splice(0)) tell()
  }

  constructor(parts: CrewParts, options: FleetOptions) {
    this.#parts = parts
    this.#options = options
    this.#learner = new FleetLearner(options, {
      begin: () => this.#begin(),
      hold: (item) => this.#hold(item),
      describe: (common) => {
        const { algorithm, cohort, world, numMembers } = parts
        const pooled = this.pool === undefined ? null : { algorithm, shareCount: this.pool.shareCount }
        return describeEpisodes(world, cohort, pooled, { ...common, numMembers })
      },
      accept: (item) => this.#accept(item),
      live: () => this.#live(),
      progress: () => ({ update: this.#updates, steps: this.#stepsOf(this.#updates) }),
      isAwaiting: () => this.#members.some(({ task }) => task !== null),
      failed: this.#wake,
    })
  }

  get pool(): FleetPool | undefined {
    return this.#learner.pool
  }

  get failure(): Error | null {
    return this.#learner.failure
  }

  async start(update: number, signal?: AbortSignal): Promise<{ end(): boolean }> {
    this.#permitted = update
    this.#updates = update
    await this.#learner.start(signal)
    return endingOf(this.#learner)
  }

  async #begin(): Promise<void> {
    const update = this.#updates
    const { cohort, numMembers } = this.#parts
    const { store } = this.#learner.opened!
    this.#members.length = 0
    this.#unsettled.clear()
    for (let member = 0; member < numMembers; member++) {
      const before = await store.put(await stateToBytes(cohort, update, this.#shareOf(member)))
      this.#members.push({ collected: update, before, write: null, task: null, held: new Map(), waited: 0 })
    }
    // A restored learner has the weights of these versions, with which the parts ahead are collected.
    const { published } = cohort.ahead!
    this.#weights.clear()
    for (let version = Math.max(0, update - published.length + 1); version < update; version++) {
      this.#weights.set(version, await store.put(this.#weightsOf(version)))
    }
  }

  #stepsOf(update: number): number {
    const { numSteps, numLanes } = this.#parts.cohort
    return update * numSteps * numLanes
  }

  #shareOf(member: number) {
    return shareOfMember(this.#parts.cohort, member, this.#parts.numMembers)
  }

  #weightsOf(version: number): Uint8Array {
    const { published } = this.#parts.cohort.ahead!
    const { buffer, byteOffset, byteLength } = published[version % published.length]!
    return new Uint8Array(buffer, byteOffset, byteLength).slice()
  }

  #live(): string[] {
    const held = [...this.#unsettled.values(), ...this.#members.flatMap((member) => [...member.held.values()])].flat()
    return [
      ...this.#weights.values(),
      // An actor that takes an unfinished task over begins with its first rollout.
      ...this.#members.flatMap(({ before, task, collected }) => {
        return task !== null && collected < task.until ? [before, task.before] : [before]
      }),
      ...held.flatMap(({ result }) => [result.rows, result.before, result.after]),
    ]
  }

  async #accept(item: Item): Promise<void> {
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

  #discard({ item, result }: Held): void {
    this.#learner.discard(item, result.rows, result.before)
  }

  permit(version: number, permitted: number): void {
    this.#version = version
    this.#permitted = permitted
    this.#learner.do(async () => {
      this.#weights.set(version, await this.#learner.put(this.#weightsOf(version)))
      const oldest = version - this.#parts.cohort.ahead!.published.length
      for (const [each, hash] of this.#weights) {
        if (each >= oldest) continue
        this.#weights.delete(each)
        await this.#learner.drop(hash)
      }
      for (let member = 0; member < this.#members.length; member++) await this.#pump(member)
      await this.#learner.report()
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
    while (member.collected < this.#permitted && this.#learner.opened !== null) {
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
    const id = `${this.#learner.session}.${this.#tasks++}`
    const { before, task: former } = member
    member.task = { id, member: number, from: rollout, until, version, weights, before, since: now() }
    const { since: _, ...task } = member.task
    await this.#learner.opened!.tasks.put(id, messageOf(task))
    if (former !== null) await this.#learner.drop(former.before)
  }

  /** Writes a result into the columns; false if the store has lost it. */
  async #take(number: number, rollout: number, held: Held): Promise<boolean> {
    const { cohort, numMembers } = this.#parts
    const { store } = this.#learner.opened!
    const { result } = held
    const share = this.#shareOf(number)
    try {
      const [rows, after] = await Promise.all([store.get(result.rows), store.get(result.after)])
      await rowsFromBytes(cohort, rollout, number, share, rows)
      this.#members[number]!.write = await readState(cohort, share, after)
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
    this.#writeStates()
    this.#wake()
    return true
  }

  /** Writes the states whose place is free: that of a rollout is, when the one that had it before has been learned from. */
  #writeStates(): void {
    const numPlaces = this.#parts.cohort.ahead!.beginnings.length
    for (const member of this.#members) {
      if (member.write === null || member.collected >= this.#updates + numPlaces) continue
      member.write(member.collected)
      member.write = null
    }
  }

  collected(member: number): number {
    return this.#members[member]!.collected
  }

  async arrival(member: number, collected: number, _: number, signal?: AbortSignal): Promise<void> {
    if (this.failure !== null || this.collected(member) > collected) return
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
    this.#updates = update + 1
    this.#writeStates()
    this.#times.delete(update)
    if (this.#options.acknowledge === 'update') this.#settle(this.#updates)
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

  hold(): void {}

  fail(reason: Error): void {
    this.#learner.fail(reason)
  }

  close(): Promise<void> {
    return this.#learner.close()
  }
}

/** Ends a learner without holding its trainer. */
function endingOf(learner: FleetLearner): { end(): boolean } {
  return {
    end: () => {
      const isOpen = learner.opened !== null
      void learner.close()
      return isOpen
    },
  }
}

function now(): number {
  return performance.timeOrigin + performance.now()
}
