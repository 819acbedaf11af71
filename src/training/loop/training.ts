/** The contract of trainings: one for all episodes, sharing lanes, and one per cohort of conversations. */
import { checkOptions, InputError, show, unknownWord } from '../../base/errors.ts'
import type { Tensor } from '../../base/files/safetensors.ts'
import type { Column } from '../../components/column.ts'
import type { CohortRecord, Manifest } from '../folder/checkpoint.ts'
import type { RunRecord } from '../folder/run-record.ts'

export interface Goal {
  /** Environment steps of the cohorts of episodes, in whole updates. */
  readonly totalSteps?: number
  /** Only this phase of the cohorts of conversations; others are skipped. */
  readonly phase?: 'sft' | 'rl'
  /** When aborted, a training stops where it can continue: after an update, or a tick of conversations. */
  readonly signal?: AbortSignal
}

export interface SavedTraining {
  /** Besides the world's columns. */
  readonly tensors: readonly Tensor[]
  readonly cohorts: Readonly<Record<string, CohortRecord>>
  /** Columns saved in place of others, which are further than the checkpoint. */
  readonly instead?: ReadonlyMap<Column, Column>
}

export interface Training<Metrics> {
  readonly update: number
  /** Environment steps, or ticks. */
  readonly steps: number
  /** Seconds of collecting and learning. */
  readonly seconds: number
  /** The number of a checkpoint saved now. */
  readonly checkpointNumber: number
  /** Each worker's intervals of work, if recorded. */
  readonly traces: readonly Float64Array[]
  isDone(goal: Goal): boolean
  /** Collects and learns once. Undefined if it was stopped before. @throws InputError if a tick fails. */
  advance(goal: Goal): Promise<Metrics | undefined>
  /** @throws InputError during a tick or an update. */
  checkBetween(action: string): void
  /** A copy of the state that is not in the world's columns. */
  saved(): SavedTraining
  /** A checkpoint is on disk. */
  kept?(manifest: Pick<Manifest, 'cohorts'>): void
  /** Ends work between two updates, before columns are restored from a checkpoint. */
  halt?(): Promise<void>
  /** Continues from a checkpoint, when its columns are restored. */
  restore(manifest: Manifest, tensors: ReadonlyMap<string, Tensor>): void | Promise<void>
  /** Compares a checkpoint with this training, and returns warnings. @throws InputError for the first difference. */
  compareCheckpoint(subject: string, manifest: Manifest): string[]
  /** The same for a run, which has one cohort. */
  compareRun(subject: string, run: RunRecord): string[]
  /** Ends the workers; a later update starts others. */
  close(): void
}

/** Lets timers, signals and other work of the process run. */
export function nextTurn(): Promise<void> {
  return new Promise((resolve) => {
    if (typeof setImmediate === 'function') setImmediate(resolve)
    else {
      // A page delays timers by some milliseconds, but not messages.
      const { port1, port2 } = new MessageChannel()
      port1.onmessage = () => {
        port1.close()
        resolve()
      }
      port2.postMessage(null)
    }
  })
}

/** @throws InputError for an invalid signal. */
export function checkSignal(signal: AbortSignal | undefined): void {
  if (signal === undefined || signal instanceof AbortSignal) return
  throw new InputError('signal', show(signal), 'an AbortSignal')
}

/** @throws InputError for an invalid goal of `trainer.updates`. */
export function checkGoal(goal: Goal): void {
  if (typeof goal !== 'object' || goal === null)
    throw new InputError('trainer.updates(options)', show(goal), 'an object')
  checkOptions('trainer.updates', goal, ['totalSteps', 'phase', 'signal'])
  if (goal.phase !== undefined && !['sft', 'rl'].includes(goal.phase))
    throw unknownWord('phase', goal.phase, ['sft', 'rl'])
  checkSignal(goal.signal)
}
