import { show } from '../../base/errors.ts'
import { ConversationPhase, turnRewardsOf } from '../../components/conversation.ts'
import { isMessage, type Reply, reduceTurnRewards } from '../../environments/text.ts'
import type { Kernels } from '../../kernels/kernels.ts'
import { turnDrawing } from '../../language/turn-sampling.ts'
import {
  type ConversationCohort,
  canGoOn,
  type PendingReply,
  type Segment,
  segmentOf,
} from '../../world/conversations/cohort.ts'
import { nextTurnOf, rowThatStands } from './next-turn.ts'
import { append } from './reset.ts'
import { turnOf } from './turn.ts'

/**
 * Gets the environment's replies to finished turns: a reward, messages to append, or both. A slow reply is awaited while other lanes
 * continue; replies are applied in lane order. If the environment replies to several turns together, finished turns wait for others
 * (`batchesOf`). If the chat template rewrites earlier text, the lane begins a new segment.
 *
 * Reads phase, token, stopReason. Writes reward, known, input tokens, turn, segment, phase. An environment failure becomes an unknown
 * reward and an error on the lane, not an exception.
 */
export function stepConversations(_: Kernels, cohort: ConversationCohort): void {
  const { conversation, numLanes, pending } = cohort
  for (let n = 0; n < numLanes; n++) {
    if (conversation.phase[n] === ConversationPhase.over) conversation.phase[n] = ConversationPhase.asked
  }
  const { together } = cohort.environment
  if (together === undefined) {
    for (let n = 0; n < numLanes; n++) if (isToBeAsked(cohort, n)) ask(cohort, [n])
  } else askTogether(cohort, together.size)
  for (let n = 0; n < numLanes; n++) {
    const answer = pending[n]?.reply ?? null
    if (answer === null) continue
    pending[n] = null
    take(cohort, n, answer)
  }
}

/** A separate function, so that ticks without replies allocate no closures. */
function askTogether(cohort: ConversationCohort, size: number | 'group'): void {
  const waiting = Array.from({ length: cohort.numLanes }, (_, n) => n).filter((n) => isToBeAsked(cohort, n))
  for (const lanes of batchesOf(cohort, waiting, size)) ask(cohort, lanes)
}

/** Whether the environment must be asked about the finished turn; a resumed run asks again. */
function isToBeAsked({ conversation, pending }: ConversationCohort, n: number): boolean {
  return conversation.phase[n] === ConversationPhase.asked && pending[n] === null
}

/**
 * The lanes whose turns get a joint reply, in the order of their conversations: batches of `size`, smaller only if no lane can continue
 * otherwise; or whole groups. A group that will get no more conversations has unknown rewards.
 */
function batchesOf(cohort: ConversationCohort, waiting: readonly number[], size: number | 'group'): number[][] {
  const { conversation, groupSize, pending } = cohort
  const { group, member } = conversation
  const lanes = waiting.toSorted((a, b) => group[a]! - group[b]! || member[a]! - member[b]!)
  const isTaken = pending.some((owed) => owed !== null && owed.reply !== null) // Its lane continues in this tick.
  const mayWait = canGoOn(cohort) || isTaken
  if (size !== 'group') {
    const end = mayWait ? lanes.length - (lanes.length % size) : lanes.length
    return Array.from({ length: Math.ceil(end / size) }, (_, i) => lanes.slice(i * size, Math.min((i + 1) * size, end)))
  }
  const groups = new Map<number, number[]>()
  for (const n of lanes) groups.set(group[n]!, [...(groups.get(group[n]!) ?? []), n])
  const whole = [...groups.values()].filter((members) => members.length === groupSize)
  if (whole.length === 0 && !mayWait && !pending.some((owed) => owed !== null)) {
    for (const n of lanes) {
      const error = `${groups.get(group[n]!)!.length} of the ${groupSize} conversations of a group that needs all of them`
      pending[n] = arrived([failed(error)], 1)[0]!
    }
  }
  return whole
}

/** Requests the replies to the turns of these lanes: to one turn, or to several together. */
function ask(cohort: ConversationCohort, lanes: readonly number[]): void {
  const { environment, pending, replyMilliseconds } = cohort
  const stop = new AbortController()
  let replies: readonly Reply[] | Promise<readonly Reply[]>
  try {
    const turns = lanes.map((n) => turnOf(cohort, n))
    if (environment.together === undefined) {
      const reply = environment.respond(turns[0]!, stop.signal)
      replies = reply instanceof Promise ? reply.then((one) => [one]) : [reply]
    } else replies = environment.together.respond(turns, stop.signal)
  } catch (error) {
    replies = lanes.map(() => failed(error))
  }
  const limit = environment.repliesInTime === true ? null : replyMilliseconds
  const owed =
    replies instanceof Promise ? awaited(replies, stop, cohort, lanes, limit) : arrived(replies, lanes.length)
  for (const [i, n] of lanes.entries()) pending[n] = owed[i]!
}

function arrived(replies: readonly Reply[], count: number): PendingReply[] {
  return checkedAll(replies, count).map((reply) => ({ reply, arrival: Promise.resolve(), cancel() {} }))
}

/** A joint reply to several lanes: either all of its parts are applied or none. */
function awaited(
  promise: Promise<readonly Reply[]>,
  stop: AbortController,
  { environment, onLate }: ConversationCohort,
  lanes: readonly number[],
  milliseconds: number | null,
): PendingReply[] {
  const since = new Date()
  let timer: ReturnType<typeof setTimeout> | undefined
  const allFailed = (error: unknown): Reply[] => lanes.map(() => failed(error))
  const late = new Promise<readonly Reply[]>((resolve) => {
    if (milliseconds === null) return
    timer = setTimeout(() => {
      const who = lanes.length === 1 ? `lane ${lanes[0]}` : `lanes ${lanes.join(', ')}`
      const asked = `${who}: respond of ${environment.id}, asked at ${since.toISOString()}`
      if (onLate?.(`${asked}, has not answered for ${milliseconds / 1000} s`) === 'stop') return // The resumed run asks again.
      stop.abort()
      resolve(allFailed(new Error(`no reply within ${milliseconds / 1000} s`)))
    }, milliseconds)
  })
  const arrival = Promise.race([promise.catch(allFailed), late]).then((replies) => {
    clearTimeout(timer)
    for (const [i, reply] of checkedAll(replies, lanes.length).entries()) owed[i]!.reply = reply
  })
  const cancel = (): void => {
    stop.abort()
    clearTimeout(timer)
  }
  const owed = lanes.map((): PendingReply => ({ reply: null, arrival, cancel }))
  return owed
}

/** Checks that there is one reply per turn; otherwise replies cannot be matched to turns. */
function checkedAll(replies: readonly Reply[], count: number): Reply[] {
  if (Array.isArray(replies) && replies.length === count) return replies.map(checked)
  const got = Array.isArray(replies) ? `${replies.length} replies` : show(replies)
  return Array.from({ length: count }, () => failed(new Error(`${got} to ${count} turns`)))
}

function failed(error: unknown): Reply {
  return { reward: null, error: error instanceof Error ? error.message : String(error) }
}

function take(cohort: ConversationCohort, n: number, given: Reply): void {
  const { conversation, environment, histories, replies } = cohort
  const goesOn = given.messages !== undefined || given.again === true
  const standing = goesOn ? rowThatStands(cohort, n, given.stands) : null
  const wrong = wrongOf(cohort, given, goesOn && standing === null)
  const reply = wrong === null ? given : failed(wrong)
  replies[n] = reply
  const turns = turnRewardsOf(conversation, n)
  turns[turns.length - 1] = reply.reward ?? Number.NaN
  const reward = reduceTurnRewards(turns, cohort.rewardReduction)
  conversation.reward[n] = reward ?? 0
  conversation.known[n] = reward === null ? 0 : 1
  conversation.phase[n] = ConversationPhase.ended
  if (wrong !== null || standing === null || conversation.turn[n]! + 1 >= environment.maxTurns) return
  conversation.droppedReplies[n] = 1 // Until the reply is appended.
  const next = nextTurnOf(cohort, n, reply, standing)
  if (next === null) return
  if (reply.sampling !== undefined) {
    cohort.drawings[n]!.set(conversation.turn[n]! + 1, turnDrawing(reply.sampling, cohort, cohort.tokenizer))
  }
  conversation.droppedReplies[n] = 0
  histories[n] = next.messages
  if (next.isRow) beginSegment(cohort, n, next.ids)
  conversation.turn[n] = conversation.turn[n]! + 1
  const { maxTokens = cohort.maxTokens } = environment.example(conversation.promptId[n]!)
  conversation.budget[n] = reply.maxTokens ?? maxTokens
  append(cohort, n, next.ids)
}

/** Returns why a reply cannot be applied; null if it can. */
function wrongOf(cohort: ConversationCohort, { again, stands, sampling }: Reply, isLost: boolean): string | null {
  const { id, answersAgain } = cohort.environment
  if (isLost) return `turn ${stands}, which answers another prompt than the last turn`
  if (again === true && answersAgain !== true) return `again, which requires answersAgain of ${id}`
  if (sampling === undefined) return null
  try {
    turnDrawing(sampling, cohort, cohort.tokenizer)
    return null
  } catch (error) {
    return (error as Error).message
  }
}

/** Stores lane n's segment and starts one with `ids`. The engine may have cached the common prefix of both. */
function beginSegment(cohort: ConversationCohort, n: number, ids: readonly number[]): void {
  const { conversation, context, segments } = cohort
  const { token, unchanged, length, tokensBefore, segment } = conversation
  segments[n]!.push(copyOf(segmentOf(cohort, n)))
  conversation.numCandidateIds[n] = 0
  let common = 0
  while (common < Math.min(ids.length, length[n]!) && token[n * context + common] === ids[common]) common++
  unchanged[n] = common
  tokensBefore[n] = tokensBefore[n]! + length[n]!
  segment[n] = segment[n]! + 1
  conversation.cutTurns[n] = 0
  length[n] = 0
}

/** A copy of a segment that does not view the lane's columns. */
function copyOf(segment: Segment): Segment {
  const columns = ['token', 'lossMask', 'logprob', 'version', 'turn', 'candidateCount', 'candidateIds'] as const
  return { ...segment, ...Object.fromEntries(columns.map((name) => [name, Array.from(segment[name]!)])) }
}

/** Checks that a reply's reward is finite or unknown and that its messages are valid. */
function checked(reply: Reply): Reply {
  if (typeof reply !== 'object' || reply === null) return failed(`got reply ${String(reply)}, expected an object`)
  const { reward, messages, again, maxTokens } = reply
  if (again === true && messages !== undefined) return failed('got again and messages, expected one of them')
  if (maxTokens !== undefined && !(Number.isSafeInteger(maxTokens) && maxTokens >= 1)) {
    return failed(`got maxTokens ${show(maxTokens)}, expected a whole number ≥ 1`)
  }
  if (messages !== undefined && !(Array.isArray(messages) && messages.every(isMessage))) {
    return failed(`got messages ${show(messages)}, expected a list of { role, content }`)
  }
  if (reward === null || (typeof reward === 'number' && Number.isFinite(reward))) return reply
  return { ...reply, reward: null, error: reply.error ?? `got reward ${String(reward)}` }
}
