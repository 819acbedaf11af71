/** The functions of cohorts of conversations that a world calls. */
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
