/** What a helper does for a run: it computes shares of the gradients of a policy of episodes, or of a language model. */
import type { GradientHelp } from '../../algorithms/shared-gradient.ts'
import { InputError } from '../../base/errors.ts'
import { alone } from '../../base/parted.ts'
import type { ConversationCohort } from '../../world/conversations/cohort.ts'
import { openWorld } from '../../world/world.ts'
import { createTrainedSets, draftOf, trainedSetsPlan } from '../loop/trained-sets.ts'
import type { ConversationDescription, EpisodeDescription, JoinedRun } from './description.ts'
import { episodeOptions } from './episode-work.ts'
import { openConversationWorld } from './group-work.ts'
import { TokenHelp, tokenHelpPlan } from './token-help.ts'

export interface GradientWork {
  readonly help: GradientHelp
  readonly shareCount: number
  /** The task, for a message to the user. */
  readonly description: string
  close(): void
}

/** @throws InputError for a run without helpers, and for a model that is not as the learner's. */
export async function openGradientWork(joined: JoinedRun): Promise<GradientWork> {
  const { description } = joined
  if (description.gradients === null) {
    throw new InputError(
      'role',
      'learn, in a run whose learner computes gradients alone',
      'a run with learners=2 or more',
    )
  }
  return description.kind === 'episodes' ? openEpisodes(joined) : openConversations(joined)
}

async function openEpisodes(joined: JoinedRun): Promise<GradientWork> {
  const { seed, gradients, cohort } = joined.description as EpisodeDescription
  const { shareCount } = gradients!
  const algorithm = await joined.algorithm(gradients!.algorithm)
  const world = await openWorld({ cohorts: [episodeOptions(joined)], seed, kernels: joined.kernels })
  try {
    const draft = draftOf(world, cohort.name)
    world.reserve(draft, { numSteps: cohort.numSteps, learner: trainedSetsPlan(world, draft, algorithm) })
    const help = createTrainedSets(world, cohort.name, algorithm, alone)[0]!.learners[0]!.help!
    return { help, shareCount, description: algorithm.id, close: () => world.close() }
  } catch (error) {
    world.close()
    throw error
  }
}

async function openConversations(joined: JoinedRun): Promise<GradientWork> {
  const { policy, gradients } = joined.description as ConversationDescription
  const world = await openConversationWorld(joined, 1, (draft) => tokenHelpPlan(draft, gradients!))
  const help = new TokenHelp(world, world.cohort() as ConversationCohort)
  return {
    help,
    shareCount: gradients!.shareCount,
    description: `${policy.id} from tokens`,
    close: () => world.close(),
  }
}
