/** A phase of a training of conversations: supervised steps, or updates of reinforcement learning. */
import type { Metrics } from '../../../base/metrics.ts'
import { deliverWeights } from '../../../engines/engine.ts'
import type { ConversationCohort } from '../../../world/conversations/cohort.ts'
import type { World } from '../../../world/world.ts'
import type { TrainingBackend } from '../../backends/backend.ts'
import type { TextMetrics } from '../evaluate/metrics.ts'
import type { TextLearnerColumns } from './plan.ts'

/** What the phases of a training share. */
export interface PhaseParts {
  readonly world: World
  readonly cohort: ConversationCohort
  readonly backend: TrainingBackend
  /** Where updates are worked out. */
  readonly columns: TextLearnerColumns
}

/** What a phase tells of a step; what took how long its trainer adds. */
export type PhaseMetrics = Omit<TextMetrics, 'seconds' | 'phaseSeconds'>

export interface Phase {
  /** Steps or updates done. */
  done: number
  /** Steps or updates that there are to be. */
  readonly total: number
  /** What it tells of each step. */
  readonly metrics: Metrics
  /** In the middle of something: there is no state from which to go on. */
  readonly isMidway: boolean
  /** One step or update; undefined where the signal stopped it before. */
  advance(signal: AbortSignal | undefined): Promise<PhaseMetrics | undefined>
}

/** Gives the cohort's engine the backend's weights as they are, under this version. */
export async function publishWeights({ cohort, backend }: PhaseParts, version: number): Promise<void> {
  cohort.version = version
  await deliverWeights(cohort.engine, await backend.getWeights(version))
}
