/**
 * A replay: a ring of rows in columns. A rollout's rows are appended in order (numLanes per step) and replace the oldest. An observation
 * is stored separately only if no later row contains it: the state, with its legal actions, after a truncated episode. Checkpoints
 * contain the whole replay.
 */
import { InputError } from '../../base/errors.ts'
import { type Space, spaceType, spaceWidth } from '../../base/space.ts'
import { type Columns, column, type Plan, saved } from '../../components/column.ts'
import {
  type FinalObservations,
  observationColumn,
  observationOf,
  type RolloutColumns,
} from '../../components/rollout.ts'
import { type GoalPlace, refusedReward } from '../../kernels/bind.ts'
import type { Kernels } from '../../kernels/kernels.ts'

export interface ReplayShape {
  /** Minimum number of rows kept. */
  readonly replayRows: number
  readonly numLanes: number
  /** Steps of a rollout, and steps of a return. */
  readonly numSteps: number
  readonly nStep: number
  readonly observationSpace: Space
  readonly actionSpace: Space
  /** Bytes per row of the action mask; 0 if every action is legal. */
  readonly actionMaskWidth: number
}

export const ReplayCount = {
  /** Steps of all lanes stored so far; the last ones are kept. */
  steps: 0,
  /** Number of rows that can be drawn. */
  drawable: 1,
  /** The highest priority so far, which new rows get. */
  highest: 2,
} as const

export function replayPlan(shape: ReplayShape) {
  const { replayRows, numLanes, numSteps, nStep, observationSpace, actionSpace, actionMaskWidth } = shape
  const numRows = numLanes * Math.max(Math.ceil(replayRows / numLanes), numSteps + nStep)
  const seen = observationOf(observationSpace)
  return {
    rows: {
      step: saved(column('i32', numRows)),
      lane: saved(column('u32', numRows)),
      episode: saved(column('u32', numRows)),
      observation: saved(observationColumn(numRows, seen)),
      actionMask: saved(column('u8', numRows, actionMaskWidth)),
      action: saved(column(spaceType(actionSpace), numRows, spaceWidth(actionSpace))),
      reward: saved(column('f32', numRows)),
      terminated: saved(column('u8', numRows)),
      truncated: saved(column('u8', numRows)),
      valid: saved(column('u8', numRows)),
    },
    /** The observation after a row at which an episode was truncated. Uses memory only as far as rows are filled. */
    finalObservation: saved(observationColumn(numRows, seen)),
    finalActionMask: saved(column('u8', numRows, actionMaskWidth)),
    /** Sum tree of the rows' priorities. */
    tree: saved(column('f64', 2 * 2 ** Math.ceil(Math.log2(numRows)))),
    counts: saved(column('f64', 3)),
    /** Rows of a step, and their priorities. */
    listed: column('u32', numLanes),
    priority: column('f32', numLanes),
  } satisfies Plan
}

/** Called for each row before it is overwritten. */
export interface Overwritten {
  /** A rollout replaces the blocks of numLanes rows from `head` on, which may wrap around. */
  keepRows(head: number): void
  /** The first `count` rows get other priorities. */
  keepPriorities(rows: Uint32Array, count: number): void
}

export type ReplayColumns = Columns<ReturnType<typeof replayPlan>>

/** Initializes an empty replay. Columns that start at zero need no initialization. */
export function startReplay({ counts }: ReplayColumns): void {
  counts[ReplayCount.highest] = 1
}

/**
 * Stores a rollout, the only copy of its rows. Rows become drawable when all steps of their return are stored, at first with the highest
 * priority.
 */
export function takeIn(
  replay: ReplayColumns,
  rollout: RolloutColumns,
  finals: readonly FinalObservations[],
  { numLanes, numSteps, nStep }: Pick<ReplayShape, 'numLanes' | 'numSteps' | 'nStep'>,
  kernels: Kernels,
  undo: Overwritten,
): void {
  const { rows, counts } = replay
  const numRows = rows.reward.length
  const numBlocks = numRows / numLanes
  const before = counts[ReplayCount.steps]!
  if (!Number.isSafeInteger(before) || before < 0) {
    throw new InputError('replay', `${before} stored steps`, 'a whole number of them ≥ 0: the checkpoint was changed')
  }
  const head = before % numBlocks
  const untilEnd = Math.min(numSteps, numBlocks - head)
  undo.keepRows(head)
  for (const name of Object.keys(rows) as (keyof typeof rows)[]) {
    const source = rollout[name]
    const perBlock = source.length / numSteps
    rows[name].set(source.subarray(0, untilEnd * perBlock) as never, head * perBlock)
    if (untilEnd < numSteps) rows[name].set(source.subarray(untilEnd * perBlock) as never, 0)
  }
  takeFinals(replay, rollout, finals, head * numLanes)
  counts[ReplayCount.steps] = before + numSteps
  for (let step = before; step < before + numSteps; step++) {
    listStep(replay, (step % numBlocks) * numLanes, numLanes)
    prioritize(replay, 0, numLanes, kernels, undo)
  }
  for (let step = Math.max(0, before - nStep); step < before + numSteps - nStep; step++) {
    const from = (step % numBlocks) * numLanes
    const count = kernels.listReplayable(replay.listed, rows, from, nStep, numLanes, numRows)
    prioritize(replay, counts[ReplayCount.highest]!, count, kernels, undo)
  }
}

/** Kernels read the rows that they are given without a check. @throws InputError for rows that the replay does not have. */
export function checkDrawn({ rows }: ReplayColumns, drawn: Uint32Array): void {
  const numRows = rows.reward.length
  for (const row of drawn) {
    if (row < numRows) continue
    const expected = `one of its ${numRows} rows: priorities are not finite, or the checkpoint was changed`
    throw new InputError('replay', `row ${row} drawn`, expected)
  }
}

function listStep({ listed }: ReplayColumns, from: number, numLanes: number): void {
  for (let n = 0; n < numLanes; n++) listed[n] = from + n
}

/** Sets the priority of the first `count` listed rows. */
function prioritize(replay: ReplayColumns, value: number, count: number, kernels: Kernels, undo: Overwritten): void {
  const { tree, listed, priority, counts } = replay
  priority.fill(value, 0, count)
  undo.keepPriorities(listed, count)
  counts[ReplayCount.drawable] = counts[ReplayCount.drawable]! + kernels.setPriorities(tree, listed, priority, count)
}

/** Copies observations after truncated rows. Row 0 of the rollout is row `from` of the replay, which wraps around. */
function takeFinals(
  { finalObservation, finalActionMask, rows }: ReplayColumns,
  { terminated, truncated, lane, episode, step }: RolloutColumns,
  finals: readonly FinalObservations[],
  from: number,
): void {
  const numRows = rows.reward.length
  for (const { row, observation, actionMask, count } of finals) {
    for (let i = 0; i < count[0]!; i++) {
      const ended = row[i]!
      if (truncated[ended] === 0 || terminated[ended] !== 0) continue
      const at = (from + ended) % numRows
      copyRow(finalObservation, observation, at, i, numRows)
      copyRow(finalActionMask, actionMask, at, i, numRows)
      if (finalActionMask.length === 0 || isAnyLegal(finalActionMask, at, numRows)) continue
      const where = `lane ${lane[ended]} (episode ${episode[ended]}, step ${step[ended]})`
      const got = `no legal action after the truncation of ${where}`
      const expected = 'a legal action in the mask written by step (a table does not store this mask)'
      throw new InputError('action mask', got, expected)
    }
  }
}

/** Copies row `i` of another column to row `at` modulo `numRows`. */
function copyRow(
  into: Float32Array | Uint8Array,
  from: Float32Array | Uint8Array,
  at: number,
  i: number,
  numRows: number,
) {
  const width = into.length / numRows
  for (let k = 0; k < width; k++) into[at * width + k] = from[i * width + k]!
}

function isAnyLegal(mask: Uint8Array, at: number, numRows: number): boolean {
  const width = mask.length / numRows
  return mask.subarray(at * width, (at + 1) * width).includes(1)
}

/** @throws InputError for a reward that is not the goal's. Observations after terminal steps are not stored. */
export function checkRewards(
  {
    return: reward,
    discount,
    nextObservation,
  }: Pick<RolloutColumns, 'return'> & {
    readonly discount: Float32Array
    readonly nextObservation: RolloutColumns['observation']
  },
  goal: GoalPlace,
  count: number,
  width: number,
): void {
  for (let i = 0; i < count; i++) {
    const refused = discount[i] === 0 ? null : refusedReward(nextObservation, i * width, goal, reward[i]!, false)
    if (refused !== null) throw new InputError('reward of an environment with goals', refused.got, refused.expected)
  }
}
