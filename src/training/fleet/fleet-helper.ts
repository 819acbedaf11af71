/**
 * A helper of a fleet's learner: it computes shares of the learner's gradients. If it is killed, the learner computes its share, with the
 * same bits.
 */

import { hostname } from 'node:os'
import { thrownText } from '../../base/errors.ts'
import type { Bus, Values } from '../../fleet/bus/bus.ts'
import { BlobError } from '../../fleet/store/store.ts'
import type { JoinedRun } from './description.ts'
import { FleetMember, type MemberOptions } from './fleet-member.ts'
import {
  columnsFromBytes,
  columnsToBytes,
  GRADIENTS,
  type GradientTask,
  HELPER,
  type HelperReport,
} from './fleet-pool.ts'
import { type GradientWork, openGradientWork } from './gradient-work.ts'

const REPORT_MS = 1000
/** Failed tasks in a row after which the helper ends with the error. */
const FAILURES_MAX = 3

/** The work that a helper did. */
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
  #work: GradientWork | null = null
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
      this.#work?.close()
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
    this.#work?.close()
    this.#work = null
    this.#work = await openGradientWork(joined)
    const { shareCount, description } = this.#work
    this.#loaded = {}
    this.#report = { session: joined.description.session, task: '', results: {}, error: null }
    this.#member.options.tell?.(`helps to learn by ${description}: up to ${shareCount - 1} of ${shareCount} shares`)
  }

  /** Computes shares of a task and reports their results. Returns its error, or null. */
  async #compute(task: GradientTask, shares: readonly number[]): Promise<unknown> {
    const { store, options } = this.#member
    const { id, inputs, numbers } = task
    const { help, shareCount } = this.#work!
    const results: Record<string, string> = {}
    try {
      for (const [name, hash] of Object.entries(inputs)) {
        if (this.#loaded[name] === hash) continue
        delete this.#loaded[name]
        help.take(name, columnsFromBytes(`${name} of the learner`, await store!.get(hash)))
        this.#loaded[name] = hash
      }
      for (const share of shares) {
        const made = await help.compute(numbers, share, shareCount)
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
