/**
 * An actor of a fleet: it reads the run's description, collects the parts that it takes from the queue, and puts their rows into the store.
 * If it is killed, only the part that it was collecting is lost, and another actor collects it.
 */
import { hostname } from 'node:os'
import { thrownText } from '../../base/errors.ts'
import type { Bus, Item, Queue, Values } from '../../fleet/bus/bus.ts'
import { BlobError } from '../../fleet/store/store.ts'
import type { ActorWork, WorkTools } from './actor-work.ts'
import type { JoinedRun } from './description.ts'
import { EpisodeWork } from './episode-work.ts'
import { FleetMember, type MemberOptions } from './fleet-member.ts'
import { GroupWork } from './group-work.ts'

/** Milliseconds between two reports. */
const REPORT_MS = 1000
/** How often a part may fail before the error goes to the learner. */
const FAILURES_MAX = 3
/** How often a part is given to actors while the store lacks a blob that it needs: then the learner decides whether it still wants it. */
const MISSING_MAX = 10
/** Seconds before a part is tried again after the store or the bus refused it, for example because it is full. */
const AGAIN_SECONDS = 3

/** Options of an actor of a fleet. */
export type ActorOptions = MemberOptions

/** The work that an actor did. */
export interface ActorSummary {
  readonly actor: string
  /** Parts of rollouts, or of the groups of an update. */
  readonly rollouts: number
  /** Environment steps, or tokens that a language model chose. */
  readonly steps: number
  readonly failures: number
  readonly end: FleetMember['end']
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
  #work: ActorWork | null = null
  readonly #told = { rollouts: 0, steps: 0, failures: 0, seconds: 0, version: 0, lanes: 0, lastError: '' }

  constructor(bus: Bus, options: ActorOptions) {
    this.#member = new FleetMember(bus, options)
  }

  async run(): Promise<ActorSummary> {
    const member = this.#member
    try {
      await member.follow((run) => this.#collect(run))
    } finally {
      this.#work?.close()
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
    this.#work?.close()
    this.#work = joined.description.kind === 'episodes' ? await EpisodeWork.open(joined) : await GroupWork.open(joined)
    this.#member.options.tell?.(`collects ${this.#work.description}`)
  }

  async #do(item: Item, results: Queue, seconds: number, waited: number): Promise<void> {
    const extend = setInterval(() => item.extend(), (1000 * seconds) / 4)
    const work = this.#work!
    let isOurs = false // Otherwise the store or the bus failed, which others may mend.
    const tools: WorkTools = {
      actor: this.#member.name,
      store: this.#member.store!,
      waited,
      put: async (id, result, { version, lanes, steps, seconds }) => {
        await results.put(id, result)
        Object.assign(this.#told, { version, lanes, rollouts: this.#told.rollouts + 1 })
        this.#told.steps += steps
        this.#told.seconds += seconds
      },
      during: async (doing) => {
        isOurs = true
        const made = await doing()
        isOurs = false
        return made
      },
    }
    try {
      await work.collect(item.value, tools)
      await item.acknowledge()
    } catch (error) {
      work.forget(item.value)
      this.#told.failures++
      this.#told.lastError = thrownText(error)
      this.#member.options.tell?.(`part ${item.value.id}: ${this.#told.lastError}`)
      const isMissing = error instanceof BlobError && error.isMissing
      const most = isOurs ? FAILURES_MAX : isMissing ? MISSING_MAX : Number.POSITIVE_INFINITY
      if (item.deliveries < most) return item.release(isOurs ? 1 : AGAIN_SECONDS)
      await results.put(`${item.value.id}.failed`, work.failed(item.value, this.#told.lastError, tools))
      await item.acknowledge()
    } finally {
      clearInterval(extend)
    }
  }

  async #report(actors: Values): Promise<void> {
    await actors.put(this.#member.name, { ...this.#told, host: hostname(), at: Date.now() })
  }
}
