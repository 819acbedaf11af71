/**
 * A trainer composed of parts: advantages, loss, optimizer, and source of trajectories. Advantages and loss are
 * descriptors, or functions over columns; a user's loss sees the whole batch once and returns its derivatives. A step
 * is atomic: it is made on copies, and copied to the model when nothing can throw any more. If it throws, weights,
 * moments and the count of steps stay.
 */
import {
  type AdvantageDescriptor,
  describeLoss,
  type LossDescriptor,
  withAdvantages,
} from '../../../algorithms/losses/losses.ts'
import { checkOptimizer, learningRateOf, learningRateSetting } from '../../../algorithms/optimizers/optimizer.ts'
import { tokenOptimizerSettings } from '../../../algorithms/optimizers/tensors.ts'
import { rlRates } from '../../../algorithms/tokens/rl.ts'
import { packBatch, type TokenBatch } from '../../../algorithms/tokens/token-batch.ts'
import {
  alone,
  microBatchRows,
  TokenLearner,
  type TokenLossSums,
  tokenLearnerPlan,
  trainedOf,
} from '../../../algorithms/tokens/token-learner.ts'
import { tokenUpdatePlan } from '../../../algorithms/tokens/token-thread.ts'
import { checkCount, checkGiven, checkOptions, InputError, OptimizerRequiredError, show } from '../../../base/errors.ts'
import { Random } from '../../../base/random.ts'
import { resolveSettings, type SettingValues } from '../../../base/settings.ts'
import { column } from '../../../components/column.ts'
import { bestKernelBuild, PolicySum, TokenSum } from '../../../kernels/bind.ts'
import type { Kernels } from '../../../kernels/kernels.ts'
import type { LoraModel } from '../../../language/transformer/lora.ts'
import { loadLoraWeights, saveLora } from '../../../language/transformer/lora-folder.ts'
import { takeColumns } from '../../../language/transformer/memory.ts'
import type { TransformerModel } from '../../../language/transformer/model.ts'
import {
  type BaseWeights,
  bitsOf,
  quantizedPlan,
  setWeights,
  wholeWeights,
} from '../../../language/transformer/quantized.ts'
import { EpisodeBuffer } from '../../../tables/episodes/episode-buffer.ts'
import { allRows, Trajectories, type TrajectoryColumns } from '../../../tables/trajectories/trajectories.ts'
import { asConversations } from '../../../world/cohort.ts'
import { type ConversationCohort, loadAdapter, refreshWeights } from '../../../world/conversations/cohort.ts'
import { World } from '../../../world/world.ts'
import { tokenForms } from './token-forms.ts'
import { inOwnMemory, type PreparedUpdate, prepareUpdate } from './token-update.ts'

/** An open language model. The trainer changes its weights in place. */
export interface TrainedLanguageModel {
  readonly model: TransformerModel
  readonly weights: BaseWeights
  /** The adapter to train instead of the weights. */
  readonly adapter?: { readonly lora: LoraModel; readonly weights: Float32Array } | null
  /** Maximum tokens of a trajectory; default the model's. */
  readonly context?: number
  /** The sampling temperature of the trajectories; default 1. */
  readonly temperature?: number
}

/** Inputs of losses and metrics: a row per token, or, where noted, per trajectory, in order. */
export interface TrainingColumns {
  /** Trajectory i's tokens are offsets[i] … offsets[i + 1] − 1. */
  readonly offsets: Int32Array
  /** 1 for tokens to learn from: those that the model chose, in trajectories with an advantage. */
  readonly counted: Uint8Array
  /** Under the weights before the step, from the training's forward pass, in nats. */
  readonly logprob: Float32Array
  /** −Σ p log p over the vocabulary. */
  readonly entropy: Float32Array
  /** Before the update: as recorded, or from `getLogprobsFn`; under the weights before the step if unknown. */
  readonly oldLogprob: Float32Array
  /** Null if the loss reads none. */
  readonly referenceLogprob: Float32Array | null
  readonly advantage: Float32Array
  /** A row per trajectory; 0 if not `known`. So are the next two; groups are numbered from 0. */
  readonly reward: Float64Array
  readonly known: Uint8Array
  readonly group: Int32Array
}

/** Advantages, one per trajectory; NaN excludes it. */
export type AdvantageFn = (columns: TrajectoryColumns) => ArrayLike<number>

/** A loss over a whole batch, with its derivatives by logprob and entropy, one per token. */
export type LossFn = (columns: TrainingColumns) => {
  readonly loss: number
  readonly dLogprob: ArrayLike<number>
  readonly dEntropy?: ArrayLike<number>
}

/** A source of trajectories. */
export type TrajectoryBuffer = Trajectories | EpisodeBuffer

const trainerOptimizerSettings = {
  ...tokenOptimizerSettings(1e-8),
  learningRate: learningRateSetting(rlRates),
}

/** The parts of a `Trainer`. */
export interface TrainerParts {
  /** A world of conversations, or an open model. Its initial weights are the reference, if the loss has one. */
  readonly model: World | TrainedLanguageModel
  /** `grpo.computeAdvantages` …, or your own. */
  readonly advantageFn: AdvantageDescriptor | AdvantageFn
  /** `grpo.policyLoss`, `describeLoss(…)`, or your own. */
  readonly lossFn: LossDescriptor | LossFn
  readonly optimizer?: Partial<SettingValues<typeof trainerOptimizerSettings>> | null
  /** Log-probabilities before the update, one per token; `evaluate` gives those of the current weights. */
  readonly getLogprobsFn?: (columns: TrajectoryColumns, evaluate: () => Float32Array) => ArrayLike<number>
  /** Further metrics of a step, from its forward pass. */
  readonly metricsFn?: (columns: TrainingColumns) => Readonly<Record<string, number>>
  /** Gradient norm limit; null: none. Default 0.5. */
  readonly maxGradNorm?: number | null
  readonly buffer?: TrajectoryBuffer
  /** Selects the buffer's trajectories to learn from; default all. */
  readonly dataSelectorFn?: (buffer: TrajectoryBuffer) => TrajectoryColumns
  /** Clear the buffer after each step made of it; default true. */
  readonly onPolicy?: boolean
  /** A folder for the adapter, written after each step. */
  readonly autoSaveLora?: string
}
const PARTS = [
  ...['model', 'advantageFn', 'lossFn', 'optimizer', 'getLogprobsFn', 'metricsFn', 'maxGradNorm'],
  ...['buffer', 'dataSelectorFn', 'onPolicy', 'autoSaveLora'],
]

/** A step's metrics. `gradNorm` is before clipping; `numRecomputed` tokens had no recorded log-probability. */
export type StepMetrics = Readonly<Record<string, number>> & {
  readonly loss: number
  readonly step: number
  readonly gradNorm: number
  readonly tokens: number
  readonly numRecomputed: number
}

/**
 * Trains a language model from trajectories.
 * @example
 * const trainer = new Trainer({ model: world, advantageFn: grpo.computeAdvantages, lossFn: grpo.policyLoss,
 *   optimizer: { learningRate: 1e-3 }, buffer: world.cohort().trajectories })
 * const { loss } = await trainer.train()
 */
export class Trainer {
  readonly #options: TrainerParts
  readonly #optimizer: SettingValues<typeof trainerOptimizerSettings> | null
  readonly #maxGradNorm: number
  readonly #loss: LossDescriptor | null
  readonly #target: Required<TrainedLanguageModel>
  readonly #cohort: ConversationCohort | null
  /** The adapter or the weights, and the trainer's own copy of them. */
  readonly #trained: Float32Array
  readonly #own: Float32Array
  readonly #learner: TokenLearner
  readonly #kernels: Kernels
  readonly #rows: number
  #buffer: TrajectoryBuffer | null
  #select: NonNullable<TrainerParts['dataSelectorFn']>
  #stepCount = 0
  #history: StepMetrics[] = []

  /** @throws InputError for parts that do not fit together, and invalid models or optimizers. */
  constructor(options: TrainerParts) {
    checkOptions('Trainer', options, PARTS)
    const { model, advantageFn, lossFn, optimizer, maxGradNorm = 0.5, buffer = null, dataSelectorFn } = options
    this.#options = options
    for (const [name, part] of Object.entries({ advantageFn, lossFn })) {
      if (typeof part === 'function' || typeof part?.settings === 'object') continue
      throw new InputError(name, show(part), 'a descriptor, like those of grpo, or a function')
    }
    if (maxGradNorm !== null && !(maxGradNorm > 0)) {
      throw new InputError('maxGradNorm', show(maxGradNorm), 'a number above 0, or null')
    }
    this.#maxGradNorm = maxGradNorm ?? Number.POSITIVE_INFINITY
    this.#optimizer = optimizer == null ? null : resolveSettings('optimizer', trainerOptimizerSettings, optimizer)
    if (this.#optimizer !== null) checkOptimizer('optimizer', this.#optimizer, {}, true)
    const advantages = typeof advantageFn === 'function' ? null : advantageFn
    this.#loss = typeof lossFn === 'function' ? null : withAdvantages(lossFn, advantages)
    this.#cohort = model instanceof World ? asConversations('model', model.cohort()) : null
    this.#target = model instanceof World ? targetOf(this.#cohort!) : filled(model)
    if (this.#loss?.settings.advantage === 'critic' && !this.#target.model.hasValueHead) {
      throw new InputError(
        'lossFn',
        'a loss with a critic, and a model without a value head',
        'a model with a value head',
      )
    }

    const { model: network, weights, adapter, context } = this.#target
    if (options.autoSaveLora !== undefined && adapter === null) {
      throw new InputError('autoSaveLora', 'a model without an adapter', 'a model with an adapter, or no folder')
    }
    const lora = adapter?.lora ?? null
    const weightBits = bitsOf(network, weights)
    const settings = this.#optimizer ?? resolveSettings('optimizer', trainerOptimizerSettings, {})
    const hasReference = this.#loss?.columns.includes('referenceLogprob') ?? false
    this.#rows = microBatchRows(context)
    // A step is made in the trainer's columns and copied to the model when nothing can fail any more.
    const plan = {
      weights: weightBits === 32 ? column('f32', network.numParameters) : quantizedPlan(network, weightBits),
      adapter: column('f32', lora?.numParameters ?? 0),
      learner: tokenLearnerPlan(network, this.#rows, context, settings, hasReference, lora, weightBits),
    }
    const { columns, kernels } = takeColumns(plan, model instanceof World ? model.kernelBuild : bestKernelBuild())
    this.#kernels = kernels
    const own = columns.weights as BaseWeights
    setWeights(own, network, wholeWeights(network, weights))
    columns.adapter.set(adapter?.weights ?? [])
    const random = this.#cohort?.random ?? new Random(0)
    const adapted = lora === null ? null : { lora, weights: columns.adapter, random }
    this.#learner = new TokenLearner(network, own, columns.learner, this.#kernels, adapted)
    this.#trained = trainedOf(weights, adapter)
    this.#own = trainedOf(own, adapted)
    this.#learner.trained.start()
    this.#buffer = buffer
    this.#select = dataSelectorFn ?? selectAllData
  }

  get stepCount(): number {
    return this.#stepCount
  }

  /** Sets the buffer to take trajectories from. */
  linkBuffer(buffer: TrajectoryBuffer, dataSelectorFn: TrainerParts['dataSelectorFn'] = this.#select): void {
    this.#buffer = buffer
    this.#select = dataSelectorFn
  }

  /** Takes trajectories only from the argument of `train`. */
  unlinkBuffer(): void {
    this.#buffer = null
  }

  /**
   * Makes one step from these trajectories, or from the linked buffer's, which is then cleared (`onPolicy`). Errors of
   * the parts are rethrown; nothing has changed then. Only `autoSaveLora` happens after the step.
   * @throws OptimizerRequiredError without an optimizer; InputError if there is no trajectory to learn from, or a part
   * returns a wrong number of elements, or one that is not finite.
   */
  async train(rolloutData?: TrajectoryBuffer | TrajectoryColumns): Promise<StepMetrics> {
    const metrics = this.#step(rolloutData)
    if (this.#cohort !== null) await refreshWeights(this.#cohort, this.#cohort.version + 1)
    const { autoSaveLora } = this.#options
    const { adapter } = this.#target
    if (autoSaveLora !== undefined) await saveLora(autoSaveLora, adapter!.lora, adapter!.weights)
    return metrics
  }

  /** Continues from a saved adapter, keeping moments. @throws InputError as `loadAdapter` does, changing nothing. */
  async loadAdapter(folder: string): Promise<void> {
    const { adapter } = this.#target
    if (this.#cohort !== null) await loadAdapter(this.#cohort, folder)
    else if (adapter !== null) adapter.weights.set(await loadLoraWeights(folder, adapter.lora))
    else throw new InputError(`adapter ${folder}`, 'a model without an adapter', 'a model with an adapter')
  }

  /** Repeats `count` times: collects, and makes a step of it. */
  async trainEpoch(
    coordinator: { collect(): TrajectoryBuffer | Promise<TrajectoryBuffer> },
    numSteps = 1,
  ): Promise<StepMetrics[]> {
    const all: StepMetrics[] = []
    while (all.length < numSteps) all.push(await this.train(await coordinator.collect()))
    return all
  }

  /** Each metric's mean over the steps since `resetMetrics`, and the last step's; null before the first. */
  getMetrics(): { readonly steps: number; readonly mean: Record<string, number>; readonly last: StepMetrics } | null {
    const last = this.#history.at(-1)
    if (last === undefined) return null
    const mean: Record<string, number> = {}
    for (const key of Object.keys(last)) {
      const values = this.#history.flatMap((metrics) => (Object.hasOwn(metrics, key) ? [metrics[key]!] : []))
      mean[key] = values.reduce((sum, value) => sum + value, 0) / values.length
    }
    return { steps: this.#history.length, mean, last }
  }

  /** Resets the means; the step count stays. */
  resetMetrics(): void {
    this.#history = []
  }

  #step(rolloutData: TrajectoryBuffer | TrajectoryColumns | undefined): StepMetrics {
    const optimizer = this.#optimizer
    if (optimizer === null) throw new OptimizerRequiredError('trainer.optimizer', 'none')
    const columns = this.#take(rolloutData)
    this.#own.set(this.#trained)
    const metrics = this.#differentiate(columns)
    const rate = learningRateOf(optimizer.learningRate, rlRates, {
      isLoaded: this.#cohort?.isLoaded ?? true,
      adapter: this.#target.adapter,
    })
    const gradNorm = this.#learner.trained.descend(optimizer, rate, this.#maxGradNorm)
    this.#trained.set(this.#own)
    this.#stepCount++
    if (rolloutData === undefined && (this.#options.onPolicy ?? true)) this.#buffer!.clear()
    const whole = { ...metrics, step: this.#stepCount, gradNorm } as StepMetrics
    this.#history.push(whole)
    return whole
  }

  #take(rolloutData: TrajectoryBuffer | TrajectoryColumns | undefined): TrajectoryColumns {
    if (rolloutData === undefined && this.#buffer === null) {
      throw new InputError('train()', 'neither trajectories nor a linked buffer', 'trajectories or a linked buffer')
    }
    const data = rolloutData ?? this.#select(this.#buffer!)
    const isBuffer = data instanceof Trajectories || data instanceof EpisodeBuffer
    const columns = isBuffer ? selectAllData(data) : data
    if (columns.reward.length === 0) throw new InputError('train()', 'no trajectory', 'at least one')
    return columns
  }

  /** Computes the gradient, and returns the metrics except the step's own. */
  #differentiate(columns: TrajectoryColumns): Record<string, number> {
    const { advantageFn, lossFn, getLogprobsFn, metricsFn } = this.#options
    const { temperature } = this.#target
    const numTokens = columns.token.length
    const rows = allRows(columns)
    const batch = packBatch({ ...rows, ...tokenForms(rows, this.#cohort) }, this.#rows)
    const update = inOwnMemory(
      tokenUpdatePlan({ rows: batch.order.length, tokens: numTokens }, this.#target.model.hasValueHead),
    )
    const evaluate = (): Float32Array => {
      alone(this.#learner.evaluate(batch, temperature, 'policy', update, update))
      return update.logprob.slice()
    }
    const isUnread = (_: number, t: number) => columns.lossMask[t] === 0
    const oldLogprob = getLogprobsFn && checked('getLogprobsFn', getLogprobsFn(columns, evaluate), numTokens, isUnread)
    const advantage =
      typeof advantageFn !== 'function'
        ? undefined
        : checked('advantageFn', advantageFn(columns), columns.reward.length, Number.isNaN)
    // For a user's loss, only the advantages of a descriptor are computed.
    const loss = this.#loss ?? lossOfAdvantages(typeof advantageFn === 'function' ? null : advantageFn)
    const overrides = {
      ...(oldLogprob === undefined ? {} : { oldLogprob }),
      ...(advantage === undefined ? {} : { advantage }),
    }
    const ready = alone(prepareUpdate(this.#learner, this.#kernels, loss, rows, batch, update, temperature, overrides))
    const { totals, given, numRecomputed } = ready
    if (totals.numTokens === 0) {
      const got = `no token to learn from: ${totals.numUnknown} rewards unknown, ${totals.numAlone} alone in their group`
      throw new InputError('train()', got, 'at least one trajectory with an advantage')
    }
    const base = { tokens: totals.numTokens, numUnknown: totals.numUnknown, numRecomputed, ...meanReward(ready) }
    const seen = (evaluated: Pick<TokenLossSums, 'logprob' | 'entropy'>) => columnsOf(columns, batch, ready, evaluated)
    if (typeof lossFn !== 'function') {
      const step = this.#stepCount
      const sums = alone(this.#learner.differentiate(batch, loss, totals, given, update, temperature, step))
      const value = sums.policy[PolicySum.loss]! + sums.value[TokenSum.loss]!
      return { loss: value, ...base, ...figuresOf(sums), ...metricsFn?.(seen(sums)) }
    }
    let figures: Record<string, number> = {}
    this.#learner.differentiateBy(
      batch,
      (evaluated, { dLogprob, dEntropy }) => {
        const own = seen(evaluated)
        const { loss: value, dLogprob: byLogprob, dEntropy: byEntropy } = lossFn(own)
        if (!Number.isFinite(value)) throw new InputError('loss of lossFn', show(value), 'a finite number')
        dLogprob.set(checked('dLogprob of lossFn', byLogprob, numTokens))
        if (byEntropy !== undefined) dEntropy.set(checked('dEntropy of lossFn', byEntropy, numTokens))
        figures = { loss: value, ...base, ...metricsFn?.(own) }
      },
      update,
      temperature,
      this.#stepCount,
    )
    return figures
  }
}

function targetOf(cohort: ConversationCohort): Required<TrainedLanguageModel> {
  const { model, weights, quantized, adapter, context, sampling } = cohort
  return { model, weights: quantized ?? weights, adapter, context, temperature: sampling.temperature }
}

function filled({ model, weights, ...given }: TrainedLanguageModel): Required<TrainedLanguageModel> {
  if (typeof model?.initialize !== 'function')
    throw new InputError('model', show(model), 'a world, or { model, weights }')
  const { adapter = null, context = model.shape.contextLength, temperature = 1 } = given
  return { model, weights, adapter, context, temperature }
}

/** All trajectories of a buffer: the default `dataSelectorFn`. */
export function selectAllData(buffer: TrajectoryBuffer): TrajectoryColumns {
  if (buffer instanceof Trajectories) return buffer.columns()
  checkGiven('buffer of selectAllData', buffer, ['sample'])
  return buffer.sample()
}

/** A `dataSelectorFn` of the last `count` conversations, or all. @throws InputError unless it is a whole number ≥ 1. */
export function selectRecentData(count: number): (buffer: TrajectoryBuffer) => TrajectoryColumns {
  checkCount('count', count)
  return (buffer) => {
    if (!(buffer instanceof Trajectories)) return buffer.sampleEpisodes(count, 'desc')
    const { segment } = buffer.columns()
    let from = buffer.count
    for (let left = count; left > 0 && from > 0; ) if (segment[--from] === 0) left--
    return buffer.take(Array.from({ length: buffer.count - from }, (_, i) => from + i)).columns()
  }
}

/** Checks that a function returned the requested number of finite numbers. */
function checked(
  subject: string,
  values: ArrayLike<number>,
  length: number,
  mayBe: (value: number, i: number) => boolean = () => false,
): ArrayLike<number> {
  if (values?.length !== length) {
    throw new InputError(subject, values === undefined ? 'nothing' : `${values.length} numbers`, `${length} numbers`)
  }
  for (let i = 0; i < length; i++) {
    if (!Number.isFinite(values[i]) && !mayBe(values[i]!, i)) {
      throw new InputError(`${subject}[${i}]`, show(values[i]), 'a finite number')
    }
  }
  return values
}

function columnsOf(
  { offsets }: TrajectoryColumns,
  { order }: TokenBatch,
  { update, given, conversations, ...whole }: PreparedUpdate,
  { logprob, entropy }: Pick<TokenLossSums, 'logprob' | 'entropy'>,
): TrainingColumns {
  const conversationOf = new Int32Array(order.length)
  for (const [c, places] of conversations.entries()) for (const place of places) conversationOf[order[place]!] = c
  const reward = Float64Array.from(conversationOf, (c) => whole.reward[c]!)
  const known = Uint8Array.from(conversationOf, (c) => whole.known[c]!)
  const group = conversationOf.map((c) => whole.group[c]!)
  const { oldLogprob, referenceLogprob } = given
  const { counted, tokenAdvantage: advantage } = update.prepared
  return { offsets, counted, logprob, entropy, oldLogprob, referenceLogprob, advantage, reward, known, group }
}

function figuresOf({ policy }: TokenLossSums): Record<string, number> {
  const per = (sum: number) => policy[sum]! / policy[PolicySum.tokens]!
  return {
    entropy: per(PolicySum.entropy),
    'kl/k1': per(PolicySum.k1),
    'kl/k2': per(PolicySum.k2),
    'kl/k3': per(PolicySum.k3),
    ratio: per(PolicySum.ratio),
    'clipRatio/low': per(PolicySum.clippedLow),
    'clipRatio/high': per(PolicySum.clippedHigh),
  }
}

function meanReward({ reward, known }: PreparedUpdate): { reward?: number } {
  const rewards = [...reward].filter((_, i) => known[i] === 1)
  return rewards.length === 0 ? {} : { reward: rewards.reduce((sum, value) => sum + value, 0) / rewards.length }
}

function lossOfAdvantages(advantages: AdvantageDescriptor | null): LossDescriptor {
  return withAdvantages(describeLoss('dapo'), advantages)
}
