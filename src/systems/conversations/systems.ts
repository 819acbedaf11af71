/** The four systems of cohorts of conversations. */
import type { ConversationCohort } from '../../world/conversations/cohort.ts'
import type { Systems } from '../../world/housing.ts'
import { inferConversations } from './infer.ts'
import { resetConversations } from './reset.ts'
import { stepConversations } from './step.ts'
import { storeConversations } from './store.ts'

export const conversations: Systems<ConversationCohort> = {
  reset: resetConversations,
  infer: inferConversations,
  step: stepConversations,
  store: storeConversations,
}
