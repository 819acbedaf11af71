/**
 * The functions of the two kinds of cohort that a world calls. Their systems are in `systems/systems.ts`, above the world.
 * Code for conversations is loaded when the first cohort of them is drafted, so that a page of episodes loads none of it.
 */
import { checkOptions, InputError, show } from '../base/errors.ts'
import type { Columns } from '../components/column.ts'
import type { KernelBuild } from '../kernels/kernels.ts'
import type { Cohort, CohortKind } from './cohort.ts'
import type { ConversationCohortOptions } from './conversations/cohort.ts'
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

type AnyKind = CohortKind<CohortOptions, CohortDraft, Cohort>
const kinds: { readonly episodes: AnyKind; conversations?: AnyKind } = { episodes: episodes as unknown as AnyKind }

export function kindOf({ kind }: { readonly kind: Cohort['kind'] }): AnyKind {
  return kinds[kind]!
}

/** Code that other rooms load for conversations. */
const loads: (() => Promise<void>)[] = []

/** Runs `load` before the first cohort of conversations is drafted. */
export function loadForConversations(load: () => Promise<void>): void {
  loads.push(load)
}

async function conversationsKind(): Promise<AnyKind> {
  if (kinds.conversations === undefined) {
    const { conversations } = await import('./conversations/kind.ts')
    await Promise.all(loads.map((load) => load()))
    kinds.conversations = conversations as unknown as AnyKind
  }
  return kinds.conversations
}

/**
 * Creates the draft of a cohort, of the kind of its environment. `helps`: in a thread that helps the one of `createWorld`.
 * @throws InputError for an unknown option, and as the kind's `draft` does.
 */
export async function draftCohort(
  options: CohortOptions,
  before: readonly CohortDraft[],
  helps: boolean,
  kernels: KernelBuild,
): Promise<CohortDraft> {
  if (typeof options !== 'object' || options === null) {
    throw new InputError('cohort', show(options), 'an object with environment, policy and numLanes')
  }
  const isText = (options as Partial<ConversationCohortOptions>).environment?.kind === 'text'
  const kind = isText ? await conversationsKind() : kinds.episodes
  checkOptions(`a cohort of ${isText ? 'conversations' : 'episodes'}`, options, kind.options)
  return kind.draft(options, before, helps, kernels)
}
