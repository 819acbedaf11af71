import { type ConversationCohort, segmentOf } from '../../cohorts/conversations.ts'
import { ConversationPhase, turnRewardsOf } from '../../components/conversation.ts'
import type { Kernels } from '../../kernels/bind.ts'

/**
 * Keeps the conversations that are over as trajectories, a row for each of their segments, and frees their lanes.
 *
 * Reads the whole conversation. Writes phase and the cohort's trajectories. Runs last, so that the lane is free when the
 * next tick opens.
 */
export function storeConversations(_: Kernels, cohort: ConversationCohort): void {
  const { conversation, numLanes, replies, segments, trajectories } = cohort
  for (let n = 0; n < numLanes; n++) {
    if (conversation.phase[n] !== ConversationPhase.ended) continue
    const { reward: last, components = {}, error } = replies[n]!
    const isTold = conversation.known[n] === 1
    // What the conversation is worth, each of its rows is.
    const worth = {
      reward: isTold ? conversation.reward[n]! : null,
      turnReward: turnRewardsOf(conversation, n),
      components,
      error: error ?? (isTold || last === null ? null : 'the reward of a turn before is not known'),
    }
    for (const row of [...segments[n]!, segmentOf(cohort, n)]) trajectories.append({ ...row, ...worth })
    segments[n] = []
    conversation.phase[n] = ConversationPhase.free
  }
}
