/** Aborts turns and conversations: changes of lanes outside the four systems. */
import { ConversationPhase } from '../../components/conversation.ts'
import type { ConversationCohort } from './cohort.ts'

/** Fails the turn in lane n: its conversation ends with an unknown reward and this reason. */
export function failTurn({ engine, failing }: ConversationCohort, n: number, reason: string): void {
  failing[n] = reason
  engine.abort(n)
}

/** Discards the conversation in lane n and frees the lane, at once or when the engine has ended its turn. */
export function abandonConversation({ conversation, engine, submitted, pending }: ConversationCohort, n: number): void {
  const { phase } = conversation
  if (phase[n] === ConversationPhase.free || phase[n] === ConversationPhase.abandoned) return
  pending[n]?.cancel()
  pending[n] = null
  phase[n] = submitted[n] === 1 ? ConversationPhase.abandoned : ConversationPhase.free
  if (submitted[n] === 1) engine.abort(n)
}
