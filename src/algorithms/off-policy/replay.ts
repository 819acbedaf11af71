/**
 * A replay: what lanes have collected, as columns of a ring of rows. A rollout's rows are copied behind those of the one
 * before, in the same order (numLanes to a step), and take the place of the oldest. Of observations only those are kept twice that
 * no later row shows: what came after an episode that was truncated, with what was legal there. All of it is saved with checkpoints.
 */
import { InputError } from '../../base/errors.ts'
import { type Space, spaceType, spaceWidth } from '../../base/space.ts'
import { type Columns, column, type Plan, saved } from '../../components/column.ts'
import type { FinalObservations, RolloutColumns } from '../../components/rollout.ts'
import type { Kernels } from '../../kernels/kernels.ts'

/** The sizes of a replay. */
export interface ReplayShape {
  /** Rows that are kept at least. */
  readonly replayRows: number
  readonly numLanes: number
  /** Steps of a rollout, and those of which a return is made. */
  readonly numSteps: number
  readonly nStep: number
  readonly observationSpace: Space
  readonly actionSpace: Space
  /** Bytes a row of the masks of legal actions; 0 where every action is. */
  readonly actionMaskWidth: number
}

/** Elements of `counts`. */
export const ReplayCount = {
  /** Steps of all lanes that were taken in, of which the last ones are kept. */
  steps: 0,
  /** Rows that can be drawn. */
  drawable: 1,
  /** The highest priority that a row was given; those that are new get it. */
  highest: 2,
} as const

/** Plans a replay. */
export function replayPlan(shape: ReplayShape) {
  const { replayRows, numLanes, numSteps, nStep, observationSpace, actionSpace, actionMaskWidth } = shape
  const numRows = numLanes * Math.max(Math.ceil(replayRows / numLanes), numSteps + nStep)
  const width = spaceWidth(observationSpace)
  return {
    rows: {
      step: saved(column('i32', numRows)),
      lane: saved(column('u32', numRows)),
      episode: saved(column('u32', numRows)),
      observation: saved(column('f32', numRows, width)),
      actionMask: saved(column('u8', numRows, actionMaskWidth)),
      action: saved(column(spaceType(actionSpace), numRows, spaceWidth(actionSpace))),
      reward: saved(column('f32', numRows)),
      terminated: saved(column('u8', numRows)),
      truncated: saved(column('u8', numRows)),
      valid: saved(column('u8', numRows)),
    },
    /** What came after a row whose episode was truncated there. Memory is touched as far as rows do. */
    finalObservation: saved(column('f32', numRows, width)),
    finalActionMask: saved(column('u8', numRows, actionMaskWidth)),
    /** Priorities of rows: a sum tree. */
    tree: saved(column('f64', 2 * 2 ** Math.ceil(Math.log2(numRows)))),
    counts: saved(column('f64', 3)),
    /** Rows of a step, and their priorities. */
    listed: column('u32', numLanes),
    priority: column('f32', numLanes),
  } satisfies Plan
}

/** A replay's columns. */
export type ReplayColumns = Columns<ReturnType<typeof replayPlan>>

/** Sets the columns of a replay that holds nothing; those of zeros are right as they come. */
export function startReplay({ counts }: ReplayColumns): void {
  counts[ReplayCount.highest] = 1
}

/**
 * Takes a rollout in: the one copy of its rows. Rows become drawable when the steps of their return are there; they have the
 * highest priority at first.
 */
export function takeIn(
  replay: ReplayColumns,
  rollout: RolloutColumns,
  finals: readonly FinalObservations[],
  { numLanes, numSteps, nStep }: Pick<ReplayShape, 'numLanes' | 'numSteps' | 'nStep'>,
  kernels: Kernels,
): void {
  const { rows, counts } = replay
  const numRows = rows.reward.length
  const numBlocks = numRows / numLanes
  const before = counts[ReplayCount.steps]!
  const head = before % numBlocks
  const untilEnd = Math.min(numSteps, numBlocks - head)
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
    prioritize(replay, 0, numLanes, kernels)
  }
  for (let step = Math.max(0, before - nStep); step < before + numSteps - nStep; step++) {
    const from = (step % numBlocks) * numLanes
    const count = kernels.listReplayable(replay.listed, rows, from, nStep, numLanes, numRows)
    prioritize(replay, counts[ReplayCount.highest]!, count, kernels)
  }
}

function listStep({ listed }: ReplayColumns, from: number, numLanes: number): void {
  for (let n = 0; n < numLanes; n++) listed[n] = from + n
}

/** Gives the first `count` listed rows a priority. */
function prioritize(replay: ReplayColumns, value: number, count: number, kernels: Kernels): void {
  const { tree, listed, priority, counts } = replay
  priority.fill(value, 0, count)
  counts[ReplayCount.drawable] = counts[ReplayCount.drawable]! + kernels.setPriorities(tree, listed, priority, count)
}

/** Copies what came after truncated rows; row 0 of the rollout is row `from` of the replay, which begins anew at its end. */
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
      const got = `no legal action in the state in which ${where} was truncated`
      throw new InputError('action mask', got, 'one in the mask that step writes; a table does not keep that mask')
    }
  }
}

/** Row `at` of `numRows` from row `i` of another column. */
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
