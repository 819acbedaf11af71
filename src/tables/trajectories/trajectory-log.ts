/**
 * The log of trajectories: numbers in columns, a row each, and concatenated tokens as in Arrow lists. A planned log is a ring in the
 * arena: new rows wait until the oldest are removed. Without a plan it is on the heap and grows.
 *
 * The tokens of a row, and the rows of a conversation, are contiguous: if they do not fit before the end of the ring, they begin at its
 * front. So the log is one or two runs of rows, the older first, and each run is a valid Arrow list.
 */
import { InputError } from '../../base/errors.ts'
import { viewColumn } from '../../components/arena.ts'
import { type Columns, column, elementBytes } from '../../components/column.ts'
import { eachOf, LARGEST, ROW_COLUMNS, TOKEN_COLUMNS, type Trajectory } from './trajectory.ts'

export interface TrajectoryLogSize {
  readonly rows: number
  readonly tokens: number
  readonly candidateIds: number
  readonly turnRewards: number
}

export function trajectoryLogPlan({ rows, tokens, candidateIds, turnRewards }: TrajectoryLogSize) {
  return {
    token: column('i32', tokens),
    lossMask: column('u8', tokens),
    logprob: column('f32', tokens),
    version: column('i32', tokens),
    turn: column('i32', tokens),
    candidateCount: column('i32', tokens),
    candidateIds: column('i32', candidateIds),
    turnReward: column('f64', turnRewards),
    /** Row i's tokens are offsets[i] … offsets[i + 1] − 1; likewise the next two columns. One more than there are rows. */
    offsets: column('i32', rows + 1),
    candidateOffsets: column('i32', rows + 1),
    turnRewardOffsets: column('i32', rows + 1),
    ...eachOf(ROW_COLUMNS, () => column('i32', rows)),
    reward: column('f64', rows),
    known: column('u8', rows),
    advantage: column('f64', rows),
  }
}

export type TrajectoryLogColumns = Columns<ReturnType<typeof trajectoryLogPlan>>

/** Adjacent rows in the columns: `from` to `to` − 1. */
export interface LogRun {
  readonly from: number
  readonly to: number
}

/** Offset columns, and the columns that they index. */
const RAGGED = [
  ['offsets', 'token'],
  ['candidateOffsets', 'candidateIds'],
  ['turnRewardOffsets', 'turnReward'],
] as const

/** The columns of trajectories, in the order in which they were appended. */
export class TrajectoryLog {
  /** Without a plan they are valid until something is appended. */
  columns: TrajectoryLogColumns
  readonly #isPlanned: boolean
  /** The runs of adjacent rows in the columns: one, or two, the older first. */
  readonly runs = [{ from: 0, to: 0 }]

  /** `planned` are columns of the arena, of fixed size; null: growing columns on the heap. */
  constructor(planned: TrajectoryLogColumns | null) {
    this.#isPlanned = planned !== null
    this.columns = planned ?? inHeap({ rows: 64, tokens: 1024, candidateIds: 0, turnRewards: 0 })
  }

  get count(): number {
    return this.runs.reduce((sum, { from, to }) => sum + to - from, 0)
  }

  /** Position of row i, counted from the oldest. */
  at(i: number): number {
    const { from, to } = this.runs[0]!
    return from + i < to ? from + i : from + i - to
  }

  /** Makes room for rows that belong together. Returns whether there is room; a log without a plan grows. */
  reserve(rows: readonly Trajectory[]): boolean {
    const needed = neededBy(rows)
    const [{ from }, younger] = this.runs as [LogRun, LogRun?]
    const { to } = younger ?? this.runs[0]!
    if (this.#hasRoom(to, rows.length, needed, younger === undefined ? null : from)) return true
    if (!this.#isPlanned) {
      this.#grow(rows.length, needed)
      return true
    }
    if (younger !== undefined || !this.#hasRoom(0, rows.length, needed, from)) return false
    this.#begin()
    return true
  }

  /**
   * Whether this much fits from row `at` on: before the end, or before row `until` with one free row between, because a run's last offset
   * occupies the place of the next row's first.
   */
  #hasRoom(at: number, rows: number, needed: readonly number[], until: number | null): boolean {
    const columns = this.columns
    if (at + rows > (until === null ? columns.reward.length : until - 1)) return false
    return RAGGED.every(([offsets, values], i) => {
      const begin = at === 0 ? 0 : columns[offsets][at]!
      return begin + needed[i]! <= (until === null ? columns[values].length : columns[offsets][until]!)
    })
  }

  #begin(): void {
    for (const [offsets] of RAGGED) this.columns[offsets][0] = 0
    this.runs.push({ from: 0, to: 0 })
  }

  #grow(rows: number, needed: readonly number[]): void {
    const old = this.columns
    const { to } = this.runs[0]!
    const sizeOf = (length: number, used: number): number => {
      if (used > LARGEST)
        throw new InputError('trajectories', `${used} tokens`, `at most ${LARGEST} before they are cleared`)
      return used <= length ? length : Math.max(used, 2 * length)
    }
    const [tokens, candidateIds, turnRewards] = RAGGED.map(([offsets, values], i) =>
      sizeOf(old[values].length, old[offsets][to]! + needed[i]!),
    ) as [number, number, number]
    const larger = inHeap({ rows: sizeOf(old.reward.length, to + rows), tokens, candidateIds, turnRewards })
    for (const name of Object.keys(old) as (keyof TrajectoryLogColumns)[]) larger[name].set(old[name] as never)
    this.columns = larger
  }

  /** Writes a row; requires that there is room for it. */
  write(trajectory: Trajectory): void {
    const columns = this.columns
    const run = this.runs.at(-1)!
    const row = run.to
    const first = columns.offsets[row]!
    const end = first + trajectory.token.length
    for (const name of TOKEN_COLUMNS) columns[name].set(trajectory[name], first)
    if (trajectory.candidateCount === undefined) columns.candidateCount.fill(0, first, end)
    else columns.candidateCount.set(trajectory.candidateCount, first)
    const { candidateIds = NONE, turnReward = NONE, reward } = trajectory
    columns.candidateIds.set(candidateIds, columns.candidateOffsets[row])
    columns.turnReward.set(turnReward, columns.turnRewardOffsets[row])
    for (const name of ROW_COLUMNS) columns[name][row] = trajectory[name] ?? 0
    columns.reward[row] = reward ?? 0
    columns.known[row] = reward === null ? 0 : 1
    columns.advantage[row] = Number.NaN
    columns.offsets[row + 1] = end
    columns.candidateOffsets[row + 1] = columns.candidateOffsets[row]! + candidateIds.length
    columns.turnRewardOffsets[row + 1] = columns.turnRewardOffsets[row]! + turnReward.length
    run.to++
  }

  /** Removes the oldest rows. */
  forget(count: number): void {
    const older = this.runs[0]!
    const some = Math.min(count, older.to - older.from)
    older.from += some
    if (older.from < older.to) return
    if (this.runs.length > 1) {
      this.runs.shift()
      this.forget(count - some)
      return
    }
    older.from = older.to = 0
    for (const [offsets] of RAGGED) this.columns[offsets][0] = 0
  }

  /** Removes all rows except these, ascending, and closes the gaps; requires a single run. */
  keep(rows: readonly number[]): void {
    const columns = this.columns
    const run = this.runs[0]!
    let to = run.from
    for (const row of rows) {
      for (const name of PER_ROW) columns[name][to] = columns[name][row]!
      for (const [offsets, ...values] of MOVED) {
        const [begin, end] = [columns[offsets][row]!, columns[offsets][row + 1]!]
        for (const name of values) columns[name].copyWithin(columns[offsets][to]!, begin, end)
        columns[offsets][to + 1] = columns[offsets][to]! + end - begin
      }
      to++
    }
    run.to = to
    this.forget(0)
  }
}

const NONE: readonly number[] = []
const PER_ROW = [...ROW_COLUMNS, 'reward', 'known', 'advantage'] as const
/** Columns of values, each after the column of its rows' offsets. */
const MOVED = [
  ['offsets', ...TOKEN_COLUMNS, 'candidateCount'],
  ['candidateOffsets', 'candidateIds'],
  ['turnRewardOffsets', 'turnReward'],
] as const

/** The number of tokens, candidate ids and turn rewards of rows. */
function neededBy(rows: readonly Trajectory[]): [number, number, number] {
  let [tokens, candidateIds, turnRewards] = [0, 0, 0]
  for (const row of rows) {
    tokens += row.token.length
    candidateIds += row.candidateIds?.length ?? 0
    turnRewards += row.turnReward?.length ?? 0
  }
  return [tokens, candidateIds, turnRewards]
}

function inHeap(size: TrajectoryLogSize): TrajectoryLogColumns {
  return Object.fromEntries(
    Object.entries(trajectoryLogPlan(size)).map(([name, { type, rows }]) => [
      name,
      viewColumn(type, new ArrayBuffer(rows * elementBytes[type]), 0, rows),
    ]),
  ) as TrajectoryLogColumns
}
