/** Computes the start of a lane's next turn after a reply. */
import { type Message, type Reply, stopReasons } from '../../environments/text.ts'
import { replyIds, spelledMessage } from '../../language/templates/dialogue.ts'
import { type ConversationCohort, type Segment, segmentOf } from '../../world/conversations/cohort.ts'
import { withoutEnd } from './turn.ts'

export interface NextTurn {
  readonly messages: Message[]
  /** The ids to append; if the turn begins a new segment, all ids from the first. */
  readonly ids: readonly number[]
  readonly isRow: boolean
}

/**
 * Returns the start of lane n's next turn. `standing` is the segment that ends with the answer to be followed. Returns null if the
 * conversation may not continue or has no room. If the model must answer again, its last answer is left out.
 */
export function nextTurnOf(cohort: ConversationCohort, n: number, reply: Reply, standing: Segment): NextTurn | null {
  const { conversation, environment, context, histories, tokenizer, segmentation, cutTurn } = cohort
  const start = conversation.turnStart[n]!
  const length = conversation.length[n]!
  const stood = Array.from(standing.token)
  if (reply.messages === undefined) return { messages: histories[n]!, ids: stood.slice(0, start), isRow: true }
  if (standing.stopReason !== 'stop' && cutTurn === 'end') return null
  const said = withoutEnd(tokenizer, Int32Array.from(stood.slice(start)))
  const before = [...histories[n]!, spelledMessage(tokenizer, said)]
  const example = environment.example(conversation.promptId[n]!)
  const { ids, isRewritten } = replyIds(tokenizer, example, before, reply.messages, stood.at(-1)!)
  const isCurrent = standing.segment === conversation.segment[n]
  const isRow = isRewritten || !isCurrent || segmentation === 'branching'
  const next = isRow && !isRewritten ? [...stood, ...ids] : ids
  if ((isRow ? 0 : length) + next.length < context) {
    return { messages: [...before, ...reply.messages], ids: next, isRow }
  }
  conversation.stopReason[n] = stopReasons.indexOf('context')
  return null
}

/**
 * The segment of lane n that ends with the answer of `turn` (default: the current turn); null if none answers the current turn's prompt.
 */
export function rowThatStands(cohort: ConversationCohort, n: number, turn: number | undefined): Segment | null {
  const { conversation, segments } = cohort
  const current = segmentOf(cohort, n)
  if (turn === undefined || turn === conversation.turn[n]) return current
  const start = conversation.turnStart[n]!
  const isAnswer = (row: Segment) => {
    for (let t = 0; t < start; t++) if (row.token[t] !== current.token[t]) return false
    return row.turn[start] === turn && row.turn[row.turn.length - 1] === turn
  }
  return segments[n]!.find(isAnswer) ?? null
}
