/** A phase of a training of conversations: supervised steps, or updates of reinforcement learning. */
import type { Metrics } from '../../../base/metrics.ts'
import { deliverWeights } from '../../../engines/engine.ts'
import type { ConversationCohort } from '../../../world/conversations/cohort.ts'
import type { World } from '../../../world/world.ts'
import type { TrainingBackend } from '../../backends/backend.ts'
import type { TextMetrics } from '../evaluate/metrics.ts'
import type { TextLearnerColumns } from './plan.ts'

export interface PhaseParts {
  readonly world: World
  readonly cohort: ConversationCohort
  readonly backend: TrainingBackend
  /** Columns for computing updates. */
  readonly columns: TextLearnerColumns
}

/** A step's metrics; the trainer adds times. */
export type PhaseMetrics = Omit<TextMetrics, 'seconds' | 'phaseSeconds'>

export interface Phase {
  done: number
  readonly total: number
  readonly metrics: Metrics
  /** True during a step, when there is no state to resume from. */
  readonly isMidway: boolean
  /** One step or update; undefined if the signal stopped it before. */
  advance(signal: AbortSignal | undefined): Promise<PhaseMetrics | undefined>
}

/** Gives the cohort's engine the backend's current weights under this version. */
export async function publishWeights({ cohort, backend }: PhaseParts, version: number): Promise<void> {
  cohort.version = version
  await deliverWeights(cohort.engine, await backend.getWeights(version))
}
