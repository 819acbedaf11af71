/**
 * Plans the memory of a language model's training before weights are read. The model's configuration and tokenizer are
 * opened and the plan is summed. Context, lanes and threads that the user leaves open are chosen to fit; a null
 * learning rate becomes the usual one. Choices are reported and written into `config.json`. If nothing fits, the error
 * names the keys that help. Loaded models get standard defaults; a task's preset is for new models.
 */

import { type LossDescriptor, readsScores } from '../../../algorithms/losses/losses.ts'
import { type DefaultRates, learningRateOf } from '../../../algorithms/optimizers/optimizer.ts'
import { type RlDefinition, rl, rlRates } from '../../../algorithms/tokens/rl.ts'
import { ratesOf, sft } from '../../../algorithms/tokens/sft.ts'
import { MICRO_BATCH_ROWS, microBatchRows } from '../../../algorithms/tokens/token-learner.ts'
import { tokenUpdatePlan, type UpdateSize } from '../../../algorithms/tokens/token-thread.ts'
import { InputError } from '../../../base/errors.ts'
import { group } from '../../../base/metrics.ts'
import { numCores, readsMessages } from '../../../base/threads/cores.ts'
import { arenaBytes, arenaRoom, checkRoom, formatBytes, listColumns } from '../../../components/arena.ts'
import { type Columns, column, type Plan, saved } from '../../../components/column.ts'
import { kernelBuildOf, NUM_SLOTS } from '../../../kernels/bind.ts'
import { languageModel, type OpenLanguageModel } from '../../../language/language-model.ts'
import { reachesApart } from '../../../language/transformer/memory.ts'
import type { Sampling } from '../../../language/transformer/sampling.ts'
import type { ConversationDraft, ConversationReservation } from '../../../world/conversations/cohort.ts'
import { largestConversationPlan, openConversations } from '../../../world/conversations/draft.ts'
import { conversationLogSize } from '../../../world/conversations/log.ts'
import type { BackendDefinition, BackendShape } from '../../backends/backend.ts'
import { localBackend } from '../../backends/local-backend.ts'
import type { Phases } from '../../loop/trainer-options.ts'
import type { ConversationRunDefinition } from '../../run/definition.ts'
import { checkTeacher } from './teacher.ts'

/** Rows of a micro-batch of a step on given answers: those of a pair are in one. */
export function lessonRows(context: number, { level }: Pick<LossDescriptor, 'level'>): number {
  return level === 'pair' ? Math.max(MICRO_BATCH_ROWS, 2 * (context - 1)) : microBatchRows(context)
}

/** Rows of an example in a step: its lesson; a pair; or a good and a bad answer, and another's answer to its prompt. */
const ROWS_OF_EXAMPLE = { token: 1, sequence: 1, pair: 2, answer: 3 } as const

/**
 * The shape of a backend's columns, for a model and a training.
 * @throws InputError for quantized weights without an adapter, which cannot be trained.
 */
export function backendShape(
  { model, context, adapter, weightBits }: Pick<OpenLanguageModel, 'model' | 'context' | 'adapter' | 'weightBits'>,
  { sft, rl }: Phases,
  threads: number,
): BackendShape {
  const { optimizer } = (sft ?? rl)!.settings
  if (weightBits < 32 && adapter === null) {
    const expected = 'a loraRank, or an adapter to continue from'
    throw new InputError('languageModel.quantize', `${weightBits}, without an adapter`, expected)
  }
  const hasReference = [sft, rl].some((phase) => phase !== undefined && readsReference(phase))
  const rows = sft === undefined ? microBatchRows(context) : lessonRows(context, sft.loss)
  return { model, adapter, weightBits, context, rows, optimizer, hasReference, threads }
}

/** Whether a loss reads the reference's log-probabilities and no teacher replaces the reference. */
function readsReference({ loss, settings }: { readonly loss: LossDescriptor; readonly settings: object }): boolean {
  const { teacher = '' } = settings as Partial<RlDefinition['settings']>
  return loss.columns.includes('referenceLogprob') && teacher === ''
}

/** The columns of a training. @throws InputError for a loss with a critic and a model without a value head. */
export function textLearnerPlan(
  opened: OpenLanguageModel,
  phases: Phases,
  log: UpdateSize,
  threads: number,
  backend: BackendDefinition,
  numExamples: number,
) {
  const { model, context } = opened
  const { sft, rl } = phases
  if (rl?.loss.settings.advantage === 'critic' && !model.hasValueHead) {
    const got = 'a model without a value head'
    throw new InputError(`rl, loss ${rl.loss.id}`, got, 'a model with a critic, like languageModel({ critic: true })')
  }
  if (sft !== undefined && readsScores(sft.loss) && !model.hasValueHead) {
    const got = 'a model without a value head'
    throw new InputError(`sft, loss ${sft.loss.id}`, got, 'a model with a critic, like languageModel({ critic: true })')
  }
  if (model.device === 'webgpu' && backend.id !== localBackend.id) {
    throw new InputError('languageModel.device', `webgpu, with backend ${backend.id}`, 'none, or backend local')
  }
  if (model.device === 'webgpu' && rl !== undefined) {
    const { topK, topP, minP } = rl.settings
    if (topK !== 0 || topP !== 1 || minP !== 0) {
      const got = 'webgpu, and sampling by topK, topP or minP'
      throw new InputError('languageModel.device', got, 'tokens drawn from the whole vocabulary, or none')
    }
  }
  if (sft !== undefined && sft.settings.teacher !== '' && (backend.id !== localBackend.id || model.device !== 'none')) {
    const got = `a model, with backend ${backend.id} and languageModel.device ${model.device}`
    throw new InputError('sft.teacher', got, 'none, or backend local without a device')
  }
  if (model.routerLoss > 0 && backend.id !== localBackend.id) {
    throw new InputError(
      'languageModel.routerLoss',
      `${model.routerLoss}, with backend ${backend.id}`,
      '0, or backend local',
    )
  }
  const lessons = sft === undefined ? 0 : sft.settings.batchSize * ROWS_OF_EXAMPLE[sft.loss.level]
  const examples = { rows: lessons, tokens: lessons * context }
  const update = { rows: Math.max(log.rows, examples.rows), tokens: Math.max(log.tokens, examples.tokens) }
  return {
    ...backend.plan?.(backendShape(opened, phases, threads), update.rows),
    update: tokenUpdatePlan(update, model.hasValueHead),
    examples: examplesPlan(examples),
    /** The reference's log-probability of each example's chosen and rejected answer; NaN if no step has needed it. */
    answerLogprob: saved(column('f64', sft !== undefined && readsReference(sft) ? 2 * numExamples : 0)),
  } satisfies Plan
}

/** Columns for the tokens of a supervised step's examples, one after another. */
export function examplesPlan({ tokens }: UpdateSize) {
  return { token: column('i32', tokens), lossMask: column('u8', tokens) }
}

/** A cohort's reservations: learner, and log of kept conversations. @throws InputError as `textLearnerPlan` does. */
export function textReservation(
  draft: ConversationDraft,
  phases: Phases,
  threads: number,
  backend: BackendDefinition = localBackend,
): Required<Omit<ConversationReservation, 'use'>> {
  const log = conversationLogSize(draft, phases.rl === undefined ? 0 : conversationsKept(phases.rl))
  const { numExamples } = draft.options.environment
  return { learner: textLearnerPlan(draft.opened, phases, log, threads, backend, numExamples), log }
}

/** Maximum finished conversations that wait for learning: those of all updates sampled ahead. */
function conversationsKept({ settings }: RlDefinition): number {
  const { groupsPerUpdate, groupSize, maxStaleness, overSampling } = settings
  return Math.ceil(overSampling * (maxStaleness + 1) * groupsPerUpdate) * groupSize
}

/** The columns for computing updates, besides the backend's. */
export type TextLearnerColumns = Columns<ReturnType<typeof textLearnerPlan>>

/** A run's memory, and the choices made for it. */
export interface TextRunPlan {
  /** With open numbers filled in. */
  readonly definition: ConversationRunDefinition
  readonly threads: number
  /** The world's memory, and its largest parts by content. */
  readonly bytes: number
  readonly parts: Readonly<Record<string, number>>
  /** The choices, one sentence each. */
  readonly notes: readonly string[]
}

interface Size {
  readonly context: number
  readonly numLanes: number
  readonly threads: number
}

/** Default lanes, and the default context limit of a loaded model. */
const [LANES, CONTEXT] = [64, 1024]
/** Examples × tokens per turn above which checking all may take minutes. */
const MUCH_TO_LOOK_AT = 2 ** 28
/** Share of the machine's memory for which open numbers are chosen, if the least of them fit. */
const OPEN_SHARE = 0.5
/** Threads are reduced before context or lanes fall below the first, and the run is refused below the second. */
const LEAST = [
  { context: 256, numLanes: 8 },
  { context: 16, numLanes: 1 },
]

/**
 * Plans a run and fills in open numbers: for a loaded model's context 0 the most that fits, up to 1,024 tokens; for
 * lanes 0 as many as fit, up to 64; for threads 0 the machine's, or fewer to fit; for a null learning rate the usual
 * one. `isNew`: the run has no checkpoint, so that its teachers are there yet to be used.
 * @throws InputError if nothing fits, with the keys that help; and as `openConversations` and `checkTeacher` do.
 */
export async function planTextRun(given: ConversationRunDefinition, isNew = true): Promise<TextRunPlan> {
  const { environment, policy, settings, engine, backend } = given
  const { numLanes: lanes, segmentation } = settings
  const chosenBy = engine === null ? {} : { engine }
  const build = kernelBuildOf(settings.kernels)
  const draft = await openConversations(
    { environment, policy, numLanes: lanes || LANES, segmentation, ...chosenBy },
    build,
  )
  const { opened } = draft
  const { definition, notes: rates } = withRates(given, draft)
  const notes = [...rates, ...patience(draft)]
  const training = trainingOf(definition)
  if (opened.model.device === 'webgpu') {
    const { checkDeviceLearning } = await import('../../../language/transformer/device-plan.ts')
    const { optimizer } = (training.sft ?? training.rl)!.settings
    checkDeviceLearning(opened.model, opened.adapter, opened.weightBits < 32, optimizer)
  }
  const planOf = ({ context, numLanes, threads }: Size): Plan => {
    const sized = { ...opened, context }
    const options = { ...draft.options, numLanes, sampling: samplingOf(given.rl) }
    const whole = { ...draft, options, opened: sized }
    return {
      [draft.name]: largestConversationPlan(
        { ...whole, reservation: textReservation(whole, training, threads, backend) },
        threads,
      ),
    }
  }
  const isOpen = opened.folder !== null && policy.parameters.context === 0
  const most: Size = {
    context: isOpen ? Math.min(opened.context, CONTEXT) : opened.context,
    // Supervised training needs no conversations.
    numLanes: settings.numLanes || (given.rl === null ? 1 : LANES),
    threads: settings.threads || (readsMessages ? Math.min(numCores(), NUM_SLOTS) : 1),
  }
  const tried = [...sizes(most, isOpen, settings.numLanes === 0, settings.threads === 0)]
  const least = tried.at(-1)!
  checkRoom(planOf(least), remedyOf(draft, least))
  for (const [size, share] of [
    ...tried.map((size) => [size, OPEN_SHARE] as const),
    ...tried.map((size) => [size, 1] as const),
  ]) {
    const plan = planOf(size)
    const bytes = arenaBytes(plan)
    const room = roomOf(plan, share)
    if (bytes > room) continue
    const student = { tokenizer: opened.tokenizer, context: size.context, sampling: samplingOf(given.rl) }
    for (const [name, phase] of Object.entries(isNew ? training : {})) await checkTeacher(name, phase.settings, student)
    const isOne = (key: keyof Size) => size[key] === most[key]
    const chosen = [
      ...(isOpen ? [`context ${size.context} of the model's ${opened.context}`] : []),
      ...(isOne('numLanes') ? [] : [`${size.numLanes} lanes`]),
      ...(isOne('threads') ? [] : [`${size.threads} of ${most.threads} threads`]),
    ]
    return {
      definition: {
        ...definition,
        policy: isOpen ? languageModel({ ...policy.parameters, context: size.context } as never) : policy,
        settings: {
          ...settings,
          numLanes: size.numLanes,
          threads: isOne('threads') ? settings.threads : size.threads,
        },
      },
      threads: size.threads,
      bytes,
      parts: partsOf(plan[draft.name] as Plan),
      notes: chosen.length === 0 ? notes : [`${chosen.join(', ')}: what fits ${formatBytes(room)}`, ...notes],
    }
  }
  throw new Error('Colonnade has a bug: what had room has none now')
}

/** Bytes that a plan may have whose numbers were chosen for a share of the machine's memory: 4 GiB, if the machine has that, or more. */
function roomOf(plan: Plan, share: number): number {
  const room = arenaRoom(plan)
  return Math.max(share * room, Math.min(room, 2 ** 32))
}

/** Warns the user that checking many or long examples may take minutes. */
function patience({ options: { environment, maxTokens = environment.maxTokens } }: ConversationDraft): string[] {
  const { numExamples } = environment
  if (numExamples * maxTokens < MUCH_TO_LOOK_AT) return []
  return [
    `checking ${group(numExamples)} examples with turns of up to ${maxTokens} tokens first: this may take minutes`,
  ]
}

export function samplingOf(rl: RlDefinition | null): Partial<Sampling> {
  if (rl === null) return {}
  const { temperature, topK, topP, minP } = rl.settings
  return { temperature, topK, topP, minP }
}

/** Resolves null learning rates, and describes those of a loaded model. */
function withRates(
  given: ConversationRunDefinition,
  { opened: { folder, isNew, adapter } }: ConversationDraft,
): { definition: ConversationRunDefinition; notes: string[] } {
  const trained = { isLoaded: folder !== null && isNew !== true, adapter }
  const told: string[] = []
  const rateOf = (rate: number | null, rates: DefaultRates, of: string): number => {
    const learningRate = learningRateOf(rate, rates, trained)
    if (rate === null && trained.isLoaded) told.push(`${learningRate} of ${of}`)
    return learningRate
  }
  const reinforced =
    given.rl &&
    rl(
      { ...given.rl.parameters, learningRate: rateOf(given.rl.settings.learningRate, rlRates, 'updates') },
      given.rl.parts,
    )
  const supervised =
    given.sft &&
    sft(
      {
        ...given.sft.parameters,
        learningRate: rateOf(given.sft.settings.learningRate, ratesOf(given.sft), 'supervised steps'),
      },
      given.sft.parts,
    )
  const notes =
    told.length === 0
      ? []
      : [`learning rate ${told.join(', ')}: as usual for ${adapter ? 'adapters' : 'loaded models'}`]
  return { definition: { ...given, sft: supervised, rl: reinforced }, notes }
}

export function trainingOf({ sft, rl }: ConversationRunDefinition): Phases {
  return { ...(sft === null ? {} : { sft }), ...(rl === null ? {} : { rl }) }
}

/** Sizes to try, from the largest down. Given sizes stay. */
function* sizes(most: Size, isContextOpen: boolean, areLanesOpen: boolean, areThreadsOpen: boolean): Generator<Size> {
  for (const least of LEAST) {
    for (const threads of areThreadsOpen ? halves(most.threads, 1) : [most.threads]) {
      for (const context of isContextOpen ? halves(most.context, least.context) : [most.context]) {
        for (const numLanes of areLanesOpen ? halves(most.numLanes, least.numLanes) : [most.numLanes]) {
          yield { context, numLanes, threads }
        }
      }
    }
  }
}

/** A number and its repeated halves, down to `least`; only the number if it is less. */
function halves(number: number, least: number): number[] {
  const list = [number]
  while (list.at(-1)! / 2 >= least) list.push(Math.floor(list.at(-1)! / 2))
  return list
}

/** Bytes by content, summed over threads, the largest first. */
function partsOf(plan: Plan): Record<string, number> {
  const names: readonly (readonly [RegExp, string])[] = [
    [/^(weights|quantized|adapter)\b/, 'weights'],
    [/^learner\.optimizer\b/, 'optimizer'],
    [/^learner\.gradient\b/, 'gradients'],
    [/^learner\.reference\b/, 'reference'],
    [/^learner\.packed\b/, 'activations'],
    [/^engine\.decoder\.cache\b/, 'cache'],
    [/^(conversation|log|learner\.(update|examples|answerLogprob))\b/, 'conversations'],
    [/./, 'the rest'],
  ]
  const parts: Record<string, number> = {}
  for (const { name, bytes } of listColumns(plan)) {
    const [, part] = names.find(([pattern]) => pattern.test(name))!
    parts[part] = (parts[part] ?? 0) + bytes
  }
  return Object.fromEntries(Object.entries(parts).sort(([, a], [, b]) => b - a))
}

/** Suggests keys that make the plan smaller, with their current values. */
function remedyOf(
  { opened: { folder, model, adapter, weightBits }, kernels }: ConversationDraft,
  { context, numLanes, threads }: Size,
): string {
  const ways = [`languageModel.context (now ${context})`, `numLanes (${numLanes})`, `threads (${threads})`]
  const frozen = 'or an adapter instead of all weights (languageModel.loraRank)'
  const last =
    adapter === null
      ? frozen
      : weightBits < 32
        ? 'or a lower languageModel.loraRank'
        : 'or languageModel.quantize=16, 8 or 4'
  const sizes = folder === null ? ', languageModel.width and layers' : ''
  const recomputed = model.recomputesActivations ? '' : ', languageModel.checkpointing=true'
  const halved = model.cacheBits === 16 ? '' : ', languageModel.cacheBits=16'
  const beyond = reachesApart(kernels) ? '' : ', or kernels=native, which are not bound to 4 GiB'
  return `less of ${ways.join(', ')}${sizes}${recomputed}${halved}, ${last}${beyond}`
}
