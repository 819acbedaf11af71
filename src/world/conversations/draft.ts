/** A cohort of conversations before it has memory: checks options, opens environment and model, and plans columns. */
import { checkCount, InputError, show, unknownWord } from '../../base/errors.ts'
import { checkRoom } from '../../components/arena.ts'
import { column, type Plan, saved } from '../../components/column.ts'
import { conversationPlan } from '../../components/conversation.ts'
import { localEngine } from '../../engines/local/local.ts'
import { rewardReductions } from '../../environments/text.ts'
import { bestKernelBuild } from '../../kernels/bind.ts'
import type { KernelBuild } from '../../kernels/kernels.ts'
import { tooLongs, type UsableExamples, usableExamples } from '../../language/examples.ts'
import { checkHeldOut } from '../../language/held-out.ts'
import type { LanguageModelDefinition, OpenLanguageModel } from '../../language/language-model.ts'
import { checkTokenizer } from '../../language/tokenizers/check-tokenizer.ts'
import { apart } from '../../language/transformer/memory.ts'
import { quantizedPlan } from '../../language/transformer/quantized.ts'
import { candidatesPerToken, checkSampling } from '../../language/transformer/sampling.ts'
import { trajectoryLogPlan } from '../../tables/trajectories/trajectory-log.ts'
import type { CohortDraft } from '../housing.ts'
import { type ConversationCohortOptions, type ConversationDraft, cutTurns, segmentations } from './cohort.ts'

/**
 * Checks the options of a cohort of conversations, opens its environment and model, and opens the model's weights after checking that the
 * columns fit into memory.
 * @throws InputError for a wrong option, missing parts of the model's files, and too little memory.
 */
export async function draftConversations(
  options: ConversationCohortOptions,
  before: readonly CohortDraft[],
  _helps: boolean,
  kernels: KernelBuild,
): Promise<ConversationDraft> {
  const opened = await openConversations(options, kernels)
  const draft = { ...opened, key: before.filter(({ kind }) => kind === 'conversations').length }
  checkRoom(largestConversationPlan(draft, 1), 'fewer numLanes, or a smaller languageModel.context')
  return { ...draft, begins: await draft.opened.openWeights() }
}

/**
 * Checks the options of a cohort of conversations and opens its environment and model without the weights, so that its columns can be
 * planned.
 * @throws InputError for a wrong option and missing parts of the model's files.
 */
export async function openConversations(
  options: ConversationCohortOptions,
  kernels: KernelBuild = bestKernelBuild(),
): Promise<ConversationDraft> {
  const { environment, policy, numLanes, sampling = {}, maxTokens = 1, groupSize = 1, replySeconds = 60 } = options
  const { cutTurn = 'end', segmentation = 'interleaved', tooLong, engine, turnSeconds = 300 } = options
  if (typeof policy?.open !== 'function' || typeof policy.id !== 'string') {
    throw new InputError('policy', show(policy), 'a language model, like languageModel()')
  }
  for (const [name, value] of Object.entries({ numLanes, maxTokens, groupSize })) checkCount(name, value)
  for (const [name, value] of Object.entries({ replySeconds, turnSeconds })) {
    if (!(Number.isFinite(value) && value > 0)) throw new InputError(name, show(value), 'a number above 0')
  }
  if (tooLong !== undefined && !tooLongs.includes(tooLong)) throw unknownWord('tooLong', tooLong, tooLongs)
  if (options.heldOut !== undefined) checkHeldOut(options.heldOut)
  if (!cutTurns.includes(cutTurn)) throw unknownWord('cutTurn', cutTurn, cutTurns)
  if (!segmentations.includes(segmentation)) throw unknownWord('segmentation', segmentation, segmentations)
  checkSampling(sampling)
  if (engine !== undefined && (typeof engine?.id !== 'string' || typeof engine.create !== 'function')) {
    throw new InputError('engine', show(engine), 'an engine with id and create(), like scriptedEngine(…)')
  }
  const { rewardReduction = 'last' } = options
  if (!rewardReductions.includes(rewardReduction)) {
    throw unknownWord('rewardReduction', rewardReduction, rewardReductions)
  }
  if (environment?.together?.size === 'group' && numLanes < groupSize) {
    const expected = `at least the group size, ${groupSize}: replies need whole groups`
    throw new InputError('numLanes', String(numLanes), expected)
  }
  const read = { ...environment, ...(await environment.open?.()) }
  checkCount(`${environment.id} numExamples`, read.numExamples)
  const opened = await policy.open(read)
  checkOpened(policy, opened)
  checkTokenizer(opened.tokenizer, opened.model)
  return {
    kind: 'conversations',
    options: { ...options, environment: read },
    name: options.name ?? policy.id,
    key: 0,
    opened,
    kernels,
  }
}

function checkOpened({ id }: LanguageModelDefinition, opened: Partial<OpenLanguageModel> | undefined): void {
  const { model, tokenizer, context, adapter } = opened ?? {}
  const wrong = (part: string, got: unknown, expected: string) =>
    new InputError(`policy ${id}, ${part} of open()`, show(got), expected)
  if (typeof model?.shape !== 'object' || typeof model.initialize !== 'function') {
    throw wrong('model', model, 'a model made by transformer()')
  }
  if (typeof tokenizer?.encode !== 'function' || typeof tokenizer.decode !== 'function') {
    throw wrong('tokenizer', tokenizer, 'a tokenizer, like byteTokenizer()')
  }
  if (!(Number.isSafeInteger(context) && context! >= 2)) throw wrong('context', context, 'a whole number ≥ 2')
  if (adapter === undefined) throw wrong('adapter', adapter, 'an adapter made by lora(), or null')
  if (typeof opened!.openWeights !== 'function') throw wrong('openWeights', opened!.openWeights, 'a function')
}

/** Checks the examples of a cohort once, if its options require it. */
function examplesOf(draft: ConversationDraft): UsableExamples | null {
  const { options, opened, reservation } = draft
  const { use = { asked: true, learned: false } } = reservation ?? {}
  const { environment, maxTokens = environment.maxTokens, tooLong, heldOut } = options
  if (tooLong === undefined && heldOut === undefined) return null
  const reader = { ...opened, environment, maxTokens, tooLong: tooLong ?? 'error' }
  draft.examples ??= usableExamples(reader, use, heldOut)
  return draft.examples
}

export type ConversationCohortPlan = ReturnType<typeof planConversations>

/** The plan before examples are checked, with room for all of them. */
export function largestConversationPlan(draft: ConversationDraft, threads: number): ConversationCohortPlan {
  const { tooLong: _, heldOut: __, ...options } = draft.options
  return planConversations({ ...draft, options }, threads)
}

function modelPlan({ model, adapter, weightBits }: OpenLanguageModel) {
  return {
    weights: saved(column('f32', weightBits === 32 ? model.numParameters : 0)),
    quantized: (weightBits === 32 ? {} : quantizedPlan(model, weightBits)) as Plan,
    adapter: saved(column('f32', adapter?.numParameters ?? 0)),
  } satisfies Plan
}

export function planConversations(draft: ConversationDraft, threads: number) {
  const { options, opened, reservation, kernels } = draft
  const { model, context, adapter, weightBits } = opened
  const { numLanes, environment, engine = localEngine, sampling = {} } = options
  const candidates = candidatesPerToken(checkSampling(sampling), model.shape.vocabularySize)
  return {
    ...apart(modelPlan(opened), kernels),
    conversation: conversationPlan(numLanes, context, environment.maxTurns, candidates),
    log: (reservation?.log === undefined ? {} : trajectoryLogPlan(reservation.log)) as Plan,
    engine: apart(
      (engine.plan?.({ model, adapter, weightBits, numSlots: numLanes, context, threads }) ?? {}) as Plan,
      kernels,
    ),
    order: column('u32', examplesOf(draft)?.numbers.length ?? environment.numExamples),
    words: column('u32', 4),
    learner: apart(reservation?.learner ?? {}, kernels),
  }
}
