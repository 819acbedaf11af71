/** What a cohort of either kind is made with. */
import type { World as EcsWorld } from 'bitecs'
import type { Kernels } from '../kernels/kernels.ts'
import type { ConversationCohortOptions, ConversationDraft } from './conversations/cohort.ts'
import type { EpisodeCohortOptions, EpisodeDraft } from './episodes/options.ts'

/** The options of a cohort of either kind. */
export type CohortOptions = EpisodeCohortOptions | ConversationCohortOptions

/** What is known of a cohort of either kind before it has memory. */
export type CohortDraft = EpisodeDraft | ConversationDraft

/** What a cohort needs of its world. */
export interface Housing {
  readonly seed: number
  /**
   * How many threads share the lanes, and which of them this is. Where `actors` is above 0, so many of them, the last ones, collect
   * while the others learn.
   */
  readonly threads: { readonly count: number; readonly index: number; readonly actors: number }
  readonly ecs: EcsWorld
}

/** The four systems of a kind of cohort, in their order. */
export interface Systems<C> {
  reset(kernels: Kernels, cohort: C): void
  /** A promise where other threads decode in conversations too; whoever stops stops after it. */
  infer(kernels: Kernels, cohort: C): void | Promise<void>
  step(kernels: Kernels, cohort: C): void
  store(kernels: Kernels, cohort: C): void
}
