/**
 * The columns of a cohort's rollout: numSteps × numLanes rows, time-major (row `t * numLanes + n`). The components that
 * systems read and write are a window on row block `t` of these columns, so what happens in a tick is written where the
 * learner and Arrow will read it, and nothing is copied in between. A cohort that is not recorded has numSteps = 1.
 *
 * A rollout has an observation a row. What came after an episode's last row, and after the rollout's, is kept apart,
 * only for the rows that need it: the table has it as `finalObservation`, null elsewhere, so T steps come with T + 1
 * observations. A box action is there twice: `action` as the policy chose it, which is what it learns from, and
 * `appliedAction` as the environment was given it. Rows with `valid` = 0 are left out of advantages and minibatches.
 */
import { type Space, spaceType, spaceWidth } from '../base/space.ts'
import { type ColumnSpec, type Columns, column } from './column.ts'

/** The columns of a rollout before they have memory. */
export interface RolloutPlan extends Record<string, ColumnSpec> {
  /** What the lane saw before it acted: observation width elements a row. Written by the environment. */
  observation: ColumnSpec<'f32'>
  /** 1 for each choice that was legal; no elements where the environment has no mask. Written by the environment. */
  actionMask: ColumnSpec<'u8'>
  /** What the policy remembered before it acted; no elements where it remembers nothing. Written by the policy. */
  memory: ColumnSpec<'f32'>
  /** The action as the policy chose it (a box action is not yet clipped). Written by the policy. */
  action: ColumnSpec<'f32'> | ColumnSpec<'i32'>
  /** A box action as the environment was given it, within its bounds; no elements where actions are choices. Written by step. */
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
  /** The value of what the action led to: 0 after a terminal state. Written by infer. */
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
  /** Number of the weights that chose the action. Written by store. */
  version: ColumnSpec<'u32'>
}

/** The rollout of a cohort: numSteps × numLanes rows, time-major; see `RolloutPlan` for each column. */
export type RolloutColumns = Columns<RolloutPlan>

/**
 * What came after rows of the rollout that no later row shows: the final observations of episodes, and what lanes see when
 * the rollout is over. One thread's part: its rows and their observations, in the order in which they were found.
 */
export interface FinalObservations {
  /** Place in the rollout. */
  readonly row: Uint32Array
  readonly observation: Float32Array
  /** What was legal there; no elements where every action is. */
  readonly actionMask: Uint8Array
  /** How many there are: one element, so that other threads see it. */
  readonly count: Uint32Array
}

/** Plans the final observations of a rollout: any row may end an episode. Memory is touched as far as rows do. */
export function finalPlan(numSteps: number, numLanes: number, widths: Omit<RowWidths, 'memory'>, threads: number) {
  return {
    row: column('u32', numSteps * numLanes),
    observation: column('f32', numSteps * numLanes, widths.observation),
    actionMask: column('u8', numSteps * numLanes, widths.actionMask),
    count: column('u32', threads),
  }
}

/** Elements a row of the columns that slide. */
export interface RowWidths {
  readonly observation: number
  readonly actionMask: number
  readonly memory: number
}

/** Plans the rollout columns of a cohort. */
export function rolloutPlan(numSteps: number, numLanes: number, widths: RowWidths, action: Space): RolloutPlan {
  const rows = numSteps * numLanes
  return {
    observation: column('f32', rows, widths.observation),
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
