/**
 * A helper of a fleet's learner: it computes shares of the learner's gradients. If it is killed, the learner computes its share, with the
 * same bits.
 */

import { hostname } from 'node:os'
import type { GradientHelp } from '../../algorithms/shared-gradient.ts'
import { InputError, thrownText } from '../../base/errors.ts'
import { alone } from '../../base/parted.ts'
import type { Bus, Values } from '../../fleet/bus/bus.ts'
import { BlobError } from '../../fleet/store/store.ts'
import { openWorld, type World } from '../../world/world.ts'
import { agentsPlan, createAgents, draftOf } from '../loop/agents.ts'
import type { JoinedRun } from './description.ts'
import { episodeOptions } from './episode-work.ts'
import { FleetMember, type MemberOptions } from './fleet-member.ts'
import {
  columnsFromBytes,
  columnsToBytes,
  GRADIENTS,
  type GradientTask,
  HELPER,
  type HelperReport,
} from './fleet-pool.ts'

const REPORT_MS = 1000
/** Failed tasks in a row after which the helper ends with the error. */
const FAILURES_MAX = 3

/** What a helper did. */
export interface HelperSummary {
  readonly helper: string
  /** Computed shares of gradients. */
  readonly shares: number
  readonly failures: number
  readonly end: FleetMember['end']
}

/**
 * Helps the learner of the run on this bus, until the run ends or it is drained.
 * @throws InputError for a run of another version of Colonnade, of other code, or without helpers.
 */
export async function runHelper(bus: Bus, options: MemberOptions = {}): Promise<HelperSummary> {
  let sum = { shares: 0, failures: 0 }
  for (;;) {
    const { shares, failures, ...last } = await new FleetHelper(bus, options).run()
    sum = { shares: sum.shares + shares, failures: sum.failures + failures }
    if (options.stay !== true || last.end !== 'run') return { ...last, ...sum }
  }
}

class FleetHelper {
  readonly #member: FleetMember
  #world: World | null = null
  #help: GradientHelp | null = null
  #shareCount = 1
  /** Hashes of the inputs in the columns. */
  #loaded: Record<string, string> = {}
  #report: Omit<HelperReport, 'host' | 'shares' | 'failures'> = { session: '', task: '', results: {}, error: null }
  #task: GradientTask | null = null
  #wake: () => void = () => {}
  readonly #sum = { shares: 0, failures: 0 }

  constructor(bus: Bus, options: MemberOptions) {
    this.#member = new FleetMember(bus, options)
  }

  async run(): Promise<HelperSummary> {
    const { name } = this.#member
    try {
      await this.#member.follow((run) => this.#assist(run))
    } finally {
      this.#world?.close()
    }
    return { helper: name, ...this.#sum, end: this.#member.end }
  }

  async #assist(run: Values): Promise<void> {
    const { bus, name, signal } = this.#member
    const key = `${HELPER}${name}`
    await this.#member.joined(run, (joined) => this.#join(joined))
    const values = await bus.values(GRADIENTS, { isOwner: false })
    const wake = () => this.#wake()
    const unwatch = await values.watch((changed, value) => {
      if (changed !== 'task') return
      this.#task = value as unknown as GradientTask | null
      wake()
    })
    signal.addEventListener('abort', wake)
    const reports = setInterval(wake, REPORT_MS)
    try {
      for (let failures = 0; !signal.aborted; ) {
        await this.#member.joined(run, (joined) => this.#join(joined))
        const task = this.#task
        this.#task = null
        const shares = task === null ? [] : [...task.helpers.keys()].filter((share) => task.helpers[share] === key)
        if (shares.length > 0) {
          const error = await this.#compute(task!, shares)
          failures = error === null ? 0 : failures + 1
          if (failures === FAILURES_MAX) throw error
        }
        await values.put(key, { ...this.#report, ...this.#sum, host: hostname() })
        if (this.#task !== null || signal.aborted) continue
        await new Promise<void>((resolve) => {
          this.#wake = resolve
        })
      }
    } finally {
      clearInterval(reports)
      signal.removeEventListener('abort', wake)
      unwatch()
      await values.remove(key)
    }
  }

  async #join(joined: JoinedRun): Promise<void> {
    this.#world?.close()
    const { description, kernels } = joined
    if (description.kind !== 'episodes' || description.gradients === null) {
      throw new InputError(
        'role',
        'learn, in a run whose learner computes gradients alone',
        'a run with learners=2 or more',
      )
    }
    const { seed, session, gradients, cohort } = description
    const algorithm = await joined.algorithm(gradients.algorithm)
    const world = await openWorld({ cohorts: [episodeOptions(joined)], seed, kernels })
    this.#world = world
    const draft = draftOf(world, cohort.name)
    world.reserve(draft, { numSteps: cohort.numSteps, learner: agentsPlan(world, draft, algorithm) })
    this.#help = createAgents(world, cohort.name, algorithm, alone)[0]!.learners[0]!.help!
    this.#shareCount = gradients.shareCount
    this.#loaded = {}
    this.#report = { session, task: '', results: {}, error: null }
    this.#member.options.tell?.(
      `helps to learn by ${algorithm.id}: up to ${this.#shareCount - 1} of ${this.#shareCount} shares`,
    )
  }

  /** Computes shares of a task and reports their results. Returns its error, or null. */
  async #compute(task: GradientTask, shares: readonly number[]): Promise<unknown> {
    const { store, options } = this.#member
    const { id, inputs, numbers } = task
    const help = this.#help!
    const results: Record<string, string> = {}
    try {
      for (const [name, columns] of Object.entries(help.inputs)) {
        const hash = inputs[name]!
        if (this.#loaded[name] === hash) continue
        delete this.#loaded[name]
        columnsFromBytes(`${name} of the learner`, await store!.get(hash), columns)
        this.#loaded[name] = hash
      }
      for (const share of shares) {
        const made = await help.compute(numbers, share, this.#shareCount)
        results[share] = await store!.put(columnsToBytes(made))
        this.#sum.shares++
      }
      this.#report = { ...this.#report, task: id, results, error: null }
      return null
    } catch (error) {
      this.#sum.failures++
      const text = thrownText(error)
      options.tell?.(`gradient ${id}: ${text}`)
      this.#report = { ...this.#report, task: id, results: {}, error: text }
      return error instanceof BlobError ? null : error // The learner has gone on without it.
    }
  }
}
