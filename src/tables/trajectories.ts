/**
 * Trajectories: finished conversations of any length, in columns. One row a trajectory, and one a token, those of trajectory
 * i at offsets[i] … offsets[i + 1] − 1, which is how Arrow keeps lists. Columns grow when they are full; nothing is dropped.
 *
 * A conversation is one row, or several where the chat template rewrote what stood: each row is then a segment with ids of
 * its own from the first one on, and the segments of a conversation follow each other in the table.
 */
import { type StopReason, stopReasons } from '../environments/text.ts'
import { InputError, show, unknownWord } from '../errors.ts'

/** One trajectory, as it is appended and read back. */
export interface Trajectory {
  /**
   * What it is from, like a run: a group is (source, epoch, promptId, group), so that tables of two runs put together share none.
   * Trajectories without one are all from one source, which has no name ('').
   */
  readonly source?: string
  /** The example that it began with, its group, its place in the group, and how often the examples had been round. */
  readonly promptId: number
  readonly group: number
  readonly member: number
  readonly epoch: number
  /** Its place among the rows of its conversation; default 0. A row of another segment follows the one before it. */
  readonly segment?: number
  /** Turns of the model in this row. */
  readonly turns: number
  /** How many of them their budget or the context cut off; default 0. */
  readonly cutTurns?: number
  /** 1 where the environment said more at its end that a cut turn, or the context, kept from the model; default 0. */
  readonly unheard?: number
  /** Why the last turn ended. */
  readonly stopReason: StopReason
  /** Null where it could not be told, and why. */
  readonly reward: number | null
  readonly error: string | null
  /** What each turn was worth, of which the reward is made; NaN where that could not be told. Missing: nobody kept it. */
  readonly turnReward?: ArrayLike<number>
  /** What the reward is made of, by name; null where that could not be told. */
  readonly components: Readonly<Record<string, number | null>>
  /** Token ids as sent and as sampled. The other token columns are as long. */
  readonly token: ArrayLike<number>
  /** 1 where the model chose the token. */
  readonly lossMask: ArrayLike<number>
  /**
   * Log-probability under the distribution that the token was drawn from, in nats. NaN where none is recorded, which may only
   * be where `version` is −1: nobody drew the token, or nobody kept what it was. Never 0, which says that it was certain.
   */
  readonly logprob: ArrayLike<number>
  /** Number of the weights that chose it; −1 where none did, or nobody knows which. */
  readonly version: ArrayLike<number>
  /** The turn that it belongs to, from 0. */
  readonly turn: ArrayLike<number>
  /**
   * From how many tokens each was drawn, where a filter had left some out; 0 where it had not, and −1 where nobody knows. Their
   * ids in rising order, those of all tokens one after another, are `supportIds`. Both may be missing: then nothing was left out.
   */
  readonly supportLength?: ArrayLike<number>
  readonly supportIds?: ArrayLike<number>
}

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

const TOKEN_COLUMNS = ['token', 'lossMask', 'logprob', 'version', 'turn'] as const
const ROW_COLUMNS = ['promptId', 'group', 'member', 'epoch', 'segment', 'turns', 'cutTurns', 'unheard'] as const

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

  /** A copy of these rows, in this order, without their advantages. */
  take(rows: readonly number[]): Trajectories {
    const taken = new Trajectories()
    for (const i of rows) taken.append(this.row(i))
    return taken
  }
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

/** True for a token that the model said, whether there is something to learn of it or not. */
export function isOfModel(lossMask: ArrayLike<number>, version: ArrayLike<number>, t: number): boolean {
  return lossMask[t] === 1 || version[t] !== -1
}

/** The ids of all that was said after a trajectory's prompt: from the first token of the model on. */
export function completionOf({
  token,
  lossMask,
  version,
}: Pick<Trajectory, 'token' | 'lossMask' | 'version'>): number[] {
  let said = 0
  while (said < token.length && !isOfModel(lossMask, version, said)) said++
  return Array.from(token).slice(said)
}

/** Returns the number of tokens. @throws InputError as `append` does. */
export function checkTrajectory(trajectory: Trajectory): number {
  const { token, reward, turnReward = [], components, stopReason, group, member } = trajectory
  const subject = `trajectory of group ${show(group)}, member ${show(member)}`
  if (token.length === 0) throw new InputError(subject, 'no token', 'at least one')
  checkTokens(subject, trajectory)
  checkSupport(subject, trajectory)
  checkIdentity(subject, trajectory)
  checkTurnReward(subject, turnReward)
  if (!stopReasons.includes(stopReason)) throw unknownWord(`${subject}, stopReason`, String(stopReason), stopReasons)
  for (const [name, value] of Object.entries({ reward, ...components })) {
    if (value === null || Number.isFinite(value)) continue
    const expected = 'a finite number, or null where it could not be told'
    throw new InputError(`${subject}, ${name}`, show(value), expected)
  }
  return token.length
}

/**
 * Checks which trajectory it is. `subject` and `names` as in `checkTokens`.
 * @throws InputError for a source that is no text, and a number that is missing or no number: no group is made up for it.
 */
export function checkIdentity(
  subject: string,
  row: Pick<Trajectory, 'source' | (typeof ROW_COLUMNS)[number]>,
  names: Readonly<Partial<Record<(typeof ROW_COLUMNS)[number], string>>> = {},
): void {
  const { source = '', segment = 0, cutTurns = 0, unheard = 0 } = row
  if (typeof source !== 'string') throw new InputError(`${subject}, source`, show(source), 'a text')
  const numbers = { ...row, segment, cutTurns, unheard }
  for (const name of ROW_COLUMNS) checkElements(`${subject}, ${names[name] ?? name}`, [numbers[name]], isCount, COUNT)
}

/** Checks what turns were worth. @throws InputError for one that is neither a finite number nor NaN. */
export function checkTurnReward(subject: string, turnReward: ArrayLike<number>): void {
  const isRight = (value: number) => Number.isFinite(value) || Number.isNaN(value)
  checkElements(`${subject}, turnReward`, turnReward, isRight, 'a finite number, or NaN where it could not be told')
}

/** Checks from which tokens each was drawn. @throws InputError where that does not fit the tokens. */
export function checkSupport(
  subject: string,
  { token, supportLength, supportIds }: Pick<Trajectory, 'token' | 'supportLength' | 'supportIds'>,
): void {
  if (supportLength === undefined && supportIds === undefined) return
  const isLength = (value: number) => value === -1 || isCount(value)
  checkElements(`${subject}, supportLength`, supportLength ?? [], isLength, `${COUNT}, or -1 where nobody knows`)
  checkElements(`${subject}, supportIds`, supportIds ?? [], isCount, COUNT)
  const lengths = Array.from(supportLength ?? [])
  const total = lengths.reduce((sum, length) => sum + Math.max(0, length), 0)
  if (lengths.length === token.length && total === (supportIds?.length ?? 0)) return
  const got = `${lengths.length} support lengths, ${total} together, for ${supportIds?.length ?? 0} ids`
  throw new InputError(subject, got, `${token.length} lengths, one a token, and as many ids as they come to`)
}

/** The largest number of an Int32Array. */
const LARGEST = 2 ** 31 - 1
const COUNT = `a whole number from 0 to ${LARGEST}`
const isCount = (value: number) => Number.isInteger(value) && value >= 0 && value <= LARGEST

/** What the elements of a token column are, as a check and in words. */
const ELEMENTS: Record<(typeof TOKEN_COLUMNS)[number], [(value: number, version: number) => boolean, string]> = {
  token: [isCount, COUNT],
  lossMask: [(value) => value === 0 || value === 1, '0 or 1'],
  logprob: [
    (value, version) => Number.isFinite(value) || (Number.isNaN(value) && version === -1),
    'a finite number; NaN, which says that none is recorded, only where the version is -1',
  ],
  version: [(value) => value === -1 || isCount(value), `${COUNT}, or -1 where no weights chose`],
  turn: [isCount, COUNT],
}

/**
 * Checks columns of tokens. `subject` names what they are of in errors, and `names` each column, where it is called otherwise.
 * @throws InputError where they differ in length, or an element is not what such a column holds.
 */
export function checkTokens(
  subject: string,
  columns: Pick<Trajectory, (typeof TOKEN_COLUMNS)[number]>,
  names: Readonly<Partial<Record<(typeof TOKEN_COLUMNS)[number], string>>> = {},
): void {
  const { token, version } = columns
  for (const name of TOKEN_COLUMNS) {
    const [values, column] = [columns[name], `${subject}, ${names[name] ?? name}`]
    if (values?.length !== token.length) {
      const got = values?.length === undefined ? show(values) : `${values.length} elements`
      throw new InputError(column, got, `${token.length}, as many as tokens`)
    }
    const [isRight, expected] = ELEMENTS[name]
    checkElements(column, values, (value, t) => isRight(value, version[t]!), expected)
  }
}

function checkElements(
  subject: string,
  values: ArrayLike<number>,
  isRight: (value: number, i: number) => boolean,
  expected: string,
): void {
  for (let i = 0; i < values.length; i++) {
    if (isRight(values[i]!, i)) continue
    throw new InputError(values.length > 1 ? `${subject}[${i}]` : subject, show(values[i]), expected)
  }
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
