/**
 * The contract of a kind of cohort, and the two kinds: a cohort of episodes, whose lanes step, and a cohort of conversations, whose lanes
 * decode. `kinds.ts` has what a world calls of each, and `systems/systems.ts` their systems.
 */
import { InputError } from '../base/errors.ts'
import type { PlannedObjects } from '../components/arena.ts'
import type { Columns, Plan } from '../components/column.ts'
import type { Kernels } from '../kernels/kernels.ts'
import type { ConversationCohort } from './conversations/cohort.ts'
import type { EpisodeCohort } from './episodes/cohort.ts'
import type { CohortDraft, Housing } from './housing.ts'

/** A cohort of either kind that has its memory. */
export type Cohort = EpisodeCohort | ConversationCohort
/** What a world calls of a kind of cohort. */
export interface CohortKind<O, D, C> {
  /** The names of the options that it takes. */
  readonly options: readonly string[]
  /**
   * Checks a cohort's options and opens its policy; `before` are the world's cohorts before it.
   * @throws InputError that says which option is wrong.
   */
  draft(options: O, before: readonly CohortDraft[]): Promise<D>
  /** @throws InputError if this many threads cannot share the cohort's lanes. */
  checkThreads(draft: D, count: number): void
  /** The cohort's columns; each thread that shares it has a workspace. */
  plan(draft: D, threads: number): Plan
  /** What the cohort keeps in the runtime's heap beside its columns. */
  objects(draft: D): PlannedObjects[]
  /** The cohort over its columns, as one of the world's threads has it; `isFresh` where they wait for their first values. */
  create(draft: D, columns: Columns<Plan>, world: Housing, kernels: Kernels, isFresh: boolean): C
  /** The promises that lanes wait for; empty if none is pending. */
  owed(cohort: C): readonly Promise<void>[]
  /** True if some lane can continue without waiting. */
  canGoOn(cohort: C): boolean
  /** Releases the cohort's devices and processes. */
  release(cohort: C): void
}

/**
 * Checks that a cohort is of episodes.
 * @throws InputError that names the call if the cohort is of conversations.
 */
export function asEpisodes(subject: string, cohort: Cohort): EpisodeCohort {
  if (cohort.kind === 'episodes') return cohort
  throw new InputError(subject, `cohort ${cohort.name} of conversations`, 'one of episodes, like that of CartPole-v1')
}

/**
 * Checks that a cohort is of conversations.
 * @throws InputError that names the call if the cohort is of episodes.
 */
export function asConversations(subject: string, cohort: Cohort): ConversationCohort {
  if (cohort.kind === 'conversations') return cohort
  throw new InputError(subject, `cohort ${cohort.name} of episodes`, 'one of conversations, like that of text/reverse')
}
