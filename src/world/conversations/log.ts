/**
 * How large the log of a cohort of conversations is. A trainer says how many conversations it keeps at a time: those of an
 * update. Those in flight have room beside them, so that the log is full only where nobody takes out what it holds.
 */
import { InputError } from '../../base/errors.ts'
import { candidatesPerToken, checkSampling } from '../../language/transformer/sampling.ts'
import type { TrajectoryLogSize } from '../../tables/trajectories/trajectory-log.ts'
import { type ConversationCohort, type ConversationDraft, canGoOn, owedAnswers } from './cohort.ts'

/** Rows of a conversation that are planned for, at most, where a chat template may rewrite what stands. */
const SEGMENTS = 4
/** The log of so many conversations and of those in flight. */
export function conversationLogSize(draft: ConversationDraft, conversations: number): TrajectoryLogSize {
  const { environment, numLanes, sampling = {}, segmentation } = draft.options
  const { model, tokenizer, context } = draft.opened
  const isOne = segmentation !== 'branching' && environment.answersAgain !== true && tokenizer.chatTemplate === null
  const segments = isOne ? 1 : Math.min(environment.maxTurns, SEGMENTS)
  const rows = segments * (conversations + numLanes)
  const tokens = rows * context
  const candidateIds = tokens * candidatesPerToken(checkSampling(sampling), model.shape.vocabularySize)
  return { rows, tokens, candidateIds, turnRewards: rows * Math.min(environment.maxTurns, context) }
}

/**
 * Throws if finished conversations wait for room in a log that is never emptied while no lane can continue.
 * @throws InputError that says what the log holds.
 */
export function checkLogRoom(cohort: ConversationCohort): void {
  const { name, waiting, trajectories } = cohort
  if (waiting === 0 || canGoOn(cohort) || owedAnswers(cohort).length > 0) return
  const got = `${trajectories.count} rows of ${trajectories.numTokens} tokens, and ${waiting} conversations that wait for room`
  const expected =
    'an update whose conversations have room together: fewer of them, or fewer turns that the template rewrites'
  throw new InputError(`log of ${name}`, got, expected)
}
