/**
 * Trajectories: finished conversations of any length, in columns. One row a trajectory, and one a token, those of trajectory
 * i at offsets[i] … offsets[i + 1] − 1, which is how Arrow keeps lists. Columns grow when they are full; nothing is dropped.
 *
 * A conversation is one row, or several where the chat template rewrote what stood: each row is then a segment with ids of
 * its own from the first one on, and the segments of a conversation follow each other in the table.
 */
import type { StopReason } from '../environments/text.ts'
import { InputError, show } from '../errors.ts'
import { checkTrajectory, LARGEST, ROW_COLUMNS, TOKEN_COLUMNS, type Trajectory } from './trajectory.ts'

/** Views of the columns; they stand until the next row is appended, or all are forgotten. */
export interface TrajectoryColumns {
  readonly offsets: Int32Array
  readonly token: Int32Array
  readonly lossMask: Uint8Array
  readonly logprob: Float32Array
  readonly version: Int32Array
  readonly turn: Int32Array
  readonly supportLength: Int32Array
  /** Of trajectory i: supportIds[supportOffsets[i]] to supportIds[supportOffsets[i + 1]]. */
  readonly supportIds: Int32Array
  readonly supportOffsets: Int32Array
  readonly source: readonly string[]
  readonly promptId: Int32Array
  readonly group: Int32Array
  readonly member: Int32Array
  readonly epoch: Int32Array
  readonly segment: Int32Array
  readonly turns: Int32Array
  readonly cutTurns: Int32Array
  readonly unheard: Int32Array
  readonly stopReason: readonly StopReason[]
  /** 0 where `known` is. */
  readonly reward: Float64Array
  readonly known: Uint8Array
  readonly error: readonly (string | null)[]
  /** Of trajectory i: turnReward[turnRewardOffsets[i]] to turnReward[turnRewardOffsets[i + 1]]; none where nobody kept it. */
  readonly turnReward: Float64Array
  readonly turnRewardOffsets: Int32Array
  /** NaN where the trajectory has none yet. */
  readonly advantage: Float64Array
  readonly components: ReadonlyMap<string, readonly (number | null)[]>
}

/**
 * Trajectories in an order of one's own: a row each in the columns of rows, and the columns of tokens where they lie. The tokens
 * of trajectory i are begin[i] … end[i] − 1, and the ids that they were drawn from begin at supportBegin[i].
 */
export interface TrajectoryRows
  extends Omit<TrajectoryColumns, 'offsets' | 'supportOffsets' | 'turnReward' | 'turnRewardOffsets'> {
  readonly begin: Int32Array
  readonly end: Int32Array
  readonly supportBegin: Int32Array
}

/** Of which two rows of one conversation have the same. */
const CONVERSATION_IDS = ['promptId', 'group', 'member', 'epoch'] as const
type RowColumns = Record<(typeof ROW_COLUMNS)[number], Int32Array>
type RowNumbers = Record<(typeof ROW_COLUMNS)[number], number>

/** Trajectories in the order in which they were appended. */
export class Trajectories {
  #count = 0
  #numConversations = 0
  #tokens = tokenColumns(1024)
  #rows = rowColumns(64)
  #supportIds = new Int32Array(0)
  #turnReward = new Float64Array(0)
  #source: string[] = []
  #stopReason: StopReason[] = []
  #error: (string | null)[] = []
  readonly #components = new Map<string, (number | null)[]>()

  get count(): number {
    return this.#count
  }

  /** Rows that begin a conversation. */
  get numConversations(): number {
    return this.#numConversations
  }

  get numTokens(): number {
    return this.#rows.offsets[this.#count]!
  }

  /**
   * Appends a copy of one trajectory, whole or not at all.
   * @throws InputError that says what is wrong with it: token columns of different lengths, no token, ids that are not whole
   * numbers, a loss mask of anything but 0 and 1, a reward or component that is no finite number, a logprob that is none where
   * it is known which weights chose the token, a segment that does not follow the one before it.
   */
  append(trajectory: Trajectory): void {
    const length = checkTrajectory(trajectory)
    this.#checkSegment(trajectory)
    const { source = '', reward, error, stopReason, components } = trajectory
    const row = this.#count
    const first = this.numTokens
    if (first + length > LARGEST) {
      throw new InputError('trajectories', `${first + length} tokens`, `at most ${LARGEST} before they are cleared`)
    }
    if (first + length > this.#tokens.token.length) this.#tokens = grown(this.#tokens, tokenColumns, first + length)
    if (row + 1 >= this.#rows.offsets.length) this.#rows = grown(this.#rows, rowColumns, row + 2)
    for (const name of TOKEN_COLUMNS) this.#tokens[name].set(trajectory[name], first)
    if (trajectory.supportLength === undefined) this.#tokens.supportLength.fill(0, first, first + length)
    else this.#tokens.supportLength.set(trajectory.supportLength, first)
    const { supportIds = [], turnReward = [] } = trajectory
    const { supportOffsets, turnRewardOffsets } = this.#rows
    this.#supportIds = appended(this.#supportIds, supportOffsets, row, supportIds)
    this.#turnReward = appended(this.#turnReward, turnRewardOffsets, row, turnReward)
    for (const name of ROW_COLUMNS) this.#rows[name][row] = trajectory[name] ?? 0
    this.#rows.reward[row] = reward ?? 0
    this.#rows.known[row] = reward === null ? 0 : 1
    this.#rows.advantage[row] = Number.NaN
    this.#rows.offsets[row + 1] = first + length
    this.#source.push(source)
    this.#stopReason.push(stopReason)
    this.#error.push(error)
    for (const name of Object.keys(components)) {
      if (!this.#components.has(name)) this.#components.set(name, new Array(row).fill(null))
    }
    for (const [name, values] of this.#components) values.push(components[name] ?? null)
    this.#count++
    if (this.#rows.segment[row] === 0) this.#numConversations++
  }

  /** Refuses a segment without the one before it: a conversation's rows stand together, so that it is counted once. */
  #checkSegment({ segment = 0, ...trajectory }: Trajectory): void {
    if (segment === 0) return
    const last = this.#count - 1
    const isNext =
      last >= 0 &&
      this.#rows.segment[last] === segment - 1 &&
      this.#source[last] === (trajectory.source ?? '') &&
      CONVERSATION_IDS.every((name) => this.#rows[name][last] === trajectory[name])
    if (isNext) return
    const subject = `trajectory of group ${show(trajectory.group)}, member ${show(trajectory.member)}`
    throw new InputError(subject, `segment ${segment}`, `segment ${segment - 1} of its conversation before it`)
  }

  /** Forgets all of them; the memory is kept. */
  clear(): void {
    this.#count = 0
    this.#source = []
    this.#numConversations = 0
    this.#stopReason = []
    this.#error = []
    this.#components.clear()
  }

  /** Forgets all but these rows, which stand in this order from now on, without their advantages. */
  keep(rows: readonly number[]): void {
    const kept = this.take(rows)
    this.clear()
    for (let i = 0; i < kept.count; i++) this.append(kept.row(i))
  }

  /** Says what the trajectories' advantages are, a number each; NaN for one that is not learned from. */
  setAdvantages(advantage: ArrayLike<number>): void {
    if (advantage.length !== this.#count) {
      throw new InputError('advantages', `${advantage.length} numbers`, `${this.#count}, one a trajectory`)
    }
    this.#rows.advantage.set(advantage)
  }

  /** The columns as they stand: views, not copies. */
  columns(): TrajectoryColumns {
    const [count, numTokens] = [this.#count, this.numTokens]
    const { offsets, supportOffsets, turnRewardOffsets, reward, known, advantage } = this.#rows
    const { token, lossMask, logprob, version, turn, supportLength } = this.#tokens
    return {
      offsets: offsets.subarray(0, count + 1),
      token: token.subarray(0, numTokens),
      lossMask: lossMask.subarray(0, numTokens),
      logprob: logprob.subarray(0, numTokens),
      version: version.subarray(0, numTokens),
      turn: turn.subarray(0, numTokens),
      supportLength: supportLength.subarray(0, numTokens),
      supportIds: this.#supportIds.subarray(0, supportOffsets[count]),
      supportOffsets: supportOffsets.subarray(0, count + 1),
      source: this.#source,
      ...(Object.fromEntries(ROW_COLUMNS.map((name) => [name, this.#rows[name].subarray(0, count)])) as RowColumns),
      stopReason: this.#stopReason,
      reward: reward.subarray(0, count),
      known: known.subarray(0, count),
      error: this.#error,
      turnReward: this.#turnReward.subarray(0, turnRewardOffsets[count]),
      turnRewardOffsets: turnRewardOffsets.subarray(0, count + 1),
      advantage: advantage.subarray(0, count),
      components: this.#components,
    }
  }

  /** Trajectory i; its token columns are views. */
  row(i: number): Trajectory {
    if (!(Number.isInteger(i) && i >= 0 && i < this.#count)) {
      throw new InputError('trajectory', show(i), `a whole number below ${this.#count}`)
    }
    const columns = this.columns()
    const [from, to] = [columns.offsets[i]!, columns.offsets[i + 1]!]
    return {
      source: this.#source[i]!,
      ...(Object.fromEntries(ROW_COLUMNS.map((name) => [name, columns[name][i]!])) as RowNumbers),
      stopReason: this.#stopReason[i]!,
      reward: columns.known[i] === 1 ? columns.reward[i]! : null,
      error: this.#error[i]!,
      ...turnRewardOf(columns, i),
      components: Object.fromEntries([...this.#components].map(([name, values]) => [name, values[i]!])),
      token: columns.token.subarray(from, to),
      lossMask: columns.lossMask.subarray(from, to),
      logprob: columns.logprob.subarray(from, to),
      version: columns.version.subarray(from, to),
      turn: columns.turn.subarray(from, to),
      ...supportOf(columns, i),
    }
  }

  /** The rows by source, epoch, group, prompt, member and segment: an order that does not depend on who was done first. */
  order(): number[] {
    const { promptId, epoch, group, member } = this.#rows
    const source = this.#source
    const rows = Array.from({ length: this.#count }, (_, i) => i)
    return rows.sort(
      (a, b) =>
        compareText(source[a]!, source[b]!) ||
        epoch[a]! - epoch[b]! ||
        group[a]! - group[b]! ||
        promptId[a]! - promptId[b]! ||
        member[a]! - member[b]! ||
        a - b,
    )
  }

  /** These rows in this order; their tokens stay where they are, so it stands as long as the columns do. */
  rows(order: readonly number[]): TrajectoryRows {
    const columns = this.columns()
    const { offsets, supportOffsets, turnReward: _, turnRewardOffsets: __, components, ...rest } = columns
    const numbers = Object.fromEntries(ROW_COLUMNS.map((name) => [name, picked(columns[name], order)])) as RowColumns
    return {
      ...rest,
      ...numbers,
      begin: picked(offsets, order),
      end: picked(offsets.subarray(1), order),
      supportBegin: picked(supportOffsets, order),
      source: order.map((i) => columns.source[i]!),
      stopReason: order.map((i) => columns.stopReason[i]!),
      reward: Float64Array.from(order, (i) => columns.reward[i]!),
      known: Uint8Array.from(order, (i) => columns.known[i]!),
      error: order.map((i) => columns.error[i]!),
      advantage: Float64Array.from(order, (i) => columns.advantage[i]!),
      components: new Map([...components].map(([name, values]) => [name, order.map((i) => values[i]!)])),
    }
  }

  /** A copy of these rows, in this order, without their advantages. */
  take(rows: readonly number[]): Trajectories {
    const taken = new Trajectories()
    for (const i of rows) taken.append(this.row(i))
    return taken
  }
}

/** All rows of a table, in its order. */
export function allRows({ offsets, supportOffsets, ...columns }: TrajectoryColumns): TrajectoryRows {
  const last = offsets.length - 1
  return {
    ...columns,
    begin: offsets.subarray(0, last),
    end: offsets.subarray(1),
    supportBegin: supportOffsets.subarray(0, last),
  }
}

function picked(column: Int32Array, rows: readonly number[]): Int32Array {
  return Int32Array.from(rows, (i) => column[i]!)
}

/** The order of two texts by their characters' numbers, which is the same on every machine. */
export function compareText(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0
}

/** The group of each trajectory, (source, epoch, promptId, group), as a number from 0 in the order in which they first come. */
export function groupNumbers({
  source,
  epoch,
  promptId,
  group,
}: Pick<TrajectoryColumns, 'source' | 'epoch' | 'promptId' | 'group'>): Int32Array {
  const numbers = new Map<string, number>()
  return Int32Array.from(group, (number, i) => {
    const key = `${epoch[i]} ${promptId[i]} ${number} ${source[i]}`
    if (!numbers.has(key)) numbers.set(key, numbers.size)
    return numbers.get(key)!
  })
}

function supportOf(columns: TrajectoryColumns, i: number) {
  const { offsets, supportOffsets, supportIds } = columns
  const supportLength = columns.supportLength.subarray(offsets[i], offsets[i + 1])
  if (supportLength.every((length) => length === 0)) return {}
  return { supportLength, supportIds: supportIds.subarray(supportOffsets[i], supportOffsets[i + 1]) }
}

function turnRewardOf({ turnReward, turnRewardOffsets }: TrajectoryColumns, i: number) {
  const [from, to] = [turnRewardOffsets[i]!, turnRewardOffsets[i + 1]!]
  return from === to ? {} : { turnReward: turnReward.subarray(from, to) }
}

function tokenColumns(size: number) {
  return {
    token: new Int32Array(size),
    lossMask: new Uint8Array(size),
    logprob: new Float32Array(size),
    version: new Int32Array(size),
    turn: new Int32Array(size),
    supportLength: new Int32Array(size),
  }
}

function rowColumns(size: number) {
  return {
    offsets: new Int32Array(size),
    supportOffsets: new Int32Array(size),
    turnRewardOffsets: new Int32Array(size),
    promptId: new Int32Array(size),
    group: new Int32Array(size),
    member: new Int32Array(size),
    epoch: new Int32Array(size),
    segment: new Int32Array(size),
    turns: new Int32Array(size),
    cutTurns: new Int32Array(size),
    unheard: new Int32Array(size),
    reward: new Float64Array(size),
    known: new Uint8Array(size),
    advantage: new Float64Array(size),
  }
}

/** A ragged column, or a larger one, with row `row`'s values at its end, which the offsets then say. */
function appended<C extends Int32Array<ArrayBuffer> | Float64Array<ArrayBuffer>>(
  column: C,
  offsets: Int32Array,
  row: number,
  values: ArrayLike<number>,
): C {
  const from = offsets[row]!
  const to = from + values.length
  offsets[row + 1] = to
  let room = column
  if (to > column.length) {
    room = new (column.constructor as new (length: number) => C)(Math.max(1024, 2 * to))
    room.set(column)
  }
  room.set(values, from)
  return room
}

/** The same columns with room for at least `size` elements, and twice what there was. */
function grown<C extends Record<string, { readonly length: number }>>(
  columns: C,
  make: (size: number) => C,
  size: number,
): C {
  const larger = make(Math.max(size, 2 * Object.values(columns)[0]!.length))
  for (const [name, column] of Object.entries(columns)) {
    ;(larger[name] as unknown as Float64Array).set(column as unknown as Float64Array)
  }
  return larger
}
