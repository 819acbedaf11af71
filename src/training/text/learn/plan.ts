/**
 * What a training of a language model takes of the memory, before any weight is read: its plan is summed, and where the
 * user leaves context, lanes and threads open they are chosen so that it fits.
 *
 * A language model is opened (configuration, tokenizer) first. A learning rate that is null is that of what is trained;
 * all that was chosen is told and written into `config.json`. What has no room is refused with the keys that lower it,
 * and only then are weights read. Whoever loads a model gets the field's defaults; a task's preset is for new models.
 */
import { availableParallelism } from 'node:os'
import { type DefaultRates, learningRateOf } from '../../../algorithms/optimizers/optimizer.ts'
import { type RlDefinition, rl, rlRates } from '../../../algorithms/tokens/rl.ts'
import { sft, sftRates } from '../../../algorithms/tokens/sft.ts'
import { MICRO_BATCH_ROWS } from '../../../algorithms/tokens/token-learner.ts'
import { tokenUpdatePlan, type UpdateSize } from '../../../algorithms/tokens/token-thread.ts'
import { InputError } from '../../../base/errors.ts'
import { group } from '../../../base/metrics.ts'
import { arenaBytes, arenaRoom, checkRoom, formatBytes } from '../../../components/arena.ts'
import { type Columns, column, listColumns, type Plan } from '../../../components/column.ts'
import { NUM_SLOTS } from '../../../kernels/bind.ts'
import { languageModel, type OpenLanguageModel } from '../../../language/language-model.ts'
import type { Sampling } from '../../../language/transformer/sampling.ts'
import type { ConversationDraft, ConversationReservation } from '../../../world/conversations/cohort.ts'
import { bytesToRead, largestConversationPlan, openConversations } from '../../../world/conversations/draft.ts'
import { conversationLogSize } from '../../../world/conversations/log.ts'
import type { BackendDefinition, BackendShape } from '../../backends/backend.ts'
import { localBackend } from '../../backends/local-backend.ts'
import type { Phases } from '../../loop/given-algorithms.ts'
import type { ConversationRunDefinition } from '../../run/definition.ts'

/** Rows of a micro-batch: a conversation as long as the context always fits. */
export function microBatchRows(context: number): number {
  return Math.max(MICRO_BATCH_ROWS, context - 1)
}

/** What the size of a backend's columns depends on, for a model and a training. */
export function backendShape(
  { model, context, adapter, weightBits }: Pick<OpenLanguageModel, 'model' | 'context' | 'adapter' | 'weightBits'>,
  { sft, rl }: Phases,
  threads: number,
): BackendShape {
  const { optimizer } = (sft ?? rl)!.settings
  const hasReference = rl?.loss.columns.includes('referenceLogprob') ?? false
  return { model, adapter, weightBits, context, rows: microBatchRows(context), optimizer, hasReference, threads }
}

/**
 * The columns of what learns, for a model and a training: those of the backend, and those in which updates are worked out.
 * @throws InputError for a loss with a critic and a model without a value head.
 */
export function textLearnerPlan(
  opened: OpenLanguageModel,
  phases: Phases,
  log: UpdateSize,
  threads: number,
  backend: BackendDefinition,
) {
  const { model, context } = opened
  const { sft, rl } = phases
  if (rl?.loss.settings.advantage === 'critic' && !model.hasValueHead) {
    const got = 'a model without a value head'
    throw new InputError(`rl, loss ${rl.loss.id}`, got, 'one with a critic, like languageModel({ critic: true })')
  }
  const batchSize = sft?.settings.batchSize ?? 0
  const examples = { rows: batchSize, tokens: batchSize * context }
  const update = { rows: Math.max(log.rows, examples.rows), tokens: Math.max(log.tokens, examples.tokens) }
  return {
    ...backend.plan?.(backendShape(opened, phases, threads)),
    update: tokenUpdatePlan(update, model.hasValueHead),
    examples: examplesPlan(examples),
  } satisfies Plan
}

/** Plans the tokens of a supervised step's examples, one example after another. */
export function examplesPlan({ tokens }: UpdateSize) {
  return { token: column('i32', tokens), lossMask: column('u8', tokens) }
}

/**
 * What a training reserves in a cohort: what learns, and the log of the conversations that it keeps.
 * @throws InputError as `textLearnerPlan` does.
 */
export function textReservation(
  draft: ConversationDraft,
  phases: Phases,
  threads: number,
  backend: BackendDefinition = localBackend,
): Required<Omit<ConversationReservation, 'use'>> {
  const log = conversationLogSize(draft, phases.rl === undefined ? 0 : conversationsKept(phases.rl))
  return { learner: textLearnerPlan(draft.opened, phases, log, threads, backend), log }
}

/** Conversations that are over and wait to be learned from, at most: those of as many updates as may be sampled ahead. */
function conversationsKept({ settings }: RlDefinition): number {
  const { groupsPerUpdate, groupSize, maxStaleness, overSampling } = settings
  return Math.ceil(overSampling * (maxStaleness + 1) * groupsPerUpdate) * groupSize
}

/** The columns in which updates are worked out, beside those of the backend. */
export type TextLearnerColumns = Columns<ReturnType<typeof textLearnerPlan>>

/** What a run takes, and what was chosen for it. */
export interface TextRunPlan {
  /** With numbers where the user left them open. */
  readonly definition: ConversationRunDefinition
  readonly threads: number
  /** Of the world's memory; and of that the largest parts, by what they hold. */
  readonly bytes: number
  readonly parts: Readonly<Record<string, number>>
  /** What was chosen, a sentence each. */
  readonly notes: readonly string[]
}

/** What of a plan's size a user decides. */
interface Size {
  readonly context: number
  readonly numLanes: number
  readonly threads: number
}

/** Lanes where the user names none, and the tokens that a loaded model's conversations have at most where he names none. */
const [LANES, CONTEXT] = [64, 1024]
/** Examples times the tokens of a turn from which on looking at all of them may take minutes. */
const MUCH_TO_LOOK_AT = 2 ** 28
/** Threads are given up before a context or lanes below the first of these, and a run before those below the second. */
const LEAST = [
  { context: 256, numLanes: 8 },
  { context: 16, numLanes: 1 },
]

/**
 * Plans a run. What is left open is chosen: of a loaded model's context 0 the most that fits, up to 1,024 tokens; of lanes 0
 * as many as fit, up to 64; of threads 0 as many as the machine has, or fewer where their columns have no room; and of a
 * learning rate null that of what is trained.
 * @throws InputError where nothing fits, with the keys that lower it; and as `openConversations` does.
 */
export async function planTextRun(given: ConversationRunDefinition): Promise<TextRunPlan> {
  const { environment, policy, settings, engine, backend } = given
  const { numLanes: lanes, segmentation } = settings
  const chosenBy = engine === null ? {} : { engine }
  const draft = await openConversations({ environment, policy, numLanes: lanes || LANES, segmentation, ...chosenBy })
  const { opened } = draft
  const { definition, notes: rates } = withRates(given, draft)
  const notes = [...rates, ...patience(draft)]
  const training = trainingOf(definition)
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
  const besides = bytesToRead(draft)
  const room = arenaRoom(besides)
  const isOpen = opened.folder !== null && policy.parameters.context === 0
  const most: Size = {
    context: isOpen ? Math.min(opened.context, CONTEXT) : opened.context,
    // Who only learns from examples talks to nobody.
    numLanes: settings.numLanes || (given.rl === null ? 1 : LANES),
    threads: settings.threads || Math.min(availableParallelism(), NUM_SLOTS),
  }
  const tried = [...sizes(most, isOpen, settings.numLanes === 0, settings.threads === 0)]
  const least = tried.at(-1)!
  checkRoom(planOf(least), besides, remedyOf(draft, least))
  for (const size of tried) {
    const plan = planOf(size)
    const bytes = arenaBytes(plan)
    if (bytes > room) continue
    const isOne = (key: keyof Size) => size[key] === most[key]
    const chosen = [
      ...(isOpen ? [`context ${size.context} of the ${opened.context} that the model was made for`] : []),
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
      notes:
        chosen.length === 0 ? notes : [`${chosen.join(', ')}: what fits the ${formatBytes(room)} there are`, ...notes],
    }
  }
  throw new Error('Colonnade has a bug: what had room has none now')
}

/** A word to whoever waits while many or long examples are looked at, before anything else is said. */
function patience({ options: { environment, maxTokens = environment.maxTokens } }: ConversationDraft): string[] {
  const { numExamples } = environment
  if (numExamples * maxTokens < MUCH_TO_LOOK_AT) return []
  return [
    `${group(numExamples)} examples with turns of up to ${maxTokens} tokens are looked at first: that may take minutes`,
  ]
}

/** The distribution that a run samples from. */
export function samplingOf(rl: RlDefinition | null): Partial<Sampling> {
  if (rl === null) return {}
  const { temperature, topK, topP, minP } = rl.settings
  return { temperature, topK, topP, minP }
}

/** Learning rates as numbers, and those of a loaded model in words. */
function withRates(
  given: ConversationRunDefinition,
  { opened: { folder, adapter } }: ConversationDraft,
): { definition: ConversationRunDefinition; notes: string[] } {
  const trained = { isLoaded: folder !== null, adapter }
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
    sft({
      ...given.sft.parameters,
      learningRate: rateOf(given.sft.settings.learningRate, sftRates, 'supervised steps'),
    })
  const notes =
    told.length === 0
      ? []
      : [`learning rate ${told.join(', ')}: as the field trains ${adapter ? 'adapters' : 'loaded models'}`]
  return { definition: { ...given, sft: supervised, rl: reinforced }, notes }
}

/** What a run's trainer does. */
export function trainingOf({ sft, rl }: ConversationRunDefinition): Phases {
  return { ...(sft === null ? {} : { sft }), ...(rl === null ? {} : { rl }) }
}

/** Sizes from the largest down, in the order in which they are tried. What is not open stays. */
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

/** A number, its half, the half of that, …, down to `least`; the number itself where it is less. */
function halves(number: number, least: number): number[] {
  const list = [number]
  while (list.at(-1)! / 2 >= least) list.push(Math.floor(list.at(-1)! / 2))
  return list
}

/** Bytes by what they are for, those of all threads together, the largest first. */
function partsOf(plan: Plan): Record<string, number> {
  const names: readonly (readonly [RegExp, string])[] = [
    [/^(weights|quantized|adapter)\b/, 'weights'],
    [/^learner\.optimizer\b/, 'optimizer'],
    [/^learner\.gradient\b/, 'gradients'],
    [/^learner\.reference\b/, 'reference'],
    [/^learner\.packed\b/, 'activations'],
    [/^engine\.decoder\.cache\b/, 'cache'],
    [/^(conversation|log|learner\.(update|examples))\b/, 'conversations'],
    [/./, 'the rest'],
  ]
  const parts: Record<string, number> = {}
  for (const { name, bytes } of listColumns(plan)) {
    const [, part] = names.find(([pattern]) => pattern.test(name))!
    parts[part] = (parts[part] ?? 0) + bytes
  }
  return Object.fromEntries(Object.entries(parts).sort(([, a], [, b]) => b - a))
}

/** The keys that make a plan smaller, as they stand. */
function remedyOf(
  { opened: { folder, adapter, weightBits } }: ConversationDraft,
  { context, numLanes, threads }: Size,
): string {
  const ways = [`languageModel.context (now ${context})`, `numLanes (${numLanes})`, `threads (${threads})`]
  const frozen = 'or an adapter in place of all weights (languageModel.loraRank)'
  const last =
    adapter === null
      ? frozen
      : weightBits < 32
        ? 'or a lower languageModel.loraRank'
        : 'or languageModel.quantize=8 or 4'
  const sizes = folder === null ? ', languageModel.width and layers' : ''
  return `less of ${ways.join(', ')}${sizes}, ${last}`
}
