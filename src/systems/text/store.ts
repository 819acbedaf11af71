import { Talk } from '../../components/conversation.ts'
import { stopReasons } from '../../environments/text.ts'
import type { World } from '../../world.ts'

/**
 * Keeps the conversations that are over as trajectories, and frees their lanes.
 *
 * Reads the whole conversation. Writes phase and the cohort's trajectories. Runs last, so that the lane is free when the
 * next tick opens.
 */
export function storeText(world: World): void {
  for (const { conversation, context, numLanes, replies, supports, source, trajectories } of world.conversations) {
    for (let n = 0; n < numLanes; n++) {
      if (conversation.phase[n] !== Talk.ended) continue
      const [from, to] = [n * context, n * context + conversation.length[n]!]
      const reply = replies[n]!
      trajectories.append({
        source,
        promptId: conversation.promptId[n]!,
        group: conversation.group[n]!,
        member: conversation.member[n]!,
        epoch: conversation.epoch[n]!,
        turns: conversation.turn[n]! + 1,
        stopReason: stopReasons[conversation.stopReason[n]!]!,
        reward: conversation.known[n] === 1 ? conversation.reward[n]! : null,
        components: reply.components ?? {},
        error: reply.error ?? null,
        token: conversation.token.subarray(from, to),
        lossMask: conversation.lossMask.subarray(from, to),
        logprob: conversation.logprob.subarray(from, to),
        version: conversation.version.subarray(from, to),
        turn: conversation.turnOf.subarray(from, to),
        supportLength: conversation.supportLength.subarray(from, to),
        supportIds: supports[n]!,
      })
      conversation.phase[n] = Talk.free
    }
  }
}
