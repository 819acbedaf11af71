import { ConversationPhase, turnRewardsOf } from '../../components/conversation.ts'
import type { Kernels } from '../../kernels/kernels.ts'
import { type ConversationCohort, segmentOf } from '../../world/conversations/cohort.ts'

/**
 * Stores finished conversations as trajectories, one row per segment, and frees their lanes. If the log is full, the lane waits and
 * others continue.
 *
 * Reads the whole conversation. Writes phase, the cohort's trajectories, and the number of waiting lanes. Runs last, so that the lane is
 * free in the next tick.
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

/** Appends the rows of lane n's conversation. Returns false if the log has no room for them. */
function storeLane(cohort: ConversationCohort, n: number): boolean {
  const { conversation, replies, segments, trajectories } = cohort
  const { reward: last, components = {}, error } = replies[n]!
  const isTold = conversation.known[n] === 1
  // Every row has the reward of the whole conversation.
  const worth = {
    reward: isTold ? conversation.reward[n]! : null,
    turnReward: turnRewardsOf(conversation, n),
    components,
    error: error ?? (isTold || last === null ? null : 'the reward of an earlier turn is unknown'),
  }
  const rows = [...segments[n]!, segmentOf(cohort, n)].map((row) => ({ ...row, ...worth }))
  if (!trajectories.appendConversation(rows)) return false
  segments[n] = []
  return true
}
