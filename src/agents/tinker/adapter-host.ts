/**
 * Trains and samples any number of adapters of one base model. All adapters of a host have the same rank and projections. The base
 * model is in memory once. A call copies its adapter into the columns of the learner or the sampler.
 */
import { rm } from 'node:fs/promises'
import { setImmediate as immediate } from 'node:timers/promises'
import { optimizerPlan } from '../../algorithms/optimizers/optimizer.ts'
import { TrainedArray } from '../../algorithms/trained-array.ts'
import { InputError, show } from '../../base/errors.ts'
import { readSafetensors, tensorOf, tensorValues, writeSafetensors } from '../../base/files/safetensors.ts'
import { RequestError } from '../../base/http/server.ts'
import { Random } from '../../base/random.ts'
import { type Columns, column, type Plan } from '../../components/column.ts'
import type { EngineShape } from '../../engines/engine-shape.ts'
import { LocalEngine } from '../../engines/local/local.ts'
import { localEnginePlan } from '../../engines/local/local-columns.ts'
import { spansOf } from '../../kernels/bind.ts'
import { languageModel } from '../../language/language-model.ts'
import type { LoraModel } from '../../language/transformer/lora.ts'
import { LORA_CONFIG, loadLoraWeights, saveLora } from '../../language/transformer/lora-folder.ts'
import { PackedTransformer, packedPlan } from '../../language/transformer/packed.ts'
import { checkTarget, SeveralTargets } from '../../language/transformer/several-targets.ts'
import { Batcher, type Generation, type GenerationGroup, type GenerationRequest } from '../serving/batcher.ts'
import { openModel } from '../serving/served-model.ts'
import type { DatumLoss } from './tinker-losses.ts'

/** The rank of an adapter, and the groups of adapted projections. */
export interface AdapterShape {
  readonly rank: number
  readonly attention: boolean
  readonly perceptron: boolean
}

const ATTENTION = ['q_proj', 'k_proj', 'v_proj', 'o_proj']
const PERCEPTRON = ['gate_proj', 'up_proj', 'down_proj']
/** Alpha of all adapters: products are scaled by 32 / rank. */
export const ADAPTER_ALPHA = 32
/** Minimum rows of a pass, into which short sequences are packed. */
const ROWS = 256
const OPTIMIZER_FILE = 'optimizer.safetensors'

/** An adapter and its training state. */
export interface AdapterState {
  readonly weights: Float32Array
  readonly gradient: Float32Array
  readonly moment: Float32Array
  readonly squareMoment: Float32Array
  readonly betaPowers: Float64Array
}

/** A sequence with `each` targets for each of its tokens, token after token; default 1. */
export interface TargetedSequence {
  readonly input: readonly number[]
  readonly targets: ArrayLike<number>
  readonly each?: number
}

/** The parameters of an AdamW step. */
export interface AdamParameters {
  readonly learningRate: number
  readonly beta1: number
  readonly beta2: number
  readonly epsilon: number
  readonly weightDecay: number
  /** Maximum norm of the gradient; Infinity: no clipping. */
  readonly maxNorm: number
}

function hostPlan(shape: EngineShape) {
  const lora = shape.adapter!
  const { numParameters } = lora
  return {
    engine: localEnginePlan(shape),
    adapter: column('f32', numParameters),
    gradient: column('f32', numParameters),
    optimizer: optimizerPlan({ optimizer: 'adam' }, numParameters),
    reference: column('f32', 0),
    packed: packedPlan(shape.model, rowsOf(shape.context), shape.context, lora, shape.weightBits),
  } satisfies Plan
}

function rowsOf(context: number): number {
  return Math.max(ROWS, context)
}

type HostColumns = Columns<ReturnType<typeof hostPlan>>

export class AdapterHost {
  readonly context: number
  readonly vocabularySize: number
  readonly notes: readonly string[]
  readonly #lora: LoraModel
  readonly #batcher: Batcher
  readonly #columns: HostColumns
  readonly #trained: TrainedArray
  readonly #packed: PackedTransformer
  readonly #gradient: ReturnType<PackedTransformer['view']>
  /** The learner's last call. Calls run one after another. */
  #learning: Promise<unknown> = Promise.resolve()
  /** Samples that wait until their weights are loaded. */
  #waiting: { readonly weights: Float32Array; start(): void }[] = []
  #sampled: Float32Array | null = null
  #isPlacing = false
  #isClosed = false
  /** An adapter of zeros: the base model. */
  readonly base: Float32Array

  private constructor(opened: Awaited<ReturnType<typeof openModel>>) {
    const { context, notes, vocabularySize } = opened
    const { model, weights, kernels, adapter } = context
    this.#columns = context.columns as unknown as HostColumns
    this.#lora = adapter!.lora
    this.context = context.context
    this.vocabularySize = vocabularySize
    this.notes = notes
    const columns = this.#columns
    const engine = new LocalEngine({ ...context, columns: columns.engine as unknown as Columns<Plan> })
    this.#batcher = new Batcher(engine, context.numSlots, Number.MAX_SAFE_INTEGER)
    this.#trained = new TrainedArray(columns.adapter, columns, kernels, this.#lora.parameters)
    const learned = { lora: this.#lora, weights: columns.adapter, random: new Random(0) }
    this.#packed = new PackedTransformer(model, weights, columns.packed, kernels, learned)
    this.#gradient = this.#packed.view(columns.gradient)
    this.base = new Float32Array(this.#lora.numParameters)
  }

  /** @throws InputError if model, rank and context do not fit. */
  static async open(
    folder: string,
    { rank, attention, perceptron }: AdapterShape,
    options: { readonly context?: number; readonly slots: number },
  ): Promise<AdapterHost> {
    const loraTargets = [...(attention ? ATTENTION : []), ...(perceptron ? PERCEPTRON : [])]
    const policy = languageModel({ folder, loraRank: rank, loraAlpha: ADAPTER_ALPHA, loraTargets })
    return new AdapterHost(await openModel({ policy, ...options }, hostPlan))
  }

  /** Ends all samples, and passes after their current part. Later calls fail. */
  close(): void {
    this.#isClosed = true
    this.#batcher.set('stopping')
    this.#batcher.abortAll()
  }

  #checkOpen(): void {
    if (this.#isClosed) throw new RequestError(503, 'the service is stopping')
  }

  /** A new adapter. */
  create(seed: number): AdapterState {
    const state = this.#blank()
    this.#lora.initialize(state.weights, new Random(seed), 0)
    return state
  }

  #blank(): AdapterState {
    const { adapter, gradient, optimizer } = this.#columns
    return {
      weights: new Float32Array(adapter.length),
      gradient: new Float32Array(gradient.length),
      moment: new Float32Array(optimizer.moment.length),
      squareMoment: new Float32Array(optimizer.squareMoment.length),
      betaPowers: new Float64Array(optimizer.betaPowers.length).fill(1),
    }
  }

  /** Saves an adapter to a folder that PEFT reads, and the optimizer's state if `hasOptimizer`. */
  async save(folder: string, state: AdapterState, hasOptimizer: boolean, baseModel: string): Promise<void> {
    if (!state.weights.every(Number.isFinite)) {
      throw new InputError('weights', 'numbers that are not finite', 'finite weights') // Before anything is written.
    }
    await rm(`${folder}/${LORA_CONFIG}`, { force: true }) // Without it the folder counts as incomplete.
    if (hasOptimizer) {
      const { moment, squareMoment, betaPowers } = state
      const tensors = Object.entries({ moment, squareMoment, betaPowers }).map(([key, values]) => tensorOf(key, values))
      await writeSafetensors(`${folder}/${OPTIMIZER_FILE}`, tensors)
    }
    await saveLora(folder, this.#lora, state.weights, baseModel)
  }

  /** Loads a saved adapter, with a new optimizer unless `hasOptimizer`. */
  async load(folder: string, hasOptimizer: boolean): Promise<AdapterState> {
    const state = this.#blank()
    state.weights.set(await loadLoraWeights(folder, this.#lora))
    if (!hasOptimizer) return state
    const path = `${folder}/${OPTIMIZER_FILE}`
    const { tensors } = await readSafetensors(path)
    for (const key of ['moment', 'squareMoment', 'betaPowers'] as const) {
      const tensor = tensors.get(key)
      const values = tensor === undefined ? null : tensorValues(tensor)
      if (values?.length !== state[key].length) {
        throw new InputError(path, `${show(values?.length ?? null)} numbers of ${key}`, String(state[key].length))
      }
      state[key].set(values as Float32Array)
    }
    return state
  }

  /**
   * Returns the log-probabilities of the targets of each sequence, in nats. With `lossOf`, which returns the derivatives of datum `index`, adds the
   * gradient of the loss to the adapter's gradient.
   * @throws InputError for tokens outside the vocabulary, and sequences longer than the context.
   */
  pass(
    { weights, gradient }: Pick<AdapterState, 'weights'> & Partial<AdapterState>,
    sequences: readonly TargetedSequence[],
    lossOf: ((index: number, logprob: Float32Array) => DatumLoss) | null,
  ): Promise<Float32Array[]> {
    return this.#learn(async () => {
      const columns = this.#columns
      columns.adapter.set(weights)
      columns.gradient.fill(0)
      const said: Float32Array[] = []
      for (let from = 0; from < sequences.length; ) {
        const to = this.#reach(sequences, from)
        const { rows, several } = this.#pack(sequences.slice(from, to))
        const take = (evaluated: { readonly logprob: Float32Array }) => {
          const { logprob } = several ?? evaluated
          let at = 0
          for (const { targets } of sequences.slice(from, to)) {
            said.push(logprob.slice(at, at + targets.length))
            at += targets.length
          }
        }
        if (lossOf === null) take(this.#packed.evaluate(rows))
        else {
          this.#packed.differentiate(
            rows,
            (evaluated, derivatives, count) => {
              take(evaluated)
              derivatives.dEntropy.fill(0, 0, count)
              derivatives.dValue.fill(0)
              const into = (several ?? derivatives).dLogprob
              let at = 0
              for (let index = from; index < to; index++) {
                const { dLogprob } = lossOf(index, said[index]!)
                into.set(dLogprob, at)
                at += dLogprob.length
              }
            },
            this.#gradient,
          )
        }
        from = to
        await immediate() // Lets the server answer and sample between passes.
        this.#checkOpen()
      }
      if (lossOf !== null) {
        if (!columns.gradient.every(Number.isFinite)) {
          const expected = 'finite numbers: try smaller advantages, or logprobs closer to those of the model'
          throw new InputError('gradient', 'numbers that are not finite', expected)
        }
        for (let i = 0; i < gradient!.length; i++) gradient![i]! += columns.gradient[i]!
      }
      return said
    })
  }

  /** The end of the sequences from `from` that fit in one pass. */
  #reach(sequences: readonly TargetedSequence[], from: number): number {
    const most = rowsOf(this.context)
    let [to, rows] = [from, 0]
    while (to < sequences.length && rows + sequences[to]!.input.length <= most) rows += sequences[to++]!.input.length
    if (to > from) return to
    const { length } = sequences[from]!.input
    throw new InputError(`datum ${from}`, `${length} tokens`, `at most ${this.context}`)
  }

  #pack(sequences: readonly TargetedSequence[]): { readonly rows: number; readonly several: SeveralTargets | null } {
    const { vocabularySize } = this
    const offsets = [0]
    const tokens: number[] = []
    for (const { input } of sequences) {
      tokens.push(...input, 0) // The last token is a target only, and targets are given.
      offsets.push(tokens.length)
    }
    const rows = this.#packed.pack(tokens, spansOf(Int32Array.from(offsets)), 0, sequences.length)
    if (sequences.some(({ each = 1 }) => each > 1)) {
      const several = new SeveralTargets(sequences, vocabularySize)
      this.#packed.retarget(several, rows)
      return { rows, several }
    }
    const { target } = this.#columns.packed
    let row = 0
    for (const { targets } of sequences) {
      for (let t = 0; t < targets.length; t++) target[row++] = checkTarget(targets[t], vocabularySize)
    }
    return { rows, several: null }
  }

  /** Makes an AdamW step and resets the gradient. Returns the gradient's norm before clipping. */
  step(state: AdapterState, adam: AdamParameters): Promise<number> {
    return this.#learn(async () => {
      const { adapter, gradient, optimizer } = this.#columns
      const held: [Float32Array | Float64Array, Float32Array | Float64Array][] = [
        [adapter, state.weights],
        [gradient, state.gradient],
        [optimizer.moment, state.moment],
        [optimizer.squareMoment, state.squareMoment],
        [optimizer.betaPowers, state.betaPowers],
      ]
      for (const [own, its] of held) own.set(its)
      const { learningRate, maxNorm, ...numbers } = adam
      const norm = this.#trained.descend({ optimizer: 'adam', momentum: 0, ...numbers }, learningRate, maxNorm)
      for (const [own, its] of held) its.set(own)
      state.gradient.fill(0)
      return norm
    })
  }

  #learn<T>(work: () => Promise<T>): Promise<T> {
    const done = this.#learning.then(() => {
      this.#checkOpen()
      return work()
    })
    this.#learning = done.catch(() => {}) // The caller gets the error.
    return done
  }

  /**
   * Samples with an adapter's weights. A turn ends at a token for which `isOver` is true. With `ignoresEnd` it continues after end
   * tokens of the tokenizer.
   */
  sample(
    weights: Float32Array,
    requests: readonly GenerationRequest[],
    ends: { isOver(id: number): boolean; readonly ignoresEnd: boolean },
    signal: AbortSignal,
  ): Promise<readonly Generation[]> {
    return new Promise((resolve, reject) => {
      const start = (): void => {
        const running = new Set<GenerationGroup>()
        signal.addEventListener('abort', () => {
          for (const group of running) group.abort()
        })
        Promise.all(requests.map((request) => this.#turn(request, ends, running, signal))).then(resolve, reject)
      }
      this.#waiting.push({ weights, start })
      void this.#place()
    })
  }

  /** Starts samples in order, together while they have the same weights. */
  async #place(): Promise<void> {
    if (this.#isPlacing) return
    this.#isPlacing = true
    while (this.#waiting.length > 0) {
      const { weights, start } = this.#waiting[0]!
      if (weights !== this.#sampled) {
        await this.#batcher.idle()
        this.#batcher.engine.setWeights({ version: this.#batcher.engine.version + 1, weights })
        this.#sampled = weights
      }
      this.#waiting.shift()
      start()
    }
    this.#isPlacing = false
  }

  async #turn(
    request: GenerationRequest,
    ends: { isOver(id: number): boolean; readonly ignoresEnd: boolean },
    running: Set<GenerationGroup>,
    signal: AbortSignal,
  ): Promise<Generation> {
    const group = this.#batcher.submit([request])
    running.add(group)
    if (signal.aborted) group.abort() // While it waited for its weights.
    const turn = group.turns[0]!
    for (let seen = 0; turn.end === null || seen < turn.tokens.length; ) {
      if (seen === turn.tokens.length) await group.more()
      for (; seen < turn.tokens.length; seen++) {
        if (!ends.isOver(turn.tokens[seen]!.id)) continue
        if (turn.end === null) group.abort()
        running.delete(group)
        return { ...turn, tokens: turn.tokens.slice(0, seen + 1), end: 'stop' }
      }
    }
    running.delete(group)
    const left = request.maxTokens - turn.tokens.length
    if (turn.end !== 'stop' || !ends.ignoresEnd || left === 0) return turn
    const ids = Int32Array.from([...request.ids, ...turn.tokens.map(({ id }) => id)])
    const rest = await this.#turn({ ...request, ids, maxTokens: left }, ends, running, signal)
    return { ...rest, tokens: [...turn.tokens, ...rest.tokens] }
  }
}
