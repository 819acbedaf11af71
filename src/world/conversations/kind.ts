/** The functions of cohorts of conversations that a world calls. */
import { InputError } from '../../base/errors.ts'
import { readsMessages } from '../../base/threads/cores.ts'
import type { Columns } from '../../components/column.ts'
import type { CohortKind } from '../cohort.ts'
import {
  type ConversationCohort,
  type ConversationCohortOptions,
  type ConversationDraft,
  canGoOn,
  conversationOptions,
  owedAnswers,
} from './cohort.ts'
import { createConversations } from './columns.ts'
import { type ConversationCohortPlan, draftConversations, planConversations } from './draft.ts'

export const conversations: CohortKind<ConversationCohortOptions, ConversationDraft, ConversationCohort> = {
  options: conversationOptions,
  draft: draftConversations,
  /** Other threads only decode and learn with the model, which they can always load, but batches are messages. */
  checkThreads(_draft, count) {
    if (count > 1 && !readsMessages)
      throw new InputError(
        'threads',
        `${count} for conversations in a page`,
        '1, since its threads read no messages while they work',
      )
  },
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
