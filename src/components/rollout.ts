/**
 * The columns of a cohort's rollout: numSteps × numLanes rows, time-major (row `t * numLanes + n`). The components that systems read and
 * write are windows on row block `t`, so each tick writes directly where the learner and Arrow read. An unrecorded cohort has numSteps =
 * 1.
 *
 * A rollout has one observation per row. States after an episode's or the rollout's last row are stored separately, only for rows that
 * need them: the table has them as `finalObservation`, otherwise null. A box action is stored twice: `action` as chosen, for learning,
 * and `appliedAction` as applied. Rows with `valid` = 0 are excluded from advantages and minibatches.
 */
import { type BoxType, observationType, type Space, spaceType, spaceWidth } from '../base/space.ts'
import { type ColumnSpec, type Columns, column } from './column.ts'
import type { ObservationColumn } from './observation.ts'

/** The columns of a rollout before they have memory. */
export interface RolloutPlan extends Record<string, ColumnSpec> {
  /** Observation before the action: observation width elements per row. Written by the environment. */
  observation: ColumnSpec<'f32'> | ColumnSpec<'u8'>
  /** 1 for each legal choice; empty if the environment has no mask. Written by the environment. */
  actionMask: ColumnSpec<'u8'>
  /** The policy's memory before the action; empty for policies without memory. Written by the policy. */
  memory: ColumnSpec<'f32'>
  /** The action as chosen (a box action is not yet clipped). Written by the policy. */
  action: ColumnSpec<'f32'> | ColumnSpec<'i32'>
  /** A box action as applied, within its bounds; empty for discrete actions. Written by step. */
  appliedAction: ColumnSpec<'f32'>
  /** Written by the environment, in its own unit. */
  reward: ColumnSpec<'f32'>
  /** 1 if the episode ended in a terminal state at this row. Written by the environment. */
  terminated: ColumnSpec<'u8'>
  /** 1 if the episode was cut off at this row, by the time limit or by the environment. Written by step. */
  truncated: ColumnSpec<'u8'>
  /** 1 if the lane acted in this row; 0 for a dead step. Written by step. */
  valid: ColumnSpec<'u8'>
  /** Log-probability of the action, in nats, under the weights that chose it. Written by the policy. */
  logprob: ColumnSpec<'f32'>
  /** The critic's value of the observation. Written by the policy. */
  value: ColumnSpec<'f32'>
  /** The value of the next state: 0 after a terminal state. Written by infer. */
  nextValue: ColumnSpec<'f32'>
  /** Written by the algorithm. */
  advantage: ColumnSpec<'f32'>
  /** Advantage + value: the critic's target. Written by the algorithm. */
  return: ColumnSpec<'f32'>
  /** Step of the episode, from 0. Written by store. */
  step: ColumnSpec<'i32'>
  /** Number of the lane in the whole run. Written by store. */
  lane: ColumnSpec<'u32'>
  /** Number of the lane's episode, from 0. Written by store. */
  episode: ColumnSpec<'u32'>
  /** Sum of the episode's rewards up to and including this row. Written by store. */
  episodeReturn: ColumnSpec<'f32'>
  /** Version of the weights that chose the action. Written by store. */
  version: ColumnSpec<'u32'>
}

/** The rollout of a cohort: numSteps × numLanes rows, time-major; see `RolloutPlan` for each column. */
export type RolloutColumns = Columns<RolloutPlan>

/**
 * Observations after rows of the rollout that no later row contains: final observations of episodes, and the lanes' observations after
 * the rollout. One thread's list, in the order of discovery.
 */
export interface FinalObservations {
  readonly row: Uint32Array
  readonly observation: ObservationColumn
  /** Action masks of these states; empty if every action is legal. */
  readonly actionMask: Uint8Array
  /** Number of entries, as one element, so that other threads see it. */
  readonly count: Uint32Array
}

/** Plans the final observations of a rollout, for any number of episode ends. Uses memory only as far as rows are filled. */
export function finalPlan(numSteps: number, numLanes: number, widths: Omit<RowWidths, 'memory'>, threads: number) {
  return {
    row: column('u32', numSteps * numLanes),
    observation: observationColumn(numSteps * numLanes, widths),
    actionMask: column('u8', numSteps * numLanes, widths.actionMask),
    count: column('u32', threads),
  }
}

/** Elements per row of the sliding columns. */
export interface RowWidths {
  readonly observation: number
  readonly observationType: BoxType
  readonly actionMask: number
  readonly memory: number
}

/** The elements of an observation of a space, and their type. */
export function observationOf(space: Space): Pick<RowWidths, 'observation' | 'observationType'> {
  return { observation: spaceWidth(space), observationType: observationType(space) }
}

/** Plans a column of observations. */
export function observationColumn(
  rows: number,
  { observation, observationType }: Pick<RowWidths, 'observation' | 'observationType'>,
): RolloutPlan['observation'] {
  return column(observationType, rows, observation) as RolloutPlan['observation']
}

export function rolloutPlan(numSteps: number, numLanes: number, widths: RowWidths, action: Space): RolloutPlan {
  const rows = numSteps * numLanes
  return {
    observation: observationColumn(rows, widths),
    actionMask: column('u8', rows, widths.actionMask),
    memory: column('f32', rows, widths.memory),
    action: column(spaceType(action), rows, spaceWidth(action)) as RolloutPlan['action'],
    appliedAction: column('f32', action.kind === 'box' ? rows : 0, spaceWidth(action)),
    reward: column('f32', rows),
    terminated: column('u8', rows),
    truncated: column('u8', rows),
    valid: column('u8', rows),
    logprob: column('f32', rows),
    value: column('f32', rows),
    nextValue: column('f32', rows),
    advantage: column('f32', rows),
    return: column('f32', rows),
    step: column('i32', rows),
    lane: column('u32', rows),
    episode: column('u32', rows),
    episodeReturn: column('f32', rows),
    version: column('u32', rows),
  }
}
