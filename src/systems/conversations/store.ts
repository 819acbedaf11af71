import { ConversationPhase, turnRewardsOf } from '../../components/conversation.ts'
import type { Kernels } from '../../kernels/kernels.ts'
import { type ConversationCohort, segmentOf } from '../../world/conversations/cohort.ts'

/**
 * Keeps the conversations that are over as trajectories, a row for each of their segments, and frees their lanes. Where the log
 * has no room the lane waits; others go on.
 *
 * Reads the whole conversation. Writes phase, the cohort's trajectories, and how many lanes wait. Runs last, so that the lane is
 * free when the next tick opens.
 */
export function storeConversations(_: Kernels, cohort: ConversationCohort): void {
  const { conversation, numLanes } = cohort
  cohort.waiting = 0
  for (let n = 0; n < numLanes; n++) {
    if (conversation.phase[n] !== ConversationPhase.ended) continue
    if (storeLane(cohort, n)) conversation.phase[n] = ConversationPhase.free
    else cohort.waiting++
  }
}

/** Appends the rows of lane n's conversation. Returns false where the log has no room for them. */
function storeLane(cohort: ConversationCohort, n: number): boolean {
  const { conversation, replies, segments, trajectories } = cohort
  const { reward: last, components = {}, error } = replies[n]!
  const isTold = conversation.known[n] === 1
  // What the conversation is worth, each of its rows is.
  const worth = {
    reward: isTold ? conversation.reward[n]! : null,
    turnReward: turnRewardsOf(conversation, n),
    components,
    error: error ?? (isTold || last === null ? null : 'the reward of a turn before is not known'),
  }
  const rows = [...segments[n]!, segmentOf(cohort, n)].map((row) => ({ ...row, ...worth }))
  if (!trajectories.appendConversation(rows)) return false
  segments[n] = []
  return true
}
