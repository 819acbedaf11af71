/**
 * The learner over tokens. It evaluates batches of sequences with a transformer's weights, accumulates a loss's gradient by micro-batch,
 * and makes one optimizer step. Loss and gradient are those of the whole batch for any division, and bit-identical for any number of
 * threads. Advantages, corrections and denominators are computed for the whole batch.
 *
 * An unrecorded log-probability is NaN (null in files); 0 only means a certain token. Unknown values are evaluated with the weights
 * before the update and counted, or rejected if a correction would compare them with the sampler's.
 */
import { Clock } from '../../base/clock.ts'
import { InputError } from '../../base/errors.ts'
import { type Columns, column, type Plan, saved } from '../../components/column.ts'
import { NUM_SLOTS, PolicySum } from '../../kernels/bind.ts'
import type { Kernels } from '../../kernels/kernels.ts'
import type { LoraAdapter, LoraModel } from '../../language/transformer/lora.ts'
import type { TransformerModel, WeightBits } from '../../language/transformer/model.ts'
import { packedPlan } from '../../language/transformer/packed.ts'
import type { BaseWeights } from '../../language/transformer/quantized.ts'
import { numStages } from '../../language/transformer/stages.ts'
import type { LossDescriptor, LossTotals } from '../losses/losses.ts'
import type { OptimizerSettings } from '../optimizers/optimizer.ts'
import { tensorsPlan } from '../optimizers/tensors.ts'
import type { GradientPool, SharedGradient } from '../shared-gradient.ts'
import { numShares, type SlotRange, shareSize, slotsOfShare } from '../slot-shares.ts'
import { TrainedArray } from '../trained-array.ts'
import type { PackedBatch, TokenBatch } from './token-batch.ts'
import { copyResults, emptyResults, type PartResults, sentColumns } from './token-shares.ts'
import {
  type DifferentiateWork,
  SUMS,
  type TokenLossColumns,
  type TokensSaid,
  TokenThread,
  type TokenUpdateColumns,
  type TokenWork,
  tokensToRows,
} from './token-thread.ts'

/** Rows of a micro-batch unless a sequence is longer: few, so that every thread has some. Two or four times as many gain at most 6 %. */
export const MICRO_BATCH_ROWS = 128

/** Rows of a micro-batch: a conversation as long as the context always fits. */
export function microBatchRows(context: number): number {
  return Math.max(MICRO_BATCH_ROWS, context - 1)
}

/** Maximum elements of all gradient slots together, if one slot does not need more: 128 MiB. An object, so that tests can lower it. */
export const slotRoom = { elements: 2 ** 25 }

/**
 * Elements of the gradient's column: 1 to 16 slots of the trained parameters, one after another, independent of the number of threads, so
 * that the bits are too. Threads take turns in a single slot (`gradient-turns.ts`). Tied embeddings, the first of the parameters, have
 * their gradient by the rows' tokens behind it, since the head of the next micro-batch comes before them.
 */
function gradientElements(model: TransformerModel, lora: LoraModel | null, sequences: number): number {
  const { numParameters } = lora ?? model
  const room = Math.min(NUM_SLOTS, Math.max(1, Math.floor(slotRoom.elements / numParameters)))
  const numSlots = room === 1 ? 1 : Math.max(2, Math.min(room, sequences)) // One of several would have others' bits.
  const { tiedEmbeddings, vocabularySize, width } = model.shape
  const isApart = room === 1 && lora === null && tiedEmbeddings
  return numSlots * numParameters + (isApart ? vocabularySize * width : 0)
}

/**
 * The columns of a token learner, for the model or its adapter, with micro-batches of at most `rows` rows, shared by `threads` threads. A batch
 * of at most `sequences` sequences has as many micro-batches, and uses no more slots.
 */
export function tokenLearnerPlan(
  model: TransformerModel,
  rows: number,
  context: number,
  settings: Pick<OptimizerSettings, 'optimizer'>,
  hasReference: boolean,
  lora: LoraModel | null = null,
  weightBits: WeightBits = 32,
  threads = 1,
  sequences = NUM_SLOTS,
) {
  const { numParameters, parameters } = lora ?? model
  const packed = () => packedPlan(model, rows, context, lora, weightBits)
  return {
    packed: Object.fromEntries(Array.from({ length: threads }, (_, thread) => [thread, packed()])),
    /** The slots, one after another. The first accumulates the gradient. */
    gradient: column('f32', gradientElements(model, lora, sequences)),
    /** The number of micro-batches that have passed each stage of the backward pass. */
    passed: column('i32', numStages(model)),
    optimizer: tensorsPlan(settings, parameters),
    /** The reference policy's trained weights; empty without a reference. */
    reference: saved(column('f32', hasReference ? numParameters : 0)),
  } satisfies Plan
}

export type TokenLearnerColumns = Columns<ReturnType<typeof tokenLearnerPlan>>

/** Sums of a batch's loss. */
export interface TokenLossSums {
  /** In the order of `PolicySum`; for cross-entropy only the first two. */
  readonly policy: Float64Array
  /** The critic's, in the order of `TokenSum`. */
  readonly value: Float64Array
  /** Log-probability of each token of the batch in the forward pass, at its position; 0 for each sequence's first. */
  readonly logprob: Float32Array
  readonly entropy: Float32Array
}

/** A custom loss over a whole batch: reads the model's evaluation of each token and writes the loss's derivatives. */
export type BatchLoss = (
  evaluated: { readonly logprob: Float32Array; readonly entropy: Float32Array },
  derivatives: { readonly dLogprob: Float32Array; readonly dEntropy: Float32Array },
) => void

/** Work of several threads, which synchronize at each `yield`. */
export type Together<T> = Generator<void, T>

/** Runs the work in one thread, without synchronization. */
export function alone<T>(steps: Together<T>): T {
  for (;;) {
    const { done, value } = steps.next()
    if (done) return value
  }
}

/** The other threads of a learner. */
export interface OtherThreads {
  /** Sets their work, after they have met. */
  post(work: TokenWork): void
  /** Throws if one has ended, since the caller would wait for it for ever. */
  check(): void
}

/** The learner over tokens in thread 0, which assigns work to the others. */
export class TokenLearner {
  readonly columns: TokenLearnerColumns
  /** The trained weights: the model's or the adapter's. Norms and biases do not decay. */
  readonly trained: TrainedArray
  readonly #kernels: Kernels
  readonly #thread: TokenThread
  readonly #others: OtherThreads | null
  /** Number of gradients that other processes were asked for, and of the batches that these are of. */
  #numShared = 0
  #numBatches = 0
  #given: TokenLossColumns | null = null

  /** `clock` measures this thread. */
  constructor(
    model: TransformerModel,
    weights: BaseWeights,
    columns: TokenLearnerColumns,
    kernels: Kernels,
    adapter: LoraAdapter | null = null,
    others: OtherThreads | null = null,
    clock = new Clock(),
  ) {
    this.columns = columns
    const { parameters } = adapter?.lora ?? model
    this.trained = new TrainedArray(trainedOf(weights, adapter), columns, kernels, parameters)
    this.#kernels = kernels
    const own = { ...columns, packed: columns.packed[0]! }
    this.#thread = new TokenThread(model, weights, own, kernels, adapter, clock, () => others?.check())
    this.#others = others
  }

  /**
   * Writes the log-probabilities and entropies of the batch's tokens, in nats, and the critic's values into `said`, each at its token's
   * position; optionally with the reference's weights. `taken` is the update's column.
   */
  *evaluate(
    batch: TokenBatch,
    temperature: number,
    whose: 'policy' | 'reference',
    said: TokensSaid,
    { taken }: Pick<TokenUpdateColumns, 'taken'>,
  ): Together<void> {
    yield* this.#share({ kind: 'evaluate', whose, batch, temperature, said, taken })
  }

  /**
   * Computes the gradient of a prepared batch's loss, including the critic's. `update` holds the prepared loss and receives the forward
   * pass. Returns the loss's sums. `step`, the optimizer's, keys an adapter's dropout.
   */
  *differentiate(...given: Parameters<typeof workOf>): Together<TokenLossSums> {
    const work = workOf(...given)
    yield* this.#share(work)
    this.#sumSlots(work.batch)
    return saidOf(work)
  }

  /**
   * The same gradient, computed with other processes, a share each. `run` runs what this process's threads do together. Minibatches with
   * the same object `given` are of one batch, which is sent once.
   */
  async differentiateWith(
    pool: GradientPool,
    run: (steps: Together<void>) => Promise<void>,
    ...given: Parameters<typeof workOf>
  ): Promise<TokenLossSums> {
    const work = workOf(...given)
    const taken = new Map<number, PartResults>()
    await pool.compute(this.#shared(work, pool.shareCount, run, taken))
    for (const [share, results] of taken) copyResults(work, this.#partsOf(work, share, pool.shareCount), results, true)
    this.#sumSlots(work.batch, pool.shareCount)
    return saidOf(work)
  }

  #partsOf({ batch }: DifferentiateWork, share: number, shareCount: number): number[] {
    return this.#thread.partsOf(batch, slotsOfShare(share, this.#thread.slotsOf(batch), shareCount))
  }

  /** `taken` receives the columns for the results of other processes. */
  #shared(
    work: DifferentiateWork,
    shareCount: number,
    run: (steps: Together<void>) => Promise<void>,
    taken: Map<number, PartResults>,
  ): SharedGradient {
    const numSlots = this.#thread.slotsOf(work.batch)
    const { weights, gradient } = this.trained
    const version = `${this.#numShared++}`
    if (work.given !== this.#given) this.#numBatches++
    this.#given = work.given
    const { rows, minibatch } = sentColumns(work)
    return {
      inputs: {
        rows: { version: `${this.#numBatches}`, columns: rows },
        minibatch: { version, columns: minibatch },
        weights: { version, columns: { weights } },
      },
      numbers: [],
      numShares: numShares(numSlots, shareCount),
      compute: async (share) => {
        taken.delete(share)
        const slots = slotsOfShare(share, numSlots, shareCount)
        await run(this.#share({ ...work, slots }))
        sumRange(this.#kernels, this.columns.gradient, gradient.length, slots)
      },
      results: (share) => {
        const { first } = slotsOfShare(share, numSlots, shareCount)
        const results = emptyResults(work, this.#partsOf(work, share, shareCount))
        taken.set(share, results)
        const from = first * gradient.length
        return { gradient: this.columns.gradient.subarray(from, from + gradient.length), ...results }
      },
    }
  }

  /** Runs the work with the other threads, if there are any and the batch has work for them. */
  *#share(work: TokenWork): Together<void> {
    const hasTeacher = work.kind === 'differentiate' && work.given.teacher !== undefined
    const isShared = this.#others !== null && work.batch.parts.length > 2 && !hasTeacher
    this.#begin(work)
    if (isShared) {
      this.#others!.post(work)
      yield // The other threads have the work.
    }
    this.#thread.run(work)
    if (isShared) yield // All threads are done.
  }

  /**
   * Computes the gradient of a custom loss in one thread. The loss is called once with all tokens of the batch, so a forward pass without
   * dropout precedes the differentiated one. The critic's gradient is 0. `step` as in `differentiate`.
   */
  differentiateBy(
    batch: TokenBatch,
    lossOf: BatchLoss,
    update: TokenUpdateColumns,
    temperature: number,
    step = 0,
  ): void {
    alone(this.evaluate(batch, temperature, 'policy', update, update))
    update.dLogprob.fill(0)
    update.dEntropy.fill(0)
    lossOf(update, update)
    this.backward(batch, update, update, temperature, step)
  }

  /** Computes the gradient from the given derivatives of a loss, each at its token's position; as in `differentiateBy`. */
  backward(
    batch: TokenBatch,
    { dLogprob, dEntropy }: Parameters<BatchLoss>[1],
    { taken }: Pick<TokenUpdateColumns, 'taken'>,
    temperature: number,
    step: number,
  ): void {
    const { parts, spans } = batch
    this.#begin({ taken })
    this.#thread.differentiate(
      { batch, temperature, taken },
      (part, _, rows) => {
        const [from, to] = [parts[part]!, parts[part + 1]!]
        tokensToRows(rows.dLogprob, dLogprob, spans, from, to)
        tokensToRows(rows.dEntropy, dEntropy, spans, from, to)
        rows.dValue.fill(0)
      },
      step,
    )
    this.#sumSlots(batch)
  }

  /** No micro-batch is taken, and none has passed a stage. */
  #begin({ taken, slots }: Pick<TokenWork, 'taken' | 'slots'>): void {
    taken[0] = slots?.first ?? 0
    this.columns.passed.fill(0)
  }

  /** Sums all slots; of a share, the first one has its sum. */
  #sumSlots(batch: PackedBatch, shareCount: number = NUM_SLOTS): void {
    const numSlots = this.#thread.slotsOf(batch)
    const { gradient: slots } = this.columns
    const { gradient } = this.trained
    // A second slot that is not whole has the embeddings'.
    const rest = Math.min(slots.length - gradient.length, gradient.length)
    if (numSlots === 0) gradient.fill(0)
    else if (rest > 0 && rest < gradient.length) this.#kernels.sumSlots(slots, 2, gradient.length, 0, rest)
    else {
      const stride = shareSize(numSlots, shareCount) * gradient.length
      this.#kernels.sumSlots(slots, numShares(numSlots, shareCount), stride, 0, gradient.length)
    }
  }
}

function workOf(
  batch: TokenBatch,
  loss: LossDescriptor,
  totals: LossTotals,
  given: TokenLossColumns,
  update: TokenUpdateColumns,
  temperature: number,
  step = 0,
): DifferentiateWork {
  const sent = { ...loss, advantages: null } // A function cannot be sent; it has already been applied.
  return { kind: 'differentiate', batch, temperature, taken: update.taken, step, loss: sent, totals, given, update }
}

function saidOf({ batch, update: { sums, logprob, entropy } }: DifferentiateWork): TokenLossSums {
  return { ...wholeSums(sums, batch.parts.length - 1), logprob, entropy }
}

/** Sums consecutive slots of `length` elements, in the first of them. */
export function sumRange(kernels: Kernels, gradient: Float32Array, length: number, { first, end }: SlotRange): void {
  kernels.sumSlots(gradient.subarray(first * length), end - first, length, 0, length)
}

/** The sums of a batch, from those of its micro-batches. */
export function wholeSums(sums: Float64Array, numParts: number): Pick<TokenLossSums, 'policy' | 'value'> {
  const whole = new Float64Array(SUMS)
  for (let i = 0; i < SUMS * numParts; i++) whole[i % SUMS] = whole[i % SUMS]! + sums[i]!
  return { policy: whole.subarray(0, PolicySum.length), value: whole.subarray(PolicySum.length) }
}

/** Returns the trained weights: the adapter's or the model's. @throws InputError for quantized weights without an adapter. */
export function trainedOf(weights: BaseWeights, adapter: { readonly weights: Float32Array } | null): Float32Array {
  if (adapter !== null) return adapter.weights
  if (weights instanceof Float32Array) return weights
  throw new InputError('weights', 'a quantized model', 'an adapter to train, or weights in f32')
}
