/** Types that both kinds of cohort use. */
import type { World as EcsWorld } from 'bitecs'
import type { Kernels } from '../kernels/kernels.ts'
import type { ConversationCohortOptions, ConversationDraft } from './conversations/cohort.ts'
import type { EpisodeCohortOptions, EpisodeDraft } from './episodes/options.ts'

/** Options of a cohort of either kind. */
export type CohortOptions = EpisodeCohortOptions | ConversationCohortOptions

/** A cohort of either kind before it has memory. */
export type CohortDraft = EpisodeDraft | ConversationDraft

/** The parts of a world that a cohort needs. */
export interface Housing {
  readonly seed: number
  /**
   * Number of threads that share the lanes, and this thread's index. If `actors` > 0, the last `actors` threads collect while the others
   * learn.
   */
  readonly threads: { readonly count: number; readonly index: number; readonly actors: number }
  readonly ecs: EcsWorld
}

/** The four systems of a kind of cohort, in order. */
export interface Systems<C> {
  reset(kernels: Kernels, cohort: C): void
  /** Returns a promise if other threads decode conversations; a stop takes effect after it. */
  infer(kernels: Kernels, cohort: C): void | Promise<void>
  step(kernels: Kernels, cohort: C): void
  store(kernels: Kernels, cohort: C): void
}
