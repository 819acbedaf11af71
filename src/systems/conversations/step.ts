import { type ConversationCohort, type PendingReply, type Segment, segmentOf } from '../../cohorts/conversations.ts'
import { ConversationPhase, turnRewardsOf } from '../../components/conversation.ts'
import {
  isMessage,
  type Message,
  type Reply,
  reduceTurnRewards,
  stopReasons,
  type Turn,
} from '../../environments/text.ts'
import { show } from '../../errors.ts'
import type { Kernels } from '../../kernels/bind.ts'
import { replyIds, spelledMessage } from '../../text/dialogue.ts'
import { append } from './reset.ts'

/**
 * The environment replies to turns that are over: with a reward, with more to hear, or both. A reply that takes time is
 * awaited while other lanes go on, and replies that have come are taken in lane order.
 *
 * Where the chat template rewrites what stands, the lane begins a new segment.
 *
 * Reads phase, token, stopReason. Writes reward, known, what was said to the model, turn, segment, phase. What goes wrong in
 * the environment is an unknown reward and an error on the lane, not an exception through the tick.
 */
export function stepConversations(_: Kernels, cohort: ConversationCohort): void {
  const { conversation, numLanes, pending } = cohort
  for (let n = 0; n < numLanes; n++) {
    const isAsked = conversation.phase[n] === ConversationPhase.asked
    if (!isAsked && conversation.phase[n] !== ConversationPhase.over) continue
    if (!isAsked || pending[n] === null) ask(cohort, n) // A resumed run asks again for what was owed.
    const answer = pending[n]!
    if (answer.reply === null) continue
    pending[n] = null
    take(cohort, n, answer.reply)
  }
}

function ask(cohort: ConversationCohort, n: number): void {
  const stop = new AbortController()
  let reply: Reply | Promise<Reply>
  try {
    reply = cohort.environment.respond(turnOf(cohort, n), stop.signal)
  } catch (error) {
    reply = failed(error)
  }
  cohort.conversation.phase[n] = ConversationPhase.asked
  const limit = cohort.environment.repliesInTime === true ? null : cohort.replyMilliseconds
  cohort.pending[n] = reply instanceof Promise ? awaited(reply, stop, cohort, n, limit) : arrived(reply)
}

/** What the model said in lane n's turn, without the token that ended it. */
function completionOfTurn({ conversation, tokenizer, context }: ConversationCohort, n: number): Int32Array {
  const { token, turnStart, length } = conversation
  const last = n * context + length[n]! - 1
  return token.subarray(n * context + turnStart[n]!, tokenizer.endIds.includes(token[last]!) ? last : last + 1)
}

function turnOf(cohort: ConversationCohort, n: number): Turn {
  const { conversation, environment, tokenizer, histories } = cohort
  const { promptId, turn } = conversation
  const stopReason = stopReasons[conversation.stopReason[n]!]!
  const said = completionOfTurn(cohort, n)
  return {
    example: environment.example(promptId[n]!),
    exampleIndex: promptId[n]!,
    completion: tokenizer.decode(said, { skipSpecial: true }),
    raw: tokenizer.decode(said),
    turn: turn[n]!,
    stopReason,
    messages: histories[n]!,
  }
}

function arrived(reply: Reply): PendingReply {
  return { reply: checked(reply), arrival: Promise.resolve(), cancel() {} }
}

function awaited(
  promise: Promise<Reply>,
  stop: AbortController,
  { environment, onLate }: ConversationCohort,
  n: number,
  milliseconds: number | null,
): PendingReply {
  const since = new Date()
  const pending: PendingReply = { reply: null, arrival: Promise.resolve(), cancel() {} }
  let timer: ReturnType<typeof setTimeout> | undefined
  pending.cancel = () => {
    stop.abort()
    clearTimeout(timer)
  }
  const late = new Promise<Reply>((resolve) => {
    if (milliseconds === null) return
    timer = setTimeout(() => {
      const asked = `lane ${n}: respond of ${environment.id}, asked at ${since.toISOString()}`
      if (onLate?.(`${asked}, has not answered for ${milliseconds / 1000} s`) === 'stop') return // It is asked again.
      stop.abort()
      resolve(failed(new Error(`no reply within ${milliseconds / 1000} s`)))
    }, milliseconds)
  })
  pending.arrival = Promise.race([promise.catch(failed), late]).then((reply) => {
    clearTimeout(timer)
    pending.reply = checked(reply)
  })
  return pending
}

function failed(error: unknown): Reply {
  return { reward: null, error: error instanceof Error ? error.message : String(error) }
}

function take(cohort: ConversationCohort, n: number, reply: Reply): void {
  const { conversation, environment, context, histories, tokenizer, replies } = cohort
  const { example, messages, stopReason } = turnOf(cohort, n)
  replies[n] = reply
  const turns = turnRewardsOf(conversation, n)
  turns[turns.length - 1] = reply.reward ?? Number.NaN
  const reward = reduceTurnRewards(turns, cohort.rewardReduction)
  conversation.reward[n] = reward ?? 0
  conversation.known[n] = reward === null ? 0 : 1
  conversation.phase[n] = ConversationPhase.ended
  if (reply.messages === undefined || conversation.turn[n]! + 1 >= environment.maxTurns) return
  conversation.unheard[n] = 1 // Until the model hears it.
  if (stopReason !== 'stop' && cohort.cutTurn === 'end') return
  const before: Message[] = [...messages, spelledMessage(tokenizer, completionOfTurn(cohort, n))]
  const lastId = conversation.token[n * context + conversation.length[n]! - 1]!
  const { ids, isRewritten } = replyIds(tokenizer, example, before, reply.messages, lastId)
  if ((isRewritten ? 0 : conversation.length[n]!) + ids.length >= context) {
    conversation.stopReason[n] = stopReasons.indexOf('context')
    return
  }
  conversation.unheard[n] = 0
  histories[n] = [...before, ...reply.messages]
  if (isRewritten) beginSegment(cohort, n, ids)
  conversation.turn[n] = conversation.turn[n]! + 1
  append(cohort, n, ids)
}

/** Puts lane n's segment aside, and makes room for one that begins with `ids`. What both begin with stays in the cache. */
function beginSegment(cohort: ConversationCohort, n: number, ids: readonly number[]): void {
  const { conversation, context, segments, supports } = cohort
  const { token, cached, length, tokensBefore, segment } = conversation
  segments[n]!.push(copyOf(segmentOf(cohort, n)))
  supports[n] = []
  let common = 0
  while (common < Math.min(ids.length, cached[n]!) && token[n * context + common] === ids[common]) common++
  cached[n] = common
  tokensBefore[n] = tokensBefore[n]! + length[n]!
  segment[n] = segment[n]! + 1
  conversation.cutTurns[n] = 0
  length[n] = 0
}

/** A segment whose token columns are no views. */
function copyOf(segment: Segment): Segment {
  const columns = ['token', 'lossMask', 'logprob', 'version', 'turn', 'supportLength', 'supportIds'] as const
  return { ...segment, ...Object.fromEntries(columns.map((name) => [name, Array.from(segment[name]!)])) }
}

/** A reply whose reward is a finite number, or unknown, and whose messages are messages. */
function checked(reply: Reply): Reply {
  if (typeof reply !== 'object' || reply === null) return failed(`a reply that is ${String(reply)}, not an object`)
  const { reward, messages } = reply
  if (messages !== undefined && !(Array.isArray(messages) && messages.every(isMessage))) {
    return failed(`messages that are ${show(messages)}, not a list of { role, content }`)
  }
  if (reward === null || (typeof reward === 'number' && Number.isFinite(reward))) return reply
  return { ...reply, reward: null, error: reply.error ?? `a reward of ${String(reward)}` }
}
