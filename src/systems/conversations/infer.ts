import { type ConversationCohort, type DecodingWorkers, SHARE_LANES } from '../../cohorts/conversations.ts'
import { ConversationPhase } from '../../components/conversation.ts'
import { type StopReason, stopReasons } from '../../environments/text.ts'
import type { Kernels } from '../../kernels/bind.ts'

/**
 * The model says one token in every lane where it has the turn. What is not in the cache yet, a prompt or what the
 * environment said, is fed first. Where other threads help, each does that for its share of the lanes: then it is a
 * promise.
 *
 * Reads token, length, phase. Writes the token, its logprob and version, length, and where a turn is over its stopReason
 * and whether it was cut.
 */
export function inferConversations(_: Kernels, cohort: ConversationCohort): void | Promise<void> {
  const { workers } = cohort
  const count = listDecoding(cohort)
  if (count === 0) return
  const numShares = workers === null ? 1 : numSharesOf(cohort, count)
  if (workers !== null && numShares > 1) return decodeTogether(cohort, count, numShares, workers)
  decodeShare(cohort, 0, 1)
  appendAll(cohort, count, 1)
}

/** What a thread has to know to speak in a cohort's lanes. */
export type DecodingLanes = Pick<
  ConversationCohort,
  'conversation' | 'decoder' | 'context' | 'sampling' | 'explore' | 'laneList'
>

/** Feeds what is not in the cache, and chooses a token, in the lanes of share `index` of `numShares`, if there is one. */
export function decodeShare(lanes: DecodingLanes, index: number, numShares: number): void {
  const { conversation, decoder, laneList, context, sampling, explore } = lanes
  const { slot, lane, episode, draw, forward } = decoder.columns
  if (index >= numShares) return
  const [from, to] = shareOf(listDecoding(lanes), index, numShares)
  for (let i = from; i < to; i++) feed(lanes, laneList[i]!)
  for (let i = from, row = 0; i < to; i++, row++) {
    const n = laneList[i]!
    const last = conversation.length[n]! - 1
    slot[row] = n
    // A conversation's random numbers are keyed by which it is, so that it does not matter which lane takes it.
    lane[row] = conversation.group[n]!
    episode[row] = conversation.member[n]!
    draw[row] = conversation.tokensBefore[n]! + last
    forward.token[row] = conversation.token[n * context + last]!
    forward.position[row] = last
  }
  decoder.advance(to - from, sampling, explore)
}

/** Writes the lanes in which the model has the turn into `laneList`; returns how many there are. */
function listDecoding({ conversation, laneList }: Pick<DecodingLanes, 'conversation' | 'laneList'>): number {
  let count = 0
  for (let n = 0; n < laneList.length; n++) if (conversation.phase[n] === ConversationPhase.model) laneList[count++] = n
  return count
}

/** The rows of a share. */
function shareOf(count: number, index: number, numShares: number): [from: number, to: number] {
  return [Math.floor((index * count) / numShares), Math.floor(((index + 1) * count) / numShares)]
}

/**
 * Among how many threads `count` lanes are shared; the tokens are the same whatever it is. A pass over two rows takes as long
 * as one over four, as both read all weights once; and two meetings of the threads cost some 50 µs.
 */
function numSharesOf({ decoders, model }: ConversationCohort, count: number): number {
  if (count * model.numParameters < 2 ** 21) return 1
  return Math.min(decoders.length, Math.floor(count / SHARE_LANES))
}

async function decodeTogether(
  cohort: ConversationCohort,
  count: number,
  numShares: number,
  workers: DecodingWorkers,
): Promise<void> {
  await workers.begin(numShares)
  decodeShare(cohort, 0, numShares)
  await workers.finish()
  appendAll(cohort, count, numShares)
}

/** Feeds what of lane n is not in the cache, but for its last token. */
function feed({ conversation, decoder, context }: DecodingLanes, n: number): void {
  const { token, cached, length } = conversation
  const last = length[n]! - 1
  if (cached[n]! < last) decoder.feed(n, token.subarray(n * context + cached[n]!, n * context + last), cached[n]!)
  cached[n] = last + 1
}

/** Says what all shares of the `count` lanes have chosen. */
function appendAll(cohort: ConversationCohort, count: number, numShares: number): void {
  const { laneList, decoders } = cohort
  for (let index = 0; index < numShares; index++) {
    const { chosen, support, supportOffset, forward } = decoders[index]!
    const [from, to] = shareOf(count, index, numShares)
    for (let i = from, row = 0; i < to; i++, row++) {
      const ids = support.subarray(supportOffset[row], supportOffset[row + 1])
      say(cohort, laneList[i]!, chosen[row]!, forward.logprob[row]!, ids)
    }
  }
}

/** `support` are the tokens of which it was drawn, where a filter had left some out. */
function say(cohort: ConversationCohort, n: number, token: number, logprob: number, support: Int32Array): void {
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

function end({ conversation }: ConversationCohort, n: number, reason: StopReason): void {
  conversation.phase[n] = ConversationPhase.over
  conversation.stopReason[n] = stopReasons.indexOf(reason)
  if (reason !== 'stop') conversation.cutTurns[n] = conversation.cutTurns[n]! + 1
}
