/** The functions of the two kinds of cohort that a world calls. Their systems are in `systems/systems.ts`, above the world. */
import { checkOptions, InputError, show } from '../base/errors.ts'
import type { Columns } from '../components/column.ts'
import type { Cohort, CohortKind } from './cohort.ts'
import {
  type ConversationCohort,
  type ConversationCohortOptions,
  type ConversationDraft,
  canGoOn,
  conversationOptions,
  owedAnswers,
} from './conversations/cohort.ts'
import { createConversations } from './conversations/columns.ts'
import { type ConversationCohortPlan, draftConversations, planConversations } from './conversations/draft.ts'
import type { EpisodeCohort } from './episodes/cohort.ts'
import { createEpisodes } from './episodes/columns.ts'
import {
  checkEpisodeThreads,
  draftEpisodes,
  type EpisodeCohortPlan,
  episodeObjects,
  planEpisodes,
} from './episodes/draft.ts'
import { type EpisodeCohortOptions, type EpisodeDraft, episodeOptions } from './episodes/options.ts'
import type { CohortDraft, CohortOptions } from './housing.ts'

/** Requested in every tick, so it is created once. */
const NOTHING: readonly Promise<void>[] = []

const episodes: CohortKind<EpisodeCohortOptions, EpisodeDraft, EpisodeCohort> = {
  options: episodeOptions,
  draft: draftEpisodes,
  checkThreads: checkEpisodeThreads,
  plan: planEpisodes,
  objects: episodeObjects,
  create(draft, columns, world, kernels, isFresh) {
    return createEpisodes(draft, columns as Columns<EpisodeCohortPlan>, world, kernels, isFresh)
  },
  owed({ answer, rests, late }) {
    if (answer !== null) return [answer.arrival]
    return rests || late.size === 0 ? NOTHING : late.arrivals()
  },
  canGoOn: ({ rests, late, from, to }) => !rests && late.size < to - from,
  release({ policy, environment, state }) {
    policy.dispose?.()
    environment.close?.(state)
  },
}

const conversations: CohortKind<ConversationCohortOptions, ConversationDraft, ConversationCohort> = {
  options: conversationOptions,
  draft: draftConversations,
  checkThreads() {}, // Other threads only decode with the model, which they can always load.
  plan: planConversations,
  objects: () => [],
  create(draft, columns, world, kernels) {
    return createConversations(draft, columns as Columns<ConversationCohortPlan>, world, kernels)
  },
  owed: owedAnswers,
  canGoOn,
  release({ engine, environment }) {
    engine.close()
    environment.close?.()
  },
}

type AnyKind = CohortKind<CohortOptions, CohortDraft, Cohort>
const kinds = { episodes, conversations } as unknown as Readonly<Record<Cohort['kind'], AnyKind>>

export function kindOf({ kind }: { readonly kind: Cohort['kind'] }): AnyKind {
  return kinds[kind]
}

/**
 * Creates the draft of a cohort, of the kind of its environment.
 * @throws InputError for an unknown option, and as the kind's `draft` does.
 */
export async function draftCohort(options: CohortOptions, before: readonly CohortDraft[]): Promise<CohortDraft> {
  if (typeof options !== 'object' || options === null) {
    throw new InputError('cohort', show(options), 'an object with environment, policy and numLanes')
  }
  const isText = (options as Partial<ConversationCohortOptions>).environment?.kind === 'text'
  const kind = kinds[isText ? 'conversations' : 'episodes']
  checkOptions(`a cohort of ${isText ? 'conversations' : 'episodes'}`, options, kind.options)
  return kind.draft(options, before)
}
