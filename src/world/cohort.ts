/**
 * The contract of a kind of cohort. There are two kinds: cohorts of episodes, whose lanes step, and of conversations, whose lanes decode.
 */
import { InputError } from '../base/errors.ts'
import type { PlannedObjects } from '../components/arena.ts'
import type { Columns, Plan } from '../components/column.ts'
import type { KernelBuild, Kernels } from '../kernels/kernels.ts'
import type { ConversationCohort } from './conversations/cohort.ts'
import type { EpisodeCohort } from './episodes/cohort.ts'
import type { CohortDraft, Housing } from './housing.ts'

/** A cohort of either kind, with memory. */
export type Cohort = EpisodeCohort | ConversationCohort
/** The functions of a kind of cohort that a world calls. */
export interface CohortKind<O, D, C> {
  readonly options: readonly string[]
  /**
   * Checks a cohort's options and opens its policy. `before` are the world's earlier cohorts; `helps`: in a thread of another's world;
   * `kernels` are the world's.
   * @throws InputError with the wrong option.
   */
  draft(options: O, before: readonly CohortDraft[], helps: boolean, kernels: KernelBuild): Promise<D>
  /** @throws InputError if this many threads cannot share the cohort's lanes. */
  checkThreads(draft: D, count: number): void
  plan(draft: D, threads: number): Plan
  /** The cohort's heap objects, besides its columns. */
  objects(draft: D): PlannedObjects[]
  /** Creates the cohort over its columns, in one of the world's threads. `isFresh`: the columns have no initial values yet. */
  create(draft: D, columns: Columns<Plan>, world: Housing, kernels: Kernels, isFresh: boolean): C
  /** The promises that lanes wait for; empty if none is pending. */
  owed(cohort: C): readonly Promise<void>[]
  /** Whether some lane can continue without waiting. */
  canGoOn(cohort: C): boolean
  /** Releases the cohort's devices and processes. */
  release(cohort: C): void
}

/** Checks that a cohort is of episodes. @throws InputError that names the call if the cohort is of conversations. */
export function asEpisodes(subject: string, cohort: Cohort): EpisodeCohort {
  if (cohort.kind === 'episodes') return cohort
  throw new InputError(subject, `cohort ${cohort.name} of conversations`, 'a cohort of episodes, as of CartPole-v1')
}

/** Checks that a cohort is of conversations. @throws InputError that names the call if the cohort is of episodes. */
export function asConversations(subject: string, cohort: Cohort): ConversationCohort {
  if (cohort.kind === 'conversations') return cohort
  throw new InputError(subject, `cohort ${cohort.name} of episodes`, 'a cohort of conversations, as of text/reverse')
}
