/**
 * A training backend over a service with Tinker's protocol. The service keeps an adapter's weights and computes
 * gradients and optimizer steps. Each delivery downloads the adapter, so this process has the last delivered one.
 *
 * The service returns log-probabilities without entropies, at temperature 1 over the whole vocabulary. Unsupported
 * settings are refused before the first request.
 */
import type { OptimizerSettings } from '../../algorithms/optimizers/optimizer.ts'
import type { TokenBatch } from '../../algorithms/tokens/token-batch.ts'
import type { TokenLossSums } from '../../algorithms/tokens/token-learner.ts'
import type { TokensSaid } from '../../algorithms/tokens/token-thread.ts'
import { type DefinitionRecord, defineFactory } from '../../base/definition.ts'
import { InputError, show } from '../../base/errors.ts'
import { AnswerError } from '../../base/http/json-client.ts'
import { choice, integer, type SettingValues, text } from '../../base/settings.ts'
import type { WeightsDelivery } from '../../engines/engine.ts'
import { TinkerClient, tinkerSettings } from '../../engines/tinker/tinker-client.ts'
import { PolicySum, TokenSum } from '../../kernels/bind.ts'
import type { LoraAdapter } from '../../language/transformer/lora.ts'
import {
  type BackendContext,
  type BackendDefinition,
  type BackwardOptions,
  evaluateLoss,
  type LossDerivatives,
  type PreparedBatchLoss,
} from './backend.ts'
import { type BackendWork, defineBackend } from './define-backend.ts'
import { readAdapterArchive } from './tinker-adapter.ts'
import {
  checkTinkerLoss,
  type Datum,
  datumsOf,
  derivedDatums,
  namedDatums,
  namedLoss,
  type TinkerLoss,
  type TinkerReduction,
} from './tinker-loss.ts'
import { normOf, type TinkerAnswer, TinkerModel } from './tinker-model.ts'
import { findReduction, samplesByLearner } from './tinker-probes.ts'

const settings = {
  ...tinkerSettings,
  baseModel: text('', "the service's name of the base model; default: its first model"),
  reduction: choice(
    'ask',
    ['ask', 'sum', 'mean'],
    'how the service combines the losses of tokens: their sum, as in the protocol; the mean of the sequences’ means; ask: find out if the service returns gradient norms, otherwise assume the sum',
  ),
  seed: integer(0, "seed of the adapter's initial weights, which the service creates", { min: 0, max: 2 ** 31 - 1 }),
}

/** Options of `tinkerBackend`. */
export type TinkerBackendOptions = Partial<SettingValues<typeof settings>>

/** Projections of a layer that the protocol trains together. */
const ATTENTION = ['q_proj', 'k_proj', 'v_proj', 'o_proj']
const PERCEPTRON = ['gate_proj', 'up_proj', 'down_proj']
/** A gradient norm limit that has no effect. */
const UNBOUNDED = 1e6

/**
 * A training service with Tinker's protocol: Tinker itself, or your own server, such as SkyRL's. It trains adapters;
 * the local model folder must be the service's base model.
 * @throws InputError for settings that are unknown or out of range.
 * @example createTrainer(world, rl(), { backend: tinkerBackend({ url: 'http://127.0.0.1:8000' }) })
 */
export const tinkerBackend = defineFactory('backend', { id: 'tinker', settings }, (given): BackendDefinition => {
  void new TinkerClient(given) // Refuses an invalid address.
  return defineBackend('tinker', (context) => new TinkerWork(given, context))
}) satisfies (options?: TinkerBackendOptions) => BackendDefinition & DefinitionRecord

/** State kept by the service, as a checkpoint's name refers to it. */
interface Kept {
  readonly path: string
  /** The reference's weights; null if they are the same. */
  readonly reference: string | null
  /** Optimizer steps since its start. */
  readonly steps: number
}

class TinkerWork implements BackendWork {
  readonly #client: TinkerClient
  readonly #context: BackendContext
  readonly #given: SettingValues<typeof settings>
  readonly #adapter: LoraAdapter
  readonly #subject: string
  #model: TinkerModel | null = null
  /** The reference's weights and a model with them, at the service; null until the policy's first step. */
  #reference: { readonly path: string; model: TinkerModel | null } | null = null
  #steps = 0
  /** Whether the gradient or step under way was asked of the service. */
  #isAsked = false
  #reduction: Promise<TinkerReduction> | null = null
  /** Whether the service samples from the weights in training; null if unknown yet. */
  #samplesByLearner: boolean | null = null

  constructor(given: SettingValues<typeof settings>, context: BackendContext) {
    const { adapter } = context
    this.#client = new TinkerClient(given)
    this.#subject = `backend tinker at ${this.#client.url}`
    if (adapter === null) {
      throw new InputError(this.#subject, 'a whole model', 'an adapter to train (languageModel.loraRank)')
    }
    if (adapter.lora.settings.magnitude === true) {
      const expected = 'an adapter without magnitudes (languageModel.loraMagnitude false)'
      throw new InputError(this.#subject, 'loraMagnitude true', expected)
    }
    if (adapter.lora.settings.dropout > 0) {
      const { dropout } = adapter.lora.settings
      const expected = 'an adapter without dropout (languageModel.loraDropout 0)'
      throw new InputError(this.#subject, `an adapter with dropout ${dropout}`, expected)
    }
    this.#context = context
    this.#given = given
    this.#adapter = adapter
  }

  /** Refuses unsupported settings before the service is asked for a gradient or a step. */
  refusesUnchanged(): boolean {
    return !this.#isAsked
  }

  async start(): Promise<void> {
    if (this.#steps > 0) {
      const { loadsWeightsAlone } = await this.#client.service()
      if (!loadsWeightsAlone) {
        const got = 'a start after optimizer steps, on a service that loads weights only together with the optimizer'
        throw new InputError(this.#subject, got, 'one phase (mode sft, or mode rl)')
      }
      const path = await this.#model!.save('start')
      await this.#replace(path, false)
    }
    this.#steps = 0
    await this.#forgetReference()
  }

  async forward(
    batch: TokenBatch,
    whose: 'policy' | 'reference',
    temperature: number,
    said: TokensSaid,
  ): Promise<void> {
    this.#checkBatch(batch, temperature)
    const model = whose === 'policy' ? await this.#policy() : await this.#referenceModel()
    const datums = datumsOf(batch, () => ({ weights: () => 1 }))
    const answers = await this.#pass(model, 'forward', { name: 'cross_entropy', config: {} }, datums)
    this.#takeLogprobs(batch, answers, said.logprob)
    for (let i = batch.parts[0]!; i < batch.parts.at(-1)!; i++) {
      const [begin, end] = [batch.spans.begin[i]!, batch.spans.end[i]!]
      said.entropy[begin] = 0
      said.entropy.fill(Number.NaN, begin + 1, end) // The service does not return it.
    }
  }

  async forwardBackward(
    batch: TokenBatch,
    work: PreparedBatchLoss,
    { temperature }: BackwardOptions,
  ): Promise<TokenLossSums> {
    this.#isAsked = false
    const { loss, update } = work
    checkTinkerLoss(this.#subject, loss)
    this.#checkBatch(batch, temperature)
    const { kernels } = this.#context
    const named = await this.#named(work)
    if (named === null) {
      await this.forward(batch, 'policy', temperature, update)
    } else {
      const reduction = await this.#sums()
      const model = await this.#policy()
      const answers = await this.#pass(model, 'forward_backward', named, namedDatums(named, batch, work, reduction))
      this.#takeLogprobs(batch, answers, update.logprob)
    }
    update.entropy.fill(0) // Unused: such a loss is refused.
    const policy = evaluateLoss(kernels, batch, work, update)
    policy[PolicySum.entropy] = Number.NaN
    update.entropy.fill(Number.NaN)
    if (named === null) await this.#derive(batch, update.dLogprob, update.logprob)
    return { policy, value: new Float64Array(TokenSum.length), logprob: update.logprob, entropy: update.entropy }
  }

  async backward(batch: TokenBatch, { dLogprob, dEntropy }: LossDerivatives, options: BackwardOptions): Promise<void> {
    this.#isAsked = false
    this.#checkBatch(batch, options.temperature)
    const byEntropy = dEntropy.findIndex((value) => value !== 0)
    if (byEntropy >= 0) {
      const got = `a derivative by the entropy, ${dEntropy[byEntropy]} at ${byEntropy}`
      throw new InputError(this.#subject, got, 'a loss of log-probabilities only: the service returns no entropies')
    }
    let logprob: Float32Array | null = null
    if ((await this.#sums()) === 'mean') {
      logprob = new Float32Array(dLogprob.length)
      const said = { logprob, entropy: new Float32Array(dLogprob.length), value: new Float32Array(0) }
      await this.forward(batch, 'policy', options.temperature, said)
    }
    await this.#derive(batch, dLogprob, logprob)
  }

  async optimStep(given: OptimizerSettings, learningRate: number, maxNorm: number): Promise<number> {
    this.#isAsked = false
    const { optimizer, beta1, beta2, epsilon, weightDecay } = given
    if (optimizer !== 'adam')
      throw new InputError(`${this.#subject}, optimizer`, optimizer, 'adam, the optimizer of the service')
    const isBounded = maxNorm < UNBOUNDED
    if (isBounded && !(await this.#client.service()).clipsGradients) {
      const expected = `${UNBOUNDED} or more: the service does not clip gradients (rl.maxGradNorm, sft.maxGradNorm)`
      throw new InputError(`${this.#subject}, maxGradNorm`, show(maxNorm), expected)
    }
    const model = await this.#policy()
    if (this.#context.hasReference && this.#reference === null) {
      this.#reference = { path: await model.save('reference'), model: null }
    }
    this.#isAsked = true
    const { metrics } = await model.run('optim_step', {
      adam_params: {
        ...{ learning_rate: learningRate, beta1, beta2, eps: epsilon, weight_decay: weightDecay },
        grad_clip_norm: isBounded ? maxNorm : 0,
      },
      type: 'optim_step',
    })
    this.#steps++
    return normOf(metrics) ?? Number.NaN
  }

  async saveCheckpoint(name: string): Promise<string> {
    const model = await this.#policy()
    const path = await model.save(name.split('/').at(-1)!)
    const reference = this.#context.hasReference ? (this.#reference?.path ?? null) : null
    return writeKept({ path, reference, steps: this.#steps })
  }

  async loadCheckpoint(name: string): Promise<void> {
    const kept = readKept(this.#subject, name)
    try {
      await this.#replace(kept.path, true)
    } catch (error) {
      if (!(error instanceof AnswerError)) throw error
      const expected = 'a checkpoint that the service has'
      throw new InputError(`${this.#subject}, checkpoint ${kept.path}`, error.message, expected, { cause: error })
    }
    await this.#forgetReference()
    this.#steps = kept.steps
    if (this.#context.hasReference) this.#reference = { path: kept.reference ?? kept.path, model: null }
  }

  async getWeights(version: number): Promise<WeightsDelivery> {
    const model = await this.#policy()
    const servicePath = await model.saveForSampler(`v${version}`)
    const { trained } = this.#context
    const subject = `${this.#subject}, ${servicePath}`
    trained.set(await readAdapterArchive(subject, await model.download(servicePath), this.#adapter.lora))
    return { version, weights: trained, servicePath }
  }

  loadWeights(): never {
    const expected = 'loadCheckpoint(): the service does not accept weights'
    throw new InputError(`${this.#subject}, loadWeights()`, 'weights', expected)
  }

  close(): void {
    void this.#model?.unload()
    void this.#reference?.model?.unload()
    this.#client.close()
  }

  /** The protocol's loss that equals a loss; null if it must be sent as derivatives. */
  async #named({ loss }: PreparedBatchLoss): Promise<TinkerLoss | null> {
    const named = namedLoss(loss)
    if (named === null || !(await this.#client.service()).losses.includes(named.name)) return null
    return named.name === 'cross_entropy' && (await this.#sums()) === 'mean' ? null : named
  }

  async #derive(batch: TokenBatch, dLogprob: Float32Array, logprob: Float32Array | null): Promise<void> {
    const reduction = await this.#sums()
    const { loss, datums } = derivedDatums(batch, dLogprob, logprob, reduction)
    await this.#pass(await this.#policy(), 'forward_backward', loss, datums)
  }

  #checkBatch({ candidates }: TokenBatch, temperature: number): void {
    const expected = 'temperature 1 over the whole vocabulary: the service returns no other log-probabilities'
    if (temperature !== 1) throw new InputError(`${this.#subject}, temperature`, show(temperature), expected)
    if (candidates !== null)
      throw new InputError(`${this.#subject}, batch`, 'tokens drawn from candidate sets', expected)
  }

  /** The trained model, created at its first use. */
  async #policy(): Promise<TinkerModel> {
    if (this.#model === null) {
      await this.#look()
      this.#model = await this.#create()
    }
    return this.#model
  }

  async #create(): Promise<TinkerModel> {
    const { rank, alpha, targets } = this.#adapter.lora.settings
    const { models } = await this.#client.service()
    const trains = (group: readonly string[]) => group.filter((name) => (targets as readonly string[]).includes(name))
    for (const group of [ATTENTION, PERCEPTRON]) {
      const found = trains(group)
      if (found.length === 0 || found.length === group.length) continue
      const got = `an adapter of ${found.join(', ')}`
      throw new InputError(`${this.#subject}, loraTargets`, got, `all of ${group.join(', ')}, or none`)
    }
    return TinkerModel.create(this.#client, {
      ...{ baseModel: this.#given.baseModel || (models[0] ?? ''), rank, alpha, seed: this.#given.seed },
      trainsAttention: trains(ATTENTION).length > 0,
      trainsPerceptron: trains(PERCEPTRON).length > 0,
    })
  }

  /** Replaces the trained model by a new one with saved state. */
  async #replace(path: string, hasOptimizer: boolean): Promise<void> {
    await this.#look()
    const model = await this.#create()
    try {
      await model.load(path, hasOptimizer)
    } catch (error) {
      await model.unload()
      throw error
    }
    await this.#model?.unload()
    this.#model = model
  }

  async #referenceModel(): Promise<TinkerModel> {
    const reference = this.#reference
    if (reference === null) return this.#policy()
    if (reference.model === null) {
      const model = await this.#create()
      await model.load(reference.path, false)
      reference.model = model
    }
    return reference.model
  }

  async #forgetReference(): Promise<void> {
    await this.#reference?.model?.unload()
    this.#reference = null
  }

  /** How the service combines the losses of tokens. */
  #sums(): Promise<TinkerReduction> {
    const { reduction } = this.#given
    if (reduction !== 'ask') return Promise.resolve(reduction)
    this.#reduction ??= this.#probe((model) => findReduction(this.#subject, model)).catch((error) => {
      this.#reduction = null
      throw error
    })
    return this.#reduction
  }

  /** Probes the service. @throws InputError if sampling during training would use the weights in training. */
  async #look(): Promise<void> {
    await this.#sums()
    if (!this.#context.sampledWhileLearning) return
    const { vocabularySize } = this.#context.model.shape
    this.#samplesByLearner ??= await this.#probe((model) => samplesByLearner(this.#client, model, vocabularySize))
    if (!this.#samplesByLearner) return
    const expected =
      'a service with separate weights for sampling; or no sampling during training: rl.maxStaleness 0, rl.overSampling 1'
    throw new InputError(this.#subject, 'a service that samples from the weights in training', expected)
  }

  async #probe<T>(ask: (model: TinkerModel) => Promise<T>): Promise<T> {
    const model = await this.#create()
    try {
      return await ask(model)
    } finally {
      await model.unload()
    }
  }

  /** A pass over sequences, in as many requests as the service needs. Returns an answer per sequence. */
  async #pass(
    model: TinkerModel,
    path: 'forward' | 'forward_backward',
    { name, config }: TinkerLoss,
    datums: readonly Datum[],
  ): Promise<TinkerAnswer[]> {
    const { chunk } = await this.#client.service()
    const key = path === 'forward' ? 'forward_input' : 'forward_backward_input'
    const chunks = chunksOf(this.#subject, datums, chunk)
    this.#isAsked ||= path === 'forward_backward'
    const passes = chunks.map((data) => {
      const input = { data, loss_fn: name, ...(Object.keys(config).length === 0 ? {} : { loss_fn_config: config }) }
      return model.run(path, { [key]: input })
    })
    const answers = await Promise.all(passes)
    return answers.flatMap(({ loss_fn_outputs: outputs }) => (Array.isArray(outputs) ? outputs : []))
  }

  /** Writes the service's log-probability of each token of the batch at its index. */
  #takeLogprobs({ parts, spans }: TokenBatch, answers: readonly TinkerAnswer[], logprob: Float32Array): void {
    const [from, to] = [parts[0]!, parts.at(-1)!]
    const wrong = (got: string, expected: string) =>
      new InputError(`${this.#subject}, log-probabilities`, got, expected)
    if (answers.length !== to - from) throw wrong(`those of ${answers.length} sequences`, `${to - from}`)
    for (let i = from; i < to; i++) {
      const [begin, end] = [spans.begin[i]!, spans.end[i]!]
      const data = (answers[i - from]!.logprobs as { data?: unknown } | undefined)?.data
      const isLogprob = (value: unknown) => typeof value === 'number' && value <= 1e-4
      if (!(Array.isArray(data) && data.length === end - begin - 1 && data.every(isLogprob))) {
        throw wrong(show(data), `${end - begin - 1} numbers ≤ 0 of sequence ${i}`)
      }
      logprob[begin] = 0
      logprob.set(data, begin + 1)
    }
  }
}

/** Splits sequences into requests up to the service's limits. */
function chunksOf(subject: string, datums: readonly Datum[], most: { datums: number; bytes: number }): Datum[][] {
  const chunks: Datum[][] = []
  let bytes = 0
  for (const datum of datums) {
    const text = JSON.stringify(datum)
    // JSON writes NaN and infinities as null.
    if (/[[,]null[,\]]/.test(text)) {
      throw new InputError(subject, 'a loss value that is not finite', 'finite log-probabilities and derivatives')
    }
    if (text.length > most.bytes) {
      const expected = `at most ${most.bytes}, the limit of the service`
      throw new InputError(subject, `a sequence of ${text.length} bytes`, expected)
    }
    const last = chunks.at(-1)
    if (last !== undefined && last.length < most.datums && bytes + text.length <= most.bytes) {
      last.push(datum)
      bytes += text.length
    } else {
      chunks.push([datum])
      bytes = text.length
    }
  }
  return chunks
}

/** A checkpoint's name: the service's path, with additional state. */
function writeKept({ path, reference, steps }: Kept): string {
  const beside = new URLSearchParams({ steps: String(steps), ...(reference === null ? {} : { reference }) })
  return `${path}?${beside}`
}

function readKept(subject: string, name: string): Kept {
  const [path, beside = ''] = name.split('?')
  const known = new URLSearchParams(beside)
  const steps = Number(known.get('steps') ?? 0)
  if (path!.startsWith('tinker://') && Number.isSafeInteger(steps)) {
    return { path: path!, reference: known.get('reference'), steps }
  }
  const expected = 'a name from saveCheckpoint(), like tinker://model/weights/name?steps=3'
  throw new InputError(`${subject}, checkpoint`, show(name), expected)
}
