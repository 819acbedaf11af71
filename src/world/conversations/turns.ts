/** Aborts turns and conversations: changes of lanes outside the four systems. */
import { ConversationPhase } from '../../components/conversation.ts'
import type { ConversationCohort } from './cohort.ts'

/** Breaks the turn in lane n off for good: its conversation ends with an unknown reward, for this reason. */
export function failTurn({ engine, failing }: ConversationCohort, n: number, reason: string): void {
  failing[n] = reason
  engine.abort(n)
}

/** Frees lane n of a conversation that is not to be stored; where the engine has its turn, when that has ended. */
export function abandonConversation({ conversation, engine, submitted, pending }: ConversationCohort, n: number): void {
  const { phase } = conversation
  if (phase[n] === ConversationPhase.free || phase[n] === ConversationPhase.abandoned) return
  pending[n]?.cancel()
  pending[n] = null
  phase[n] = submitted[n] === 1 ? ConversationPhase.abandoned : ConversationPhase.free
  if (submitted[n] === 1) engine.abort(n)
}
