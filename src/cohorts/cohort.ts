/**
 * What both kinds of cohort are to their world: a cohort of episodes (`episodes.ts`), whose lanes step, and a cohort of
 * conversations (`conversations.ts`), whose lanes decode. `kinds.ts` names the two.
 */
import type { World as EcsWorld } from 'bitecs'
import type { PlannedObjects } from '../components/arena.ts'
import type { Columns, Plan } from '../components/column.ts'
import type { Kernels } from '../kernels/bind.ts'
import type { ConversationCohort, ConversationCohortOptions, ConversationDraft } from './conversations.ts'
import type { EpisodeCohort, EpisodeCohortOptions, EpisodeDraft } from './episodes.ts'

/** The options of a cohort of either kind. */
export type CohortOptions = EpisodeCohortOptions | ConversationCohortOptions
/** A cohort of either kind that has its memory. */
export type Cohort = EpisodeCohort | ConversationCohort
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

/** What a world asks of a kind of cohort. */
export interface CohortKind<O, D, C> {
  /** The names of the options that it takes. */
  readonly options: readonly string[]
  /**
   * Checks a cohort's options and opens its policy; `before` are the world's cohorts before it.
   * @throws InputError that says which option is wrong.
   */
  draft(options: O, before: readonly CohortDraft[]): Promise<D>
  /** @throws InputError where so many threads cannot share the cohort's lanes. */
  checkThreads(draft: D, count: number): void
  /** The cohort's columns; each thread that shares it has a workspace. */
  plan(draft: D, threads: number): Plan
  /** What the cohort keeps in the runtime's heap beside its columns. */
  objects(draft: D): PlannedObjects[]
  /** The cohort over its columns, as one of the world's threads has it; `isFresh` where they wait for their first values. */
  create(draft: D, columns: Columns<Plan>, world: Housing, kernels: Kernels, isFresh: boolean): C
  readonly systems: Systems<C>
  /** What lanes wait for: nothing, where no answer is owed. */
  owed(cohort: C): readonly Promise<void>[]
  /** True if some lane can go on without waiting. */
  canGoOn(cohort: C): boolean
  /** Gives back what the cohort holds of devices and of processes. */
  release(cohort: C): void
}
