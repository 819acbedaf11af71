/**
 * Trajectories: finished conversations of any length, in columns with a row per trajectory or per token. The tokens of trajectory i are
 * at offsets[i] … offsets[i + 1] − 1, as in Arrow lists. A trainer's trajectories are in a planned log of fixed size; others are in
 * growing columns. Nothing is dropped.
 *
 * A conversation is one row, or several if the chat template rewrote earlier text: then each row is a segment with all of its ids, and
 * the segments of a conversation are adjacent.
 */
import { checkCount, checkGiven, InputError, show } from '../../base/errors.ts'
import type { StopReason } from '../../environments/text.ts'
import {
  checkTrajectory,
  eachOf,
  ROW_COLUMNS,
  type RowColumn,
  type TOKEN_COLUMNS,
  type Trajectory,
  type TurnForm,
} from './trajectory.ts'
import { TrajectoryLog, type TrajectoryLogColumns } from './trajectory-log.ts'

/** Views of the columns, valid until the next row is appended or all are removed. */
export interface TrajectoryColumns extends Readonly<Record<RowColumn, Int32Array>> {
  readonly offsets: Int32Array
  readonly token: Int32Array
  readonly lossMask: Uint8Array
  readonly logprob: Float32Array
  readonly version: Int32Array
  readonly turn: Int32Array
  readonly candidateCount: Int32Array
  /** Of trajectory i: candidateIds[candidateOffsets[i]] to candidateIds[candidateOffsets[i + 1]]. */
  readonly candidateIds: Int32Array
  readonly candidateOffsets: Int32Array
  readonly source: readonly string[]
  readonly stopReason: readonly StopReason[]
  /** 0 if `known` is 0. */
  readonly reward: Float64Array
  readonly known: Uint8Array
  readonly error: readonly (string | null)[]
  /** The constrained turns of each trajectory. */
  readonly forms: readonly (readonly TurnForm[])[]
  /** Of trajectory i: turnReward[turnRewardOffsets[i]] to turnReward[turnRewardOffsets[i + 1]]; empty if not recorded. */
  readonly turnReward: Float64Array
  readonly turnRewardOffsets: Int32Array
  /** NaN if the trajectory has none yet. */
  readonly advantage: Float64Array
  readonly components: ReadonlyMap<string, readonly (number | null)[]>
}

/**
 * Trajectories in a custom order: the row columns are reordered, the token columns stay in place. The tokens of trajectory i are begin[i]
 * … end[i] − 1, and its candidate ids begin at candidateBegin[i].
 */
export interface TrajectoryRows
  extends Omit<TrajectoryColumns, 'offsets' | 'candidateOffsets' | 'turnReward' | 'turnRewardOffsets'> {
  readonly begin: Int32Array
  readonly end: Int32Array
  readonly candidateBegin: Int32Array
}

const NO_FORMS: readonly TurnForm[] = []
/** Fields that are equal in two rows of one conversation. */
const CONVERSATION_IDS = ['promptId', 'group', 'member', 'epoch'] as const
type TrajectoryId = Pick<Trajectory, 'source' | RowColumn>

/** The offsets of rows `from` to `to`, rebased to 0; the column itself if they already start at 0. */
function offsetsOf(offsets: Int32Array, from: number, to: number): Int32Array {
  const some = offsets.subarray(from, to + 1)
  return some[0] === 0 ? some : some.map((offset) => offset - some[0]!)
}

function numbersAt(columns: Record<RowColumn, Int32Array>, row: number): Record<RowColumn, number> {
  return eachOf(ROW_COLUMNS, (name) => columns[name][row]!)
}

/** The columns of tokens from … to − 1. */
export function tokensAt(columns: Pick<TrajectoryColumns, (typeof TOKEN_COLUMNS)[number]>, from: number, to: number) {
  const { token, lossMask, logprob, version, turn } = columns
  return {
    token: token.subarray(from, to),
    lossMask: lossMask.subarray(from, to),
    logprob: logprob.subarray(from, to),
    version: version.subarray(from, to),
    turn: turn.subarray(from, to),
  }
}

/** Trajectories in the order in which they were appended. */
export class Trajectories {
  #numConversations = 0
  readonly #log: TrajectoryLog
  #source: string[] = []
  #stopReason: StopReason[] = []
  #error: (string | null)[] = []
  #forms: (readonly TurnForm[])[] = []
  readonly #components = new Map<string, (number | null)[]>()

  /** Uses the columns of a planned log (`trajectoryLogPlan`), or growing columns on the heap. */
  constructor(planned: TrajectoryLogColumns | null = null) {
    this.#log = new TrajectoryLog(planned)
  }

  get count(): number {
    return this.#source.length
  }

  /** Number of rows that begin a conversation. */
  get numConversations(): number {
    return this.#numConversations
  }

  get numTokens(): number {
    const { offsets } = this.#log.columns
    return this.#log.runs.reduce((sum, { from, to }) => sum + offsets[to]! - offsets[from]!, 0)
  }

  /**
   * Appends a copy of one trajectory. On an error nothing changes.
   * @throws InputError with the invalid field: token columns of different lengths, no token, ids that are not whole numbers, a loss mask
   * other than 0 and 1, a reward or component that is not finite, a logprob that is not a number although the token's version is known, a
   * segment that does not follow the previous one; and if a planned log is full.
   */
  append(trajectory: Trajectory): void {
    if (this.appendConversation([trajectory])) return
    const expected = 'a row for which the log has room'
    throw new InputError('trajectories', `a row of ${trajectory.token.length} tokens`, expected)
  }

  /**
   * Appends copies of rows that belong together, all or none. Returns false if a planned log has no room for them; remove rows first.
   * @throws InputError as `append` does, except for a full log.
   */
  appendConversation(rows: readonly Trajectory[]): boolean {
    for (const row of rows) checkTrajectory(row)
    for (const [i, row] of rows.entries()) this.#checkSegment(row, i === 0 ? this.#last() : rows[i - 1]!)
    if (!this.#log.reserve(rows)) return false
    for (const row of rows) this.#append(row)
    return true
  }

  #append(trajectory: Trajectory): void {
    const { source = '', segment = 0, error, stopReason, components, forms = NO_FORMS } = trajectory
    const row = this.count
    this.#log.write(trajectory)
    this.#source.push(source)
    this.#stopReason.push(stopReason)
    this.#error.push(error)
    this.#forms.push(forms)
    for (const name of Object.keys(components)) {
      if (!this.#components.has(name)) this.#components.set(name, new Array(row).fill(null))
    }
    for (const [name, values] of this.#components) values.push(components[name] ?? null)
    if (segment === 0) this.#numConversations++
  }

  #last(): TrajectoryId | null {
    const last = this.count - 1
    if (last < 0) return null
    const { columns } = this.#log
    const row = this.#log.at(last)
    return { ...numbersAt(columns, row), source: this.#source[last]! }
  }

  /** Rejects a segment without the previous one: the rows of a conversation must be adjacent, so that it is counted once. */
  #checkSegment({ segment = 0, ...trajectory }: TrajectoryId, last: TrajectoryId | null): void {
    if (segment === 0) return
    const isNext =
      last !== null &&
      (last.segment ?? 0) === segment - 1 &&
      (last.source ?? '') === (trajectory.source ?? '') &&
      CONVERSATION_IDS.every((name) => last[name] === trajectory[name])
    if (isNext) return
    const subject = `trajectory of group ${show(trajectory.group)}, member ${show(trajectory.member)}`
    throw new InputError(subject, `segment ${segment}`, `segment ${segment - 1} of its conversation first`)
  }

  /** Removes all rows; the memory is kept. */
  clear(): void {
    this.forget(this.count)
    this.#components.clear()
  }

  /**
   * Removes the `count` oldest rows, which makes room in a planned log.
   * @throws InputError for more rows than there are, and a count that would split a conversation.
   */
  forget(count: number): void {
    checkCount('rows to forget', count, 0, this.count)
    const { segment } = this.#log.columns
    if (count < this.count && segment[this.#log.at(count)] !== 0) {
      throw new InputError('rows to forget', `${count}, which splits a conversation`, 'whole conversations')
    }
    for (let i = 0; i < count; i++) if (segment[this.#log.at(i)] === 0) this.#numConversations--
    this.#log.forget(count)
    for (const list of [this.#source, this.#stopReason, this.#error, this.#forms, ...this.#components.values()]) {
      list.splice(0, count)
    }
  }

  /** Removes all rows except these, which keep their order but lose their advantages. */
  keep(rows: readonly number[]): void {
    const kept = rows.toSorted((a, b) => a - b)
    if (this.#log.runs.length > 1) {
      const copy = this.take(kept)
      this.clear()
      for (let i = 0; i < copy.count; i++) this.append(copy.row(i))
      return
    }
    this.#log.keep(kept.map((i) => this.#log.at(i)))
    this.#source = kept.map((i) => this.#source[i]!)
    this.#stopReason = kept.map((i) => this.#stopReason[i]!)
    this.#error = kept.map((i) => this.#error[i]!)
    this.#forms = kept.map((i) => this.#forms[i]!)
    for (const [name, values] of this.#components) {
      this.#components.set(
        name,
        kept.map((i) => values[i]!),
      )
    }
    const { segment } = this.#log.columns
    this.#numConversations = kept.filter((_, i) => segment[this.#log.at(i)] === 0).length
  }

  /** Sets the trajectories' advantages, a number each; NaN for one that is not learned from. */
  setAdvantages(advantage: ArrayLike<number>): void {
    if (advantage.length !== this.count) {
      throw new InputError('advantages', `${advantage.length} numbers`, `${this.count}, one a trajectory`)
    }
    for (let i = 0; i < this.count; i++) {
      if (Math.abs(advantage[i]!) === Number.POSITIVE_INFINITY) {
        const expected = 'a finite number, or NaN to exclude the row'
        throw new InputError(`advantage of row ${i}`, String(advantage[i]), expected)
      }
    }
    for (let i = 0; i < this.count; i++) this.#log.columns.advantage[this.#log.at(i)] = advantage[i]!
  }

  /** The current columns as views; copies if a planned log has wrapped around. */
  columns(): TrajectoryColumns {
    const all = Array.from({ length: this.count }, (_, i) => i)
    if (this.#log.runs.length > 1) return this.take(all).columns()
    return this.#stretch(0, this.count)
  }

  /** These rows in this order, without copying token columns: a table of columns for each stretch of adjacent rows. */
  stretches(order: readonly number[]): TrajectoryColumns[] {
    const begins = order.flatMap((row, i) => {
      const isNext = i > 0 && row === order[i - 1]! + 1 && this.#log.at(row) === this.#log.at(row - 1) + 1
      return isNext ? [] : [i]
    })
    return begins.map((begin, k) => {
      const count = (begins[k + 1] ?? order.length) - begin
      return this.#stretch(order[begin]!, order[begin]! + count)
    })
  }

  /** The columns of adjacent rows `begin` … `end` − 1 of the log. */
  #stretch(begin: number, end: number): TrajectoryColumns {
    const { columns } = this.#log
    const { reward, known, advantage } = columns
    const from = this.#log.at(begin)
    const to = from + end - begin
    const tokens = [columns.offsets[from]!, columns.offsets[to]!] as const
    const isAll = begin === 0 && end === this.count
    const some = <T>(list: readonly T[]): readonly T[] => (isAll ? list : list.slice(begin, end))
    return {
      offsets: offsetsOf(columns.offsets, from, to),
      ...tokensAt(columns, ...tokens),
      candidateCount: columns.candidateCount.subarray(...tokens),
      candidateIds: columns.candidateIds.subarray(columns.candidateOffsets[from], columns.candidateOffsets[to]),
      candidateOffsets: offsetsOf(columns.candidateOffsets, from, to),
      source: some(this.#source),
      ...eachOf(ROW_COLUMNS, (name) => columns[name].subarray(from, to)),
      stopReason: some(this.#stopReason),
      reward: reward.subarray(from, to),
      known: known.subarray(from, to),
      error: some(this.#error),
      forms: some(this.#forms),
      turnReward: columns.turnReward.subarray(columns.turnRewardOffsets[from], columns.turnRewardOffsets[to]),
      turnRewardOffsets: offsetsOf(columns.turnRewardOffsets, from, to),
      advantage: advantage.subarray(from, to),
      components: isAll
        ? this.#components
        : new Map([...this.#components].map(([name, values]) => [name, some(values)])),
    }
  }

  /** Trajectory i; its token columns are views. */
  row(i: number): Trajectory {
    if (!(Number.isInteger(i) && i >= 0 && i < this.count)) {
      throw new InputError('trajectory', show(i), `a whole number below ${this.count}`)
    }
    const { columns } = this.#log
    const row = this.#log.at(i)
    const [from, to] = [columns.offsets[row]!, columns.offsets[row + 1]!]
    return {
      source: this.#source[i]!,
      ...numbersAt(columns, row),
      stopReason: this.#stopReason[i]!,
      reward: columns.known[row] === 1 ? columns.reward[row]! : null,
      error: this.#error[i]!,
      ...(this.#forms[i]!.length === 0 ? {} : { forms: this.#forms[i]! }),
      ...turnRewardOf(columns, row),
      components: Object.fromEntries([...this.#components].map(([name, values]) => [name, values[i]!])),
      ...tokensAt(columns, from, to),
      ...candidatesOf(columns, row),
    }
  }

  /** The rows sorted by source, epoch, group, prompt, member and segment, independent of which finished first. */
  order(): number[] {
    const { promptId, epoch, group, member } = this.#log.columns
    const source = this.#source
    const at = Array.from({ length: this.count }, (_, i) => this.#log.at(i))
    return Array.from(at, (_, i) => i).sort((i, j) => {
      const [a, b] = [at[i]!, at[j]!]
      return (
        compareText(source[i]!, source[j]!) ||
        epoch[a]! - epoch[b]! ||
        group[a]! - group[b]! ||
        promptId[a]! - promptId[b]! ||
        member[a]! - member[b]! ||
        i - j
      )
    })
  }

  /** These rows in this order, with tokens in place; valid as long as the columns are. */
  rows(order: readonly number[]): TrajectoryRows {
    const { columns } = this.#log
    const { token, lossMask, logprob, version, turn, candidateCount, candidateIds, offsets, candidateOffsets } = columns
    const places = order.map((i) => this.#log.at(i))
    const picked = (column: Int32Array, next = 0) => Int32Array.from(places, (row) => column[row + next]!)
    return {
      ...{ token, lossMask, logprob, version, turn, candidateCount, candidateIds },
      begin: picked(offsets),
      end: picked(offsets, 1),
      candidateBegin: picked(candidateOffsets),
      ...eachOf(ROW_COLUMNS, (name) => picked(columns[name])),
      source: order.map((i) => this.#source[i]!),
      stopReason: order.map((i) => this.#stopReason[i]!),
      reward: Float64Array.from(places, (row) => columns.reward[row]!),
      known: Uint8Array.from(places, (row) => columns.known[row]!),
      error: order.map((i) => this.#error[i]!),
      forms: order.map((i) => this.#forms[i]!),
      advantage: Float64Array.from(places, (row) => columns.advantage[row]!),
      components: new Map([...this.#components].map(([name, values]) => [name, order.map((i) => values[i]!)])),
    }
  }

  /** A copy of these rows, in this order, without their advantages. */
  take(rows: readonly number[]): Trajectories {
    const taken = new Trajectories()
    for (const i of rows) taken.append(this.row(i))
    return taken
  }
}

export function allRows({ offsets, candidateOffsets, ...columns }: TrajectoryColumns): TrajectoryRows {
  const last = offsets.length - 1
  return {
    ...columns,
    begin: offsets.subarray(0, last),
    end: offsets.subarray(1),
    candidateBegin: candidateOffsets.subarray(0, last),
  }
}

/** Compares texts by UTF-16 code units, which is the same on every machine. */
export function compareText(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0
}

/** The group (source, epoch, promptId, group) of each trajectory, as a number from 0 in the order of first occurrence. */
export function groupNumbers(given: Pick<TrajectoryColumns, 'source' | 'epoch' | 'promptId' | 'group'>): Int32Array {
  checkGiven('columns of groupNumbers', given, ['group', 'source', 'epoch', 'promptId'])
  const { source, epoch, promptId, group } = given
  const numbers = new Map<string, number>()
  return Int32Array.from(group, (number, i) => {
    const key = `${epoch[i]} ${promptId[i]} ${number} ${source[i]}`
    if (!numbers.has(key)) numbers.set(key, numbers.size)
    return numbers.get(key)!
  })
}

function candidatesOf(columns: TrajectoryLogColumns, i: number) {
  const { offsets, candidateOffsets, candidateIds } = columns
  const candidateCount = columns.candidateCount.subarray(offsets[i], offsets[i + 1])
  if (candidateCount.every((length) => length === 0)) return {}
  return { candidateCount, candidateIds: candidateIds.subarray(candidateOffsets[i], candidateOffsets[i + 1]) }
}

function turnRewardOf({ turnReward, turnRewardOffsets }: TrajectoryLogColumns, i: number) {
  const [from, to] = [turnRewardOffsets[i]!, turnRewardOffsets[i + 1]!]
  return from === to ? {} : { turnReward: turnReward.subarray(from, to) }
}
