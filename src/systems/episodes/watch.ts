/**
 * Checks the first rollouts of a training: each environment call is verified as in `checkEnvironment`, but in the training's columns. An
 * environment that overwrites its inputs, writes other lanes' rows, omits elements or writes to columns of an earlier step ends the
 * training at once. The checks do not change training data.
 *
 * While one thread is checked, other threads rest, so that any change of their rows was made by this thread's environment. Actors cannot
 * rest, so there each thread checks only its own rows.
 */
import { InputError } from '../../base/errors.ts'
import type { Column } from '../../components/column.ts'
import { Phase } from '../../components/episode.ts'
import type { ObservationColumn } from '../../components/observation.ts'
import {
  type Call,
  type CalledLanes,
  expectWritten,
  Fault,
  fillRow,
  isSame,
  isWritten,
  UNWRITTEN_BYTE,
  UNWRITTEN_NUMBER,
  unwrittenIn,
  watchCall,
  where,
  writtenOf,
} from '../../environments/checks/check-written.ts'
import { type EnvironmentDefinition, type Lanes, refusedReturn } from '../../environments/environment.ts'
import type { EpisodeCohort, WatchedCalls } from '../../world/episodes/cohort.ts'

/** Bytes of copies after which a thread stops checking, to limit the delay to some tenths of a second. */
const BYTES_MAX = 2 ** 29

/** Copies of the environment's inputs in a tick. */
interface Kept {
  readonly t: number
  readonly copies: Record<string, Column>
}

/** Checks the calls of a cohort's environment in this thread. */
export class EnvironmentWatch implements CalledLanes, WatchedCalls {
  readonly environment: EnvironmentDefinition
  readonly numLanes: number
  readonly lanes: Lanes<unknown, ObservationColumn>
  readonly unwritten: number
  readonly number: number
  readonly #cohort: EpisodeCohort
  readonly #isAlone: boolean
  /** Whether only the environment and the four systems write observations: no custom systems and no births. */
  readonly #isSole: boolean
  /** The rows that the last step had to write, and their contents since the last call. */
  readonly #acted: Uint8Array
  #seen: Record<string, Column> | null = null
  #kept: Kept[] = []
  #tick = 0
  #bytes = 0

  /** `number` identifies rollouts that are checked together. `isAlone`: other threads rest during calls. */
  constructor(cohort: EpisodeCohort, number: number, isAlone: boolean) {
    const { environment, numLanes, environmentLanes, systems } = cohort
    this.environment = environment
    this.numLanes = numLanes
    this.lanes = environmentLanes
    this.unwritten = unwrittenIn(environment)
    this.number = number
    this.#cohort = cohort
    this.#isAlone = isAlone
    this.#isSole = environmentLanes.died.length === 0 && systems.length === 0
    this.#acted = new Uint8Array(numLanes)
  }

  get first(): number {
    return this.#isAlone ? 0 : this.#cohort.from
  }

  get end(): number {
    return this.#isAlone ? this.numLanes : this.#cohort.to
  }

  isOver(n: number): boolean {
    const { terminated, truncated } = this.lanes
    return (terminated[n]! | truncated[n]!) !== 0
  }

  step(run: () => unknown): unknown {
    if (this.#bytes > BYTES_MAX) return run()
    const { from, to, observation, actionMask, transition, episode, late, t, sliding } = this.#cohort
    return this.#tell(() => {
      this.#expectSeen()
      for (let n = from; n < to; n++) {
        this.#acted[n] = episode.phase[n] === Phase.ready ? 1 : 0
        if (this.#acted[n] === 0) continue
        this.#unwrite(n)
        transition.reward[n] = UNWRITTEN_NUMBER
      }
      const current = { observation: observation.current, actionMask: actionMask.current }
      if (t === 0) this.#kept = []
      if (sliding && this.#isSole) this.#kept.push({ t, copies: this.#copyShare(current) })
      const isWhole = from === this.first && to === this.end
      const isAsked = isWhole ? null : (n: number) => n >= from && n < to
      const returned = this.#watch({ by: 'step', isAsked, aside: sliding ? current : {} }, run)
      if (refusedReturn('step', returned) !== null) return returned // The step system reports it.
      for (const n of late.rows()) this.#acted[n] = 0
      if (!isWritten(this, 'step', [from, to])) {
        for (let n = from; n < to; n++) if (this.#acted[n] === 1) expectWritten(this, 'step', n)
      }
      this.#keepSeen()
      this.#tick++
      return returned
    })
  }

  reset(rows: Uint32Array, count: number, run: () => unknown): unknown {
    if (this.#bytes > BYTES_MAX) return run()
    return this.#tell(() => {
      if (this.lanes.observation === this.#cohort.observation.current) this.#expectSeen()
      const isListed = new Uint8Array(this.numLanes)
      for (let i = 0; i < count; i++) {
        isListed[rows[i]!] = 1
        this.#unwrite(rows[i]!)
      }
      const returned = this.#watch({ by: 'reset', isAsked: (n) => isListed[n] === 1, aside: {} }, run)
      if (refusedReturn('reset', returned) !== null) return returned
      for (let i = 0; i < count; i++) expectWritten(this, 'reset', rows[i]!)
      this.#keepSeen()
      return returned
    })
  }

  /** Calls the environment and counts the bytes copied for it. */
  #watch(call: Call, run: () => unknown): unknown {
    const columns = call.isAsked === null ? Object.values(call.aside) : Object.values(writtenOf(this))
    this.#bytes += columns.reduce((sum, { byteLength }) => sum + byteLength, 0)
    return watchCall(this, call, run)
  }

  #tell(work: () => unknown): unknown {
    try {
      return work()
    } catch (error) {
      if (!(error instanceof Fault)) throw error
      throw new InputError(`environment ${this.environment.id}`, `${error.got}, in tick ${this.#tick}`, error.expected)
    }
  }

  /** Marks lane n's observation and mask as unwritten. */
  #unwrite(n: number): void {
    fillRow(this.lanes.observation, n, this.numLanes, this.unwritten)
    fillRow(this.lanes.actionMask, n, this.numLanes, UNWRITTEN_BYTE)
  }

  conclude(): void {
    const { windows, environment } = this.#cohort
    for (const { t, copies } of this.#kept) {
      const { observation, actionMask } = windows
      const now = { observation: observation[t]!.current, actionMask: actionMask[t]?.current ?? new Uint8Array(0) }
      const changed = this.#changedRow(copies, now, () => true)
      if (changed === null) continue
      const got = `another ${changed.name} of lane ${this.lanes.lane[changed.n]} in row block ${t} of the rollout, changed after its step`
      throw new InputError(`environment ${environment.id}`, got, KEEPS_NONE)
    }
    this.#kept = []
  }

  /** Checks that observations and masks have not changed since the last call. */
  #expectSeen(): void {
    if (this.#seen === null || !this.#isSole) return
    const { observation, actionMask } = this.#cohort
    const now = { observation: observation.current, actionMask: actionMask.current }
    const changed = this.#changedRow(this.#seen, now, (n) => this.#acted[n] === 1)
    if (changed === null) return
    const { name, n } = changed
    throw new Fault('aliasing', `another ${name} of ${where(this, n)}, changed after step returned`, KEEPS_NONE)
  }

  #keepSeen(): void {
    const { observation, actionMask } = this.lanes
    if (this.#isSole) this.#seen = this.#copyShare({ observation, actionMask })
  }

  /** The first row of this thread's share in which a column differs from its copy. */
  #changedRow(
    copies: Record<string, Column>,
    now: Record<string, Column>,
    isLooked: (n: number) => boolean,
  ): { name: string; n: number } | null {
    const { from, to } = this.#cohort
    for (const [name, copy] of Object.entries(copies)) {
      const column = this.#share(now[name]!)
      if (isSame(column, copy)) continue
      const width = copy.length / (to - from)
      for (let at = 0; at < copy.length; at++) {
        const n = from + Math.floor(at / width)
        if (!Object.is(column[at], copy[at]) && isLooked(n)) return { name, n }
      }
    }
    return null
  }

  #share(column: Column): Column {
    const { from, to } = this.#cohort
    const width = column.length / this.numLanes
    return column.subarray(from * width, to * width)
  }

  #copyShare(columns: Record<string, Column>): Record<string, Column> {
    const copies = Object.entries(columns).map(([name, column]) => [name, this.#share(column).slice()] as const)
    this.#bytes += copies.reduce((sum, [, copy]) => sum + copy.byteLength, 0)
    return Object.fromEntries(copies)
  }
}

const KEEPS_NONE = 'writes only to the columns passed to a call, before it returns'
