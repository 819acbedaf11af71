import { ConversationPhase } from '../../components/conversation.ts'
import type { Kernels } from '../../kernels/kernels.ts'
import { startOf } from '../../language/examples.ts'
import { promptMessages } from '../../language/templates/dialogue.ts'
import { turnDrawing } from '../../language/turn-sampling.ts'
import { type ConversationCohort, exampleAt } from '../../world/conversations/cohort.ts'
import { settleSpeakers } from '../../world/conversations/population.ts'

/**
 * Starts the next conversations in free present lanes, while there are some to start. Each epoch has its own order of the examples, and
 * each example serves a whole group.
 *
 * Reads phase, begun. Writes the prompt's tokens and the conversation's identity. Runs first, so that every lane that can decode does.
 */
export function resetConversations(kernels: Kernels, cohort: ConversationCohort): void {
  settleSpeakers(cohort)
  const { conversation, numLanes } = cohort
  for (let n = 0; n < numLanes && conversation.begun[0]! < cohort.released; n++) {
    if (conversation.phase[n] !== ConversationPhase.free) continue
    begin(kernels, cohort, n, conversation.begun[0]!)
    conversation.begun[0]!++ // Counted only on success: a conversation that cannot begin is not skipped.
  }
}

/** Starts conversation `number`, counted from 0, in lane n. */
function begin(kernels: Kernels, cohort: ConversationCohort, n: number, number: number): void {
  const { conversation } = cohort
  const group = Math.floor(number / cohort.groupSize)
  const { promptId, epoch } = exampleAt(cohort, kernels, group)
  const { example, ids, budget } = startOf(cohort, promptId)
  conversation.budget[n] = budget
  conversation.promptId[n] = promptId
  conversation.group[n] = group
  conversation.member[n] = number % cohort.groupSize
  conversation.epoch[n] = epoch
  conversation.length[n] = 0
  conversation.unchanged[n] = 0
  conversation.turn[n] = 0
  conversation.segment[n] = 0
  conversation.tokensBefore[n] = 0
  conversation.cutTurns[n] = 0
  conversation.droppedReplies[n] = 0
  conversation.reward[n] = 0
  conversation.known[n] = 0
  cohort.histories[n] = promptMessages(example)
  cohort.replies[n] = null
  cohort.drawings[n]!.clear()
  if (example.sampling !== undefined)
    cohort.drawings[n]!.set(0, turnDrawing(example.sampling, cohort, cohort.tokenizer))
  conversation.numCandidateIds[n] = 0
  cohort.segments[n] = []
  append(cohort, n, ids)
}

/** Appends input tokens to the conversation; the model's turn begins after them. */
export function append({ conversation, context }: ConversationCohort, n: number, ids: readonly number[]): void {
  const { token, lossMask, logprob, version, turnOf, candidateCount, length, turn } = conversation
  const first = n * context + length[n]!
  token.set(ids, first)
  lossMask.fill(0, first, first + ids.length)
  logprob.fill(Number.NaN, first, first + ids.length)
  version.fill(-1, first, first + ids.length)
  candidateCount.fill(0, first, first + ids.length)
  turnOf.fill(turn[n]!, first, first + ids.length)
  length[n] = length[n]! + ids.length
  conversation.turnStart[n] = length[n]!
  conversation.phase[n] = ConversationPhase.model
}
