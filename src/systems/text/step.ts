import { Talk } from '../../components/conversation.ts'
import { type Reply, stopReasons, type Turn } from '../../environments/text.ts'
import { show } from '../../errors.ts'
import { replyIds } from '../../text/dialogue.ts'
import type { PendingReply, TextCohort } from '../../text-cohort.ts'
import type { World } from '../../world.ts'
import { hear } from './reset.ts'

/**
 * The environment replies to turns that are over: with a reward, with more to hear, or both. A reply that takes time is
 * awaited while other lanes go on, and replies that have come are taken in lane order.
 *
 * Reads phase, token, stopReason. Writes reward, known, what was said to the model, turn, phase. What goes wrong in the
 * environment is an unknown reward and an error on the lane, not an exception through the tick.
 */
export function stepText(world: World): void {
  for (const cohort of world.conversations) {
    const { conversation, numLanes, pending } = cohort
    for (let n = 0; n < numLanes; n++) {
      const isAsked = conversation.phase[n] === Talk.asked
      if (!isAsked && conversation.phase[n] !== Talk.over) continue
      if (!isAsked || pending[n] === null) ask(cohort, n) // A resumed run asks again for what was owed.
      const answer = pending[n]!
      if (answer.reply === null) continue
      pending[n] = null
      take(cohort, n, answer.reply)
    }
  }
}

function ask(cohort: TextCohort, n: number): void {
  const stop = new AbortController()
  let reply: Reply | Promise<Reply>
  try {
    reply = cohort.environment.respond(turnOf(cohort, n), stop.signal)
  } catch (error) {
    reply = failed(error)
  }
  cohort.conversation.phase[n] = Talk.asked
  cohort.pending[n] = reply instanceof Promise ? awaited(reply, stop, cohort.replyMilliseconds) : arrived(reply)
}

function turnOf({ conversation, environment, tokenizer, context, histories }: TextCohort, n: number): Turn {
  const { token, turnStart, length, promptId, turn } = conversation
  const stopReason = stopReasons[conversation.stopReason[n]!]!
  const last = n * context + length[n]! - 1
  const said = token.subarray(n * context + turnStart[n]!, tokenizer.endIds.includes(token[last]!) ? last : last + 1)
  return {
    example: environment.example(promptId[n]!),
    exampleIndex: promptId[n]!,
    completion: tokenizer.decode(said, { skipSpecial: true }),
    turn: turn[n]!,
    stopReason,
    messages: histories[n]!,
  }
}

function arrived(reply: Reply): PendingReply {
  return { reply, arrival: Promise.resolve(), letGo() {} }
}

function awaited(promise: Promise<Reply>, stop: AbortController, milliseconds: number): PendingReply {
  const pending: PendingReply = { reply: null, arrival: Promise.resolve(), letGo() {} }
  let timer: ReturnType<typeof setTimeout> | undefined
  pending.letGo = () => {
    stop.abort()
    clearTimeout(timer)
  }
  const late = new Promise<Reply>((resolve) => {
    timer = setTimeout(() => {
      stop.abort()
      resolve(failed(new Error(`no reply within ${milliseconds / 1000} s`)))
    }, milliseconds)
  })
  pending.arrival = Promise.race([promise.catch(failed), late]).then((reply) => {
    clearTimeout(timer)
    pending.reply = reply
  })
  return pending
}

function failed(error: unknown): Reply {
  return { reward: null, error: error instanceof Error ? error.message : String(error) }
}

function take(cohort: TextCohort, n: number, given: Reply): void {
  const { conversation, environment, context, histories, tokenizer, replies } = cohort
  const reply = checked(given)
  const { example, completion, messages, stopReason } = turnOf(cohort, n)
  replies[n] = reply
  conversation.reward[n] = reply.reward ?? 0
  conversation.known[n] = reply.reward === null ? 0 : 1
  conversation.phase[n] = Talk.ended
  if (reply.messages === undefined || stopReason !== 'stop') return
  if (conversation.turn[n]! + 1 >= environment.maxTurns) return
  const before = [...messages, { role: 'assistant', content: completion }]
  const lastId = conversation.token[n * context + conversation.length[n]! - 1]!
  const ids = replyIds(tokenizer, example, before, reply.messages, lastId)
  if (conversation.length[n]! + ids.length >= context) {
    conversation.stopReason[n] = stopReasons.indexOf('context')
    return
  }
  histories[n] = [...before, ...reply.messages]
  conversation.turn[n] = conversation.turn[n]! + 1
  hear(cohort, n, ids)
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

function isMessage(message: unknown): boolean {
  const { role, content } = (message ?? {}) as Record<string, unknown>
  return typeof role === 'string' && typeof content === 'string'
}
