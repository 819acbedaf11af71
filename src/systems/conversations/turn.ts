/** A lane's turns in the environment's format: the finished turn and the earlier ones. */
import { InputError } from '../../base/errors.ts'
import { type PastTurn, stopReasons, type Turn } from '../../environments/text.ts'
import type { Tokenizer } from '../../language/tokenizers/tokenizer.ts'
import { type ConversationCohort, type Segment, segmentOf } from '../../world/conversations/cohort.ts'

/** The model's tokens in lane n's turn, without the end token. */
export function completionOfTurn({ conversation, tokenizer, context }: ConversationCohort, n: number): Int32Array {
  const { token, turnStart, length } = conversation
  const [from, to] = [n * context + turnStart[n]!, n * context + length[n]!]
  return withoutEnd(tokenizer, token.subarray(from, to))
}

/** The tokens of a turn, without the end token. */
export function withoutEnd({ endIds }: Tokenizer, ids: Int32Array): Int32Array {
  return endIds.includes(ids.at(-1)!) ? ids.subarray(0, -1) : ids
}

/** The finished turn of lane n. */
export function turnOf(cohort: ConversationCohort, n: number): Turn {
  const { conversation, environment, tokenizer, histories } = cohort
  const { promptId, turn } = conversation
  const said = completionOfTurn(cohort, n)
  const number = turn[n]!
  return {
    example: environment.example(promptId[n]!),
    exampleIndex: promptId[n]!,
    completion: tokenizer.decode(said, { skipSpecial: true }),
    raw: tokenizer.decode(said),
    turn: number,
    stopReason: stopReasons[conversation.stopReason[n]!]!,
    messages: histories[n]!,
    past: (asked = number) => pastTurn(cohort, n, asked),
  }
}

/** A finished or earlier turn of lane n's conversation. */
function pastTurn(cohort: ConversationCohort, n: number, turn: number): PastTurn {
  const { conversation, tokenizer, drawings } = cohort
  const { stopStrings } = drawings[n]!.get(turn) ?? cohort
  for (const row of [segmentOf(cohort, n), ...cohort.segments[n]!]) {
    const [from, to] = spanOfTurn(row, turn)
    if (from === to) continue
    const ids = Array.from(row.token).slice(from, to)
    const said = withoutEnd(tokenizer, Int32Array.from(ids))
    const raw = tokenizer.decode(said)
    const isStopped = said.length < ids.length || stopStrings.some((text) => raw.includes(text))
    return {
      completion: tokenizer.decode(said, { skipSpecial: true }),
      raw,
      stopReason: isStopped ? 'stop' : 'length',
      ids,
      logprobs: Array.from(row.logprob).slice(from, to),
      versions: Array.from(row.version).slice(from, to),
    }
  }
  throw new InputError('turn', String(turn), `a turn of the conversation, 0 to ${conversation.turn[n]}`)
}

/** Range of the model's tokens of that turn within a segment. */
function spanOfTurn({ turn, lossMask, version, candidateCount }: Segment, number: number): [from: number, to: number] {
  // Model tokens that are not trained have a version, or an unknown number of candidates.
  const isChosen = (t: number) => lossMask[t] === 1 || version[t] !== -1 || candidateCount?.[t] === -1
  let from = 0
  while (from < turn.length && !(turn[from] === number && isChosen(from))) from++
  let to = from
  while (to < turn.length && turn[to] === number && isChosen(to)) to++
  return [from, to]
}
