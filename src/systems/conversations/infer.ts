import { InputError } from '../../base/errors.ts'
import { ConversationPhase, turnRewardsOf } from '../../components/conversation.ts'
import { areOfSampling, type GeneratedTokens, type TurnEnd } from '../../engines/engine.ts'
import { type StopReason, stopReasons } from '../../environments/text.ts'
import type { Kernels } from '../../kernels/kernels.ts'
import type { ConversationCohort } from '../../world/conversations/cohort.ts'

/**
 * Submits turns that have begun to the cohort's engine, advances the engine, and appends the generated tokens: a local engine generates
 * one token in every lane where the model has the turn. Returns a promise if the engine's advance does.
 *
 * Reads token, length, phase, budget and the conversation's identity. Writes token, logprob, version, length, and at the end of a turn
 * stopReason and cutTurns. If the engine fails to generate a turn, the conversation ends with an unknown reward.
 */
export function inferConversations(_: Kernels, cohort: ConversationCohort): void | Promise<void> {
  submitTurns(cohort)
  if (!cohort.submitted.includes(1)) return
  const advanced = cohort.engine.advance()
  return advanced === undefined ? appendPolled(cohort) : appendAdvanced(cohort, advanced)
}

async function appendAdvanced(cohort: ConversationCohort, advanced: Promise<void>): Promise<void> {
  await advanced
  appendPolled(cohort)
}

function submitTurns(cohort: ConversationCohort): void {
  const { conversation, submitted, engine, context, explore, drawings } = cohort
  const { phase, token, length, turnStart, budget, group, member, tokensBefore, unchanged, turn } = conversation
  for (let n = 0; n < submitted.length; n++) {
    if (phase[n] !== ConversationPhase.model || submitted[n] === 1) continue
    const [from, to] = [n * context, n * context + length[n]!]
    const generated = length[n]! - turnStart[n]!
    const { sampling, stopStrings } = drawings[n]!.get(turn[n]!) ?? cohort
    engine.submit({
      slot: n,
      ids: token.subarray(from, to),
      generated,
      unchanged: Math.min(unchanged[n]!, length[n]!),
      maxTokens: Math.min(budget[n]! - generated, context - length[n]!),
      ...{ sampling, explore, stopStrings },
      key: [group[n]!, member[n]!, tokensBefore[n]!],
    })
    submitted[n] = 1
    unchanged[n] = context // Until reset or step writes other ids.
  }
}

/**
 * Aborts all open turns and appends their tokens. The next tick submits the turns again with the ids of that time. Call it between two
 * ticks.
 */
export function interruptTurns(cohort: ConversationCohort): void {
  const { conversation, engine, submitted, breaks } = cohort
  for (let n = 0; n < submitted.length; n++) {
    if (submitted[n] === 0 || conversation.phase[n] !== ConversationPhase.model) continue
    engine.abort(n)
  }
  appendPolled(cohort)
  breaks.fill(0) // The engine did not cause these aborts.
}

function appendPolled(cohort: ConversationCohort): void {
  const { tokens, ends } = cohort.engine.poll()
  for (const block of tokens) for (let i = 0; i < block.count; i++) appendToken(cohort, block, i)
  for (const end of ends) endTurn(cohort, end)
}

/** Appends row i of a block to its lane. */
function appendToken(cohort: ConversationCohort, block: GeneratedTokens, i: number): void {
  const { conversation, context, engine, model, drawings } = cohort
  const { length, turn, phase } = conversation
  const { candidate, candidateOffset } = block
  const [n, token] = [block.slot[i]!, block.token[i]!]
  if (cohort.submitted[n] !== 1 || length[n]! >= context) {
    throw new InputError(`engine ${engine.id}`, `a token for slot ${n}`, 'tokens only for open turns, up to maxTokens')
  }
  if (phase[n] === ConversationPhase.abandoned) return
  if (!(token >= 0 && token < model.shape.vocabularySize)) {
    const expected = `ids of the cohort's tokenizer, below ${model.shape.vocabularySize}`
    throw new InputError(`engine ${engine.id}`, `token ${token}`, expected)
  }
  const at = n * context + length[n]!
  const drawing = drawings[n]!.get(turn[n]!)
  const sampling = drawing?.sampling ?? cohort.sampling
  const isLearned = drawing?.isLearned ?? true
  conversation.token[at] = token
  conversation.lossMask[at] = isLearned ? 1 : 0
  conversation.logprob[at] = block.logprob[i]!
  // Without a log-probability the token's weights are unknown too, so the trainer's weights are used for both.
  conversation.version[at] = Number.isNaN(block.logprob[i]!) ? -1 : block.version[i]!
  // A version marks untrained model tokens, unlike prompt tokens: use the cohort's if the engine reports none.
  if (!isLearned && block.version[i] === -1 && !Number.isNaN(block.logprob[i]))
    conversation.version[at] = cohort.version
  conversation.turnOf[at] = turn[n]!
  length[n] = length[n]! + 1
  cohort.breaks[n] = 0
  // A log-probability from another distribution than the sampled one is treated as unknown.
  const isOfSampling = areOfSampling(engine.logprobs, sampling)
  const isKnown = candidate !== null && isOfSampling && isLearned // Other turns have no room for candidate sets.
  const [from, to] = [candidateOffset[i]!, candidateOffset[i + 1]!]
  conversation.candidateCount[at] = isKnown ? to - from : isOfSampling && from === to ? 0 : -1
  if (isKnown && to > from) appendCandidates(cohort, n, candidate, from, to)
}

/** Stores the candidate set of lane n's last token. */
function appendCandidates(
  { conversation, numLanes, context, engine }: ConversationCohort,
  n: number,
  candidate: Int32Array,
  from: number,
  to: number,
): void {
  const { candidateIds, numCandidateIds } = conversation
  const width = candidateIds.length / numLanes
  const count = numCandidateIds[n]! + to - from
  if (count > width) {
    const got = `${count} ids of candidate sets in a conversation`
    throw new InputError(`engine ${engine.id}`, got, `at most ${width}, ${width / context} per token (limited by topK)`)
  }
  for (let k = from, at = n * width + numCandidateIds[n]!; k < to; k++, at++) candidateIds[at] = candidate[k]!
  numCandidateIds[n] = count
}

function endTurn(cohort: ConversationCohort, end: TurnEnd): void {
  const { conversation, submitted, engine, breaks, failing } = cohort
  const { slot: n, reason } = end
  if (submitted[n] !== 1) throw new InputError(`engine ${engine.id}`, `an end of slot ${n}`, 'ends only of open turns')
  submitted[n] = 0
  const failure = failing[n] ?? (reason === 'failed' ? end.error : null)
  failing[n] = null
  if (conversation.phase[n] === ConversationPhase.abandoned) {
    conversation.phase[n] = ConversationPhase.free
    return
  }
  if (failure !== null) {
    fail(cohort, n, failure)
    return
  }
  const isOfBudget = conversation.length[n]! - conversation.turnStart[n]! >= conversation.budget[n]!
  // An aborted turn with room left is submitted again in the next tick, with its tokens so far.
  if (reason === 'aborted' && !isOfBudget && conversation.length[n]! < cohort.context) {
    breaks[n] = breaks[n]! + 1
    if (breaks[n] === BREAKS_MAX) fail(cohort, n, `broke the turn off ${BREAKS_MAX} times without a token`)
    return
  }
  const told: StopReason = reason === 'stop' ? 'stop' : isOfBudget ? 'length' : 'context'
  conversation.phase[n] = ConversationPhase.over
  conversation.stopReason[n] = stopReasons.indexOf(told)
  if (told !== 'stop') conversation.cutTurns[n] = conversation.cutTurns[n]! + 1
}

/** Maximum aborts of a turn without a new token, which bounds retries of an engine that always aborts. */
const BREAKS_MAX = 8

/** Ends the conversation in lane n with an unknown reward, because its last turn failed. */
function fail({ conversation, replies, engine, breaks }: ConversationCohort, n: number, error: string): void {
  conversation.phase[n] = ConversationPhase.ended
  conversation.stopReason[n] = stopReasons.indexOf('aborted')
  conversation.reward[n] = 0
  conversation.known[n] = 0
  turnRewardsOf(conversation, n).fill(Number.NaN, conversation.turn[n]!)
  breaks[n] = 0
  replies[n] = { reward: null, error: `engine ${engine.id}: ${error}` }
}
