/**
 * Size of a cohort's trajectory log. It holds the conversations of a trainer's update and those in progress, so that it
 * is full only if it is not emptied.
 */
import { InputError } from '../../base/errors.ts'
import { candidatesPerToken, checkSampling } from '../../language/transformer/sampling.ts'
import type { TrajectoryLogSize } from '../../tables/trajectories/trajectory-log.ts'
import { type ConversationCohort, type ConversationDraft, canGoOn, owedAnswers } from './cohort.ts'

/** Maximum planned segments per conversation if a chat template may rewrite earlier text. */
const SEGMENTS = 4
/** The size of a log for `conversations` conversations and those in progress. */
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
 * Checks that conversations do not wait forever for room in a full log.
 * @throws InputError with the contents of the log if finished conversations wait and no lane can continue.
 */
export function checkLogRoom(cohort: ConversationCohort): void {
  const { name, waiting, trajectories } = cohort
  if (waiting === 0 || canGoOn(cohort) || owedAnswers(cohort).length > 0) return
  const got = `${trajectories.count} rows of ${trajectories.numTokens} tokens, and ${waiting} waiting conversations`
  const expected =
    'room for all conversations of an update: use fewer of them, or fewer turns that the template rewrites'
  throw new InputError(`log of ${name}`, got, expected)
}
