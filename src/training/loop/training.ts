/**
 * What a trainer asks of those who train its cohorts: one training for all cohorts of episodes, whose threads share lanes, and
 * one for each cohort of conversations, whose threads share tokens.
 */
import { checkOptions, InputError, show, unknownWord } from '../../base/errors.ts'
import type { Tensor } from '../../base/files/safetensors.ts'
import type { Column } from '../../components/column.ts'
import type { CohortRecord, Manifest } from '../folder/checkpoint.ts'
import type { RunRecord } from '../folder/run-folder.ts'

/** How far a trainer is to go. */
export interface Goal {
  /** Environment steps of the cohorts of episodes, in whole updates. */
  readonly totalSteps?: number
  /** Only this phase of the cohorts of conversations: those that are done, or yet to come, are left as they are. */
  readonly phase?: 'sft' | 'rl'
  /** When it is aborted, a training stops where it can continue later: after an update, or for conversations after a tick. */
  readonly signal?: AbortSignal
}

/** What a checkpoint has of a training. */
export interface SavedTraining {
  /** Beside the world's columns. */
  readonly tensors: readonly Tensor[]
  readonly cohorts: Readonly<Record<string, CohortRecord>>
  /** Columns that are kept in place of others, which are further than the checkpoint. */
  readonly instead?: ReadonlyMap<Column, Column>
}

export interface Training<Metrics> {
  /** Updates done. */
  readonly update: number
  /** Environment steps, or ticks. */
  readonly steps: number
  /** Seconds of collecting and learning. */
  readonly seconds: number
  /** The number of a checkpoint that is saved now: all done after which there can be one. */
  readonly checkpointNumber: number
  /** What each worker did when, if it is kept. */
  readonly traces: readonly Float64Array[]
  isDone(goal: Goal): boolean
  /**
   * Collects and learns once. Undefined where it was stopped before.
   * @throws InputError if something is wrong in a tick.
   */
  advance(goal: Goal): Promise<Metrics | undefined>
  /** @throws InputError in the middle of a tick or an update. */
  checkBetween(action: string): void
  /** A copy of what the world's columns do not have. */
  saved(): SavedTraining
  /** Ends work between two updates, before columns are restored from a checkpoint. */
  halt?(): Promise<void>
  /** Continues from a checkpoint, when its columns are restored. */
  restore(manifest: Manifest, tensors: ReadonlyMap<string, Tensor>): void | Promise<void>
  /**
   * Compares a checkpoint with this training. Returns what a user should be warned of.
   * @throws InputError that names the first part in which it is of another one.
   */
  compareCheckpoint(subject: string, manifest: Manifest): string[]
  /** As above, of a run, which has one cohort. */
  compareRun(subject: string, run: RunRecord): string[]
  /** Sends the workers home; a later update takes others. */
  close(): void
}

/** Lets timers, signals and other work of the process run. */
export function nextTurn(): Promise<void> {
  return new Promise((resolve) => {
    if (typeof setImmediate === 'function') setImmediate(resolve)
    else setTimeout(resolve, 0)
  })
}

/** @throws InputError for what is no signal. */
export function checkSignal(signal: AbortSignal | undefined): void {
  if (signal === undefined || signal instanceof AbortSignal) return
  throw new InputError('signal', show(signal), 'an AbortSignal')
}

/** @throws InputError for what is no goal of `trainer.updates`. */
export function checkGoal(goal: Goal): void {
  if (typeof goal !== 'object' || goal === null)
    throw new InputError('trainer.updates(options)', show(goal), 'an object')
  checkOptions('trainer.updates', goal, ['totalSteps', 'phase', 'signal'])
  if (goal.phase !== undefined && !['sft', 'rl'].includes(goal.phase))
    throw unknownWord('phase', goal.phase, ['sft', 'rl'])
  checkSignal(goal.signal)
}
