import { Talk } from '../../components/conversation.ts'
import { type StopReason, stopReasons } from '../../environments/text.ts'
import type { TextCohort } from '../../text-cohort.ts'
import type { World } from '../../world.ts'

/**
 * The model says one token in every lane where it has the turn. What is not in the cache yet, a prompt or what the
 * environment said, is fed first.
 *
 * Reads token, length, phase. Writes the token, its logprob and version, length, and where a turn is over its stopReason.
 */
export function inferText(world: World): void {
  for (const cohort of world.conversations) {
    const { conversation, decoder, laneList, numLanes, context, sampling, explore } = cohort
    const { slot, lane, episode, chosen, support, supportOffset, forward } = decoder.columns
    let count = 0
    for (let n = 0; n < numLanes; n++) {
      if (conversation.phase[n] !== Talk.model) continue
      feed(cohort, n)
      laneList[count++] = n
    }
    for (let row = 0; row < count; row++) {
      const n = laneList[row]!
      const last = conversation.length[n]! - 1
      slot[row] = n
      // A conversation's random numbers are keyed by which it is, so that it does not matter which lane takes it.
      lane[row] = conversation.group[n]!
      episode[row] = conversation.member[n]!
      forward.token[row] = conversation.token[n * context + last]!
      forward.position[row] = last
    }
    if (count === 0) continue
    decoder.advance(count, sampling, explore)
    for (let row = 0; row < count; row++) {
      const ids = support.subarray(supportOffset[row], supportOffset[row + 1])
      say(cohort, laneList[row]!, chosen[row]!, forward.logprob[row]!, ids)
    }
  }
}

/** Feeds what of lane n is not in the cache, but for its last token. */
function feed({ conversation, decoder, context }: TextCohort, n: number): void {
  const { token, cached, length } = conversation
  const last = length[n]! - 1
  if (cached[n]! < last) decoder.feed(n, token.subarray(n * context + cached[n]!, n * context + last), cached[n]!)
  cached[n] = last + 1
}

/** `support` are the tokens of which it was drawn, where a filter had left some out. */
function say(cohort: TextCohort, n: number, token: number, logprob: number, support: Int32Array): void {
  const { conversation, context, tokenizer, stops, version } = cohort
  const { length, turnStart, turn, budget } = conversation
  const at = n * context + length[n]!
  conversation.token[at] = token
  conversation.lossMask[at] = 1
  conversation.logprob[at] = logprob
  conversation.version[at] = version
  conversation.turnOf[at] = turn[n]!
  conversation.supportLength[at] = support.length
  for (const id of support) cohort.supports[n]!.push(id)
  length[n] = length[n]! + 1
  const isStopped = stops[n]!.push(token) !== null
  if (isStopped || tokenizer.endIds.includes(token)) end(cohort, n, 'stop')
  else if (length[n]! - turnStart[n]! >= budget[n]!) end(cohort, n, 'length')
  else if (length[n]! >= context) end(cohort, n, 'context')
}

function end({ conversation }: TextCohort, n: number, reason: StopReason): void {
  conversation.phase[n] = Talk.over
  conversation.stopReason[n] = stopReasons.indexOf(reason)
}
