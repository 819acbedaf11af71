/** Training backends as in other systems: calls take batches of samples; the backend has model, loss and optimizer. */
import { join } from 'node:path'
import { describeLoss, type LossDescriptor, prepareLoss, withAdvantages } from '../algorithms/losses/losses.ts'
import {
  checkOptimizer,
  learningRateOf,
  learningRateSetting,
  optimizerSettings,
} from '../algorithms/optimizers/optimizer.ts'
import { rlRates } from '../algorithms/tokens/rl.ts'
import { sftRates } from '../algorithms/tokens/sft.ts'
import { markLearned, packBatch } from '../algorithms/tokens/token-batch.ts'
import { microBatchRows, trainedOf } from '../algorithms/tokens/token-learner.ts'
import { tokenUpdatePlan } from '../algorithms/tokens/token-thread.ts'
import { checkOptions, InputError, OptimizerRequiredError, show } from '../base/errors.ts'
import { resolveSettings, type SettingValues } from '../base/settings.ts'
import type { Engine, EngineDefinition, WeightsDelivery } from '../engines/engine.ts'
import { poolEngine } from '../engines/pool.ts'
import { defineTextEnvironment, type TextEnvironmentDefinition } from '../environments/text.ts'
import { PolicySum, spansOf, TokenSum } from '../kernels/bind.ts'
import type { LanguageModelDefinition } from '../language/language-model.ts'
import type { RolloutBatch } from '../tables/episodes/rollout-batch.ts'
import { samplesToTrajectories } from '../tables/trajectories/sample.ts'
import { allRows } from '../tables/trajectories/trajectories.ts'
import {
  type BackendCall,
  type BackendDefinition,
  differentiate,
  type TrainFuture,
  type TrainingBackend,
} from '../training/backends/backend.ts'
import { localBackend } from '../training/backends/local-backend.ts'
import { evaluatorOf, settled } from '../training/text/learn/rl-phase.ts'
import { tokenForms } from '../training/text/learn/token-forms.ts'
import { inOwnMemory, prepareUpdate } from '../training/text/learn/token-update.ts'
import type { ConversationCohort } from '../world/conversations/cohort.ts'
import { createWorld, type World } from '../world/world.ts'
import { grpo } from './named-losses.ts'

/** A batch: samples with rewards, or, without `samples`, sequences for supervised learning. */
export type TrainingBatch =
  | (Pick<RolloutBatch, 'samples'> & {
      /** Advantages per sample that replace the loss's own; NaN excludes a sample. */
      readonly advantages?: ArrayLike<number>
    })
  | {
      readonly tokens: readonly ArrayLike<number>[]
      /** 1 for tokens to learn; per sequence a list as long as its tokens. */
      readonly lossMasks: readonly ArrayLike<number>[]
    }

/** Learns from batches of samples. Any object with these calls works. */
export interface BatchBackend {
  /** Computes the gradient of a batch. Returns figures by name, with `loss`. */
  forwardBackward(batch: TrainingBatch): TrainFuture<Readonly<Record<string, number>>>
  /** Makes one optimizer step. Returns figures by name. `rateFactor` scales the learning rate, default 1. */
  optimStep(rateFactor?: number): TrainFuture<Readonly<Record<string, number>>>
  /** Saves the trained weights, and returns the path for loading. */
  saveCheckpoint(step: number, metrics?: Readonly<Record<string, number>>): TrainFuture<string>
  loadCheckpoint(path: string): TrainFuture<void>
  /** The weights at this point in the order of calls, for engines, with this version number. */
  getWeights(version: number): TrainFuture<WeightsDelivery>
  loadWeights(weights: Float32Array): TrainFuture<void>
}

const optimizer = {
  ...optimizerSettings(1e-8),
  learningRate: learningRateSetting(rlRates),
}

/** Options of `openTrainingBackend`. */
export interface OpenBackendOptions {
  readonly policy: LanguageModelDefinition
  /** The loss of samples; default GRPO's, without a reference. */
  readonly lossFn?: LossDescriptor
  /** Default Adam, with the usual learning rate of the kind of training; null: none, and no step is possible. */
  readonly optimizer?: Partial<SettingValues<typeof optimizer>> | null
  /** Gradient norm limit; default 1. */
  readonly maxGradNorm?: number
  /** The sampling temperature of the samples; default 1. */
  readonly temperature?: number
  /** Where `saveCheckpoint` writes `step_<n>.safetensors`. */
  readonly checkpointDir?: string
  /** Keys initial weights; default 0. */
  readonly seed?: number
  /** The backend that computes; default this process. */
  readonly backend?: BackendDefinition
  /** Generating engines, as one pool, for `runRlTraining` and `generateByEngines`. Default: none. */
  readonly engines?: readonly EngineDefinition[]
  /** Answers that the engines generate at once; default 8. */
  readonly slots?: number
  /** The model's task, if it determines the characters. */
  readonly environment?: TextEnvironmentDefinition
}
const OPTIONS = [
  ...['policy', 'lossFn', 'optimizer', 'maxGradNorm', 'temperature', 'checkpointDir', 'seed', 'backend'],
  ...['environment', 'engines', 'slots'],
]

/** A backend over a language model, and the model. */
export interface OpenBackend extends BatchBackend {
  /** Its only cohort has model, tokenizer and weights; its engine always has the current weights. */
  readonly world: World<ConversationCohort>
  readonly checkpointDir: string | null
  /** The given engines, as one. */
  readonly engines: readonly Engine[]
}

/**
 * Opens a language model with a backend that trains it.
 * @throws InputError for options that do not fit together, and as `createWorld` does.
 * @example
 * const backend = await openTrainingBackend({ policy: languageModel({ folder }), optimizer: { learningRate: 1e-4 } })
 * const { loss } = await backend.forwardBackward(batch)
 * await backend.optimStep()
 */
export async function openTrainingBackend(options: OpenBackendOptions): Promise<OpenBackend> {
  checkOptions('openTrainingBackend', options, OPTIONS)
  const { policy, seed = 0, environment = samplesEnvironment, backend: definition = localBackend } = options
  const settings = resolveSettings('optimizer', optimizer, options.optimizer ?? {})
  checkOptimizer('optimizer', settings)
  const { lossFn = grpo.policyLoss, maxGradNorm = 1, temperature = 1 } = options
  for (const [name, value] of Object.entries({ maxGradNorm, temperature })) {
    if (!(value > 0)) throw new InputError(name, show(value), 'a number above 0')
  }
  if (options.slots !== undefined && options.engines === undefined) {
    throw new InputError('slots', `${show(options.slots)} without engines`, 'engines beside it')
  }
  if (typeof lossFn?.settings !== 'object')
    throw new InputError('lossFn', show(lossFn), "one like describeLoss('grpo')")
  const { engines, slots } = options
  const world: World<ConversationCohort> = await createWorld({
    ...{ environment, policy, seed, numLanes: 1 },
    ...(engines !== undefined && { engine: oneOf(engines), numLanes: slots ?? 8, sampling: { temperature } }),
  })
  const { model, adapter: lora, weightBits, context } = world.draft().opened
  if (lossFn.settings.advantage === 'critic' && !model.hasValueHead) {
    throw new InputError(
      'lossFn',
      'a loss with a critic, and a model without a value head',
      'a model with a value head',
    )
  }
  const hasReference = lossFn.columns.includes('referenceLogprob')
  const sizes = { weightBits, context, rows: microBatchRows(context), optimizer: settings.optimizer, hasReference }
  world.reserve(world.draft(), { learner: definition.plan?.({ model, adapter: lora, ...sizes, threads: 1 }) ?? {} })
  const cohort = world.cohort()
  const weights = cohort.quantized ?? cohort.weights
  const { kernels, kernelBuild, clock } = world
  const backend = definition.create({
    ...{ model, ...sizes, weights, adapter: cohort.adapter, trained: trainedOf(weights, cohort.adapter) },
    ...{ columns: cohort.learner, kernels, kernelBuild, clock, sampledWhileLearning: false, team: null },
  })
  await backend.start()
  const hasOptimizer = options.optimizer !== null
  return new ModelBackend(world, backend, lossFn, {
    ...{ settings, hasOptimizer, maxGradNorm, temperature, checkpointDir: options.checkpointDir ?? null },
    engines: engines === undefined ? [] : [cohort.engine],
  })
}

function oneOf(engines: readonly EngineDefinition[]): EngineDefinition {
  return Array.isArray(engines) && engines.length === 1 ? engines[0] : poolEngine(engines)
}

/** Replaces a task for a model that is trained on external samples. */
const samplesEnvironment = defineTextEnvironment({
  id: 'text/samples',
  settings: {},
  make: () => ({
    numExamples: 1,
    example: () => ({ prompt: ' ' }),
    respond: () => ({ reward: null, error: 'samples come from elsewhere' }),
  }),
})()

interface Learning {
  readonly settings: SettingValues<typeof optimizer>
  readonly hasOptimizer: boolean
  readonly maxGradNorm: number
  readonly temperature: number
  readonly checkpointDir: string | null
  readonly engines: readonly Engine[]
}

/** A batch from which nothing can be learned; weights and optimizer are as before. */
export class EmptyBatchError extends InputError {}

class ModelBackend implements OpenBackend {
  readonly world: World<ConversationCohort>
  readonly #backend: TrainingBackend
  readonly #loss: LossDescriptor
  readonly #learning: Learning
  /** The last call. The next one begins when it has settled. */
  #last: Promise<unknown> = Promise.resolve()
  #numCalls = 0
  #steps = 0
  /** Of the last gradient. */
  #rates: typeof rlRates | typeof sftRates = rlRates

  constructor(world: World<ConversationCohort>, backend: TrainingBackend, loss: LossDescriptor, learning: Learning) {
    this.world = world
    this.#backend = backend
    this.#loss = loss
    this.#learning = learning
  }

  get checkpointDir(): string | null {
    return this.#learning.checkpointDir
  }

  get engines(): readonly Engine[] {
    return this.#learning.engines
  }

  forwardBackward(batch: TrainingBatch): TrainFuture<Readonly<Record<string, number>>> {
    return this.#inTurn('forwardBackward', () => {
      const known = ['samples', 'advantages', 'tokens', 'lossMasks']
      if (typeof batch !== 'object' || batch === null) throw new InputError('batch', show(batch), known.join(', '))
      if (!this.#learning.hasOptimizer) throw new OptimizerRequiredError('openTrainingBackend, optimizer', 'null')
      return 'samples' in batch ? this.#fromSamples(batch.samples, batch.advantages) : this.#byHeart(batch)
    })
  }

  async #fromSamples(samples: RolloutBatch['samples'], advantages: ArrayLike<number> | undefined) {
    const { temperature } = this.#learning
    const { kernels } = this.world
    const cohort = this.world.cohort()
    if (advantages !== undefined && advantages.length !== samples.length) {
      throw new InputError('advantages', `${advantages.length} numbers`, `${samples.length}, one for each sample`)
    }
    const loss = advantages === undefined ? this.#loss : withAdvantages(this.#loss, null)
    const columns = samplesToTrajectories(samples).columns()
    const rows = allRows(columns)
    const batch = packBatch({ ...rows, ...tokenForms(rows, cohort) }, microBatchRows(cohort.context))
    const size = { rows: batch.order.length, tokens: columns.token.length }
    const update = inOwnMemory(tokenUpdatePlan(size, cohort.model.hasValueHead))
    const overrides = advantages === undefined ? {} : { advantage: advantages }
    const steps = prepareUpdate(evaluatorOf(this.#backend), kernels, loss, rows, batch, update, temperature, overrides)
    const { totals, given, numRecomputed } = await settled(steps)
    if (totals.numTokens === 0) {
      const got = `no token to learn from: ${totals.numUnknown} rewards unknown, ${totals.numAlone} alone in their group`
      throw new EmptyBatchError('batch', got, 'at least one sample with an advantage')
    }
    const work = { loss, totals, given, update }
    const { policy, value } = await differentiate(this.#backend, kernels, batch, work, {
      temperature,
      step: this.#steps,
    })
    this.#rates = rlRates
    const per = (sum: number) => policy[sum]! / policy[PolicySum.tokens]!
    return {
      loss: policy[PolicySum.loss]! + value[TokenSum.loss]!,
      ...{ tokens: totals.numTokens, numRecomputed, entropy: per(PolicySum.entropy), ratio: per(PolicySum.ratio) },
    }
  }

  async #byHeart({ tokens, lossMasks }: Extract<TrainingBatch, { tokens: unknown }>) {
    if (tokens?.length === undefined || tokens.length === 0 || tokens.length !== lossMasks?.length) {
      const got = `${tokens?.length ?? 'no'} sequences and ${lossMasks?.length ?? 'no'} masks`
      throw new InputError('batch, tokens and lossMasks', got, 'lists of equal length, not empty')
    }
    for (const [i, ids] of tokens.entries()) {
      if (ids.length === lossMasks[i]!.length) continue
      throw new InputError(`lossMasks[${i}]`, `${lossMasks[i]!.length} elements`, `${ids.length}, the number of tokens`)
    }
    const { kernels } = this.world
    const cohort = this.world.cohort()
    const offsets = new Int32Array(tokens.length + 1)
    for (const [i, ids] of tokens.entries()) offsets[i + 1] = offsets[i]! + ids.length
    const token = Int32Array.from(tokens.flatMap((ids) => Array.from(ids)))
    const lossMask = Uint8Array.from(lossMasks.flatMap((mask) => Array.from(mask)))
    const batch = packBatch({ ...spansOf(offsets), token, lossMask }, microBatchRows(cohort.context))
    const update = inOwnMemory(
      tokenUpdatePlan({ rows: tokens.length, tokens: token.length }, cohort.model.hasValueHead),
    )
    markLearned(update.learned, batch)
    const loss = describeLoss('sft')
    const totals = prepareLoss(loss, { spans: batch.spans, lossMask: update.learned }, update.prepared, kernels)
    if (totals.numTokens === 0) throw new InputError('batch', 'no token to learn', 'at least one whose mask is 1')
    const none = new Float32Array(0)
    const given = { oldLogprob: none, referenceLogprob: null, oldValue: none, wholeTokens: null }
    const options = { temperature: 1, step: this.#steps }
    const { policy } = await differentiate(this.#backend, kernels, batch, { loss, totals, given, update }, options)
    this.#rates = sftRates
    return { loss: policy[PolicySum.loss]!, tokens: totals.numTokens }
  }

  optimStep(rateFactor = 1): TrainFuture<Readonly<Record<string, number>>> {
    return this.#inTurn('optimStep', async () => {
      const { settings, maxGradNorm } = this.#learning
      const learningRate = rateFactor * learningRateOf(settings.learningRate, this.#rates, this.world.cohort())
      const gradNorm = await this.#backend.optimStep(settings, learningRate, maxGradNorm)
      return { learningRate, gradNorm, step: ++this.#steps }
    })
  }

  saveCheckpoint(step: number): TrainFuture<string> {
    return this.#inTurn('saveCheckpoint', async () => {
      const { checkpointDir } = this.#learning
      if (checkpointDir === null)
        throw new InputError('checkpointDir', 'none', 'the option checkpointDir of openTrainingBackend')
      return this.#backend.saveCheckpoint(join(checkpointDir, `step_${step}.safetensors`))
    })
  }

  loadCheckpoint(path: string): TrainFuture<void> {
    return this.#inTurn('loadCheckpoint', () => this.#backend.loadCheckpoint(path))
  }

  getWeights(version: number): TrainFuture<WeightsDelivery> {
    return this.#inTurn('getWeights', () => this.#backend.getWeights(version))
  }

  loadWeights(weights: Float32Array): TrainFuture<void> {
    return this.#inTurn('loadWeights', () => this.#backend.loadWeights(weights))
  }

  #inTurn<T>(call: BackendCall, action: () => T | Promise<T>): TrainFuture<T> {
    let isDone = false
    const promise = this.#last.then(action)
    const settle = (): void => {
      isDone = true
    }
    this.#last = promise.then(settle, settle)
    return Object.assign(promise, { call, index: this.#numCalls++, result: () => promise, done: () => isDone })
  }
}
