/**
 * What learns from tokens: evaluates batches of sequences under a transformer's weights, gathers a loss's gradient micro-batch
 * by micro-batch, and makes one optimizer step of it. However a batch is cut, its loss and gradient are those of the whole;
 * and whatever the number of threads that share the micro-batches, they are the same bits.
 *
 * Sequences are packed into micro-batches by first-fit decreasing; advantages, corrections and denominators are the
 * whole batch's. A log-probability that nobody recorded is NaN (null in files), and 0 only where a token was certain:
 * what is unknown is evaluated with the weights before the update and counted, or refused where a correction would
 * compare it with what was sampled from.
 */
import { Clock } from '../../base/clock.ts'
import { InputError } from '../../base/errors.ts'
import { type Columns, column, type Plan, saved } from '../../components/column.ts'
import { NUM_SLOTS, PolicySum } from '../../kernels/bind.ts'
import type { Kernels } from '../../kernels/kernels.ts'
import type { WeightBits } from '../../language/transformer/forward-plan.ts'
import type { LoraAdapter, LoraModel } from '../../language/transformer/lora.ts'
import type { TransformerModel } from '../../language/transformer/model.ts'
import { packedPlan } from '../../language/transformer/packed.ts'
import { type BaseWeights, bitsOf } from '../../language/transformer/quantized.ts'
import type { LossDescriptor, LossTotals } from '../losses/losses.ts'
import { decayingParts, type OptimizerSettings, optimizerPlan } from '../optimizers/optimizer.ts'
import { TrainedArray } from '../trained-array.ts'
import type { TokenBatch } from './token-batch.ts'
import {
  SUMS,
  type TokenLossColumns,
  type TokensSaid,
  TokenThread,
  type TokenUpdateColumns,
  type TokenWork,
  tokensToRows,
} from './token-thread.ts'

/**
 * Rows of a micro-batch, where no sequence is longer: so few that there are some for every thread. Twice or four times as many
 * are at most 6 % faster.
 */
export const MICRO_BATCH_ROWS = 128

/** Elements of all gradient slots together, where two slots do not need more: 128 MiB. */
const SLOT_ELEMENTS = 2 ** 25

/** Gradient slots of so many parameters: 2 to 16. The number of threads has no part in it, so that it has none in the bits. */
function numSlotsOf(numParameters: number): number {
  return Math.min(NUM_SLOTS, Math.max(2, Math.floor(SLOT_ELEMENTS / numParameters)))
}

/**
 * The columns of a learner of tokens, of the model or of its adapter, for micro-batches of at most `rows` rows, which so many
 * threads share.
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
) {
  const { numParameters } = lora ?? model
  const packed = () => packedPlan(model, rows, context, lora, weightBits)
  return {
    /** Of each thread. */
    packed: Object.fromEntries(Array.from({ length: threads }, (_, thread) => [thread, packed()])),
    /** The slots, one after another; in the first the gradient is gathered. */
    gradient: column('f32', numSlotsOf(numParameters), numParameters),
    optimizer: optimizerPlan(settings, numParameters),
    /** What is trained, as the reference policy has it; no elements where there is none. */
    reference: saved(column('f32', hasReference ? numParameters : 0)),
  } satisfies Plan
}

/** The columns of a learner of tokens. */
export type TokenLearnerColumns = Columns<ReturnType<typeof tokenLearnerPlan>>

/** What a batch's loss comes to. */
export interface TokenLossSums {
  /** In the order of `PolicySum`; of cross-entropy only the first two are there. */
  readonly policy: Float64Array
  /** In the order of `TokenSum`: the critic's. */
  readonly value: Float64Array
  /** What the forward pass said of each token of the batch, at its place; 0 for each sequence's first. */
  readonly logprob: Float32Array
  readonly entropy: Float32Array
}

/** A loss of one's own over a whole batch: reads what the model says of each token, and writes the loss's derivatives. */
export type BatchLoss = (
  evaluated: { readonly logprob: Float32Array; readonly entropy: Float32Array },
  derivatives: { readonly dLogprob: Float32Array; readonly dEntropy: Float32Array },
) => void

/** What threads do together: at each `yield` they meet. */
export type Together<T> = Generator<void, T>

/** Goes through it with one thread, which meets nobody. */
export function alone<T>(steps: Together<T>): T {
  for (;;) {
    const { done, value } = steps.next()
    if (done) return value
  }
}

/** Learns from tokens: the part of thread 0, which tells the others what to work on. */
export class TokenLearner {
  readonly columns: TokenLearnerColumns
  /** What is trained: the model's weights, or the adapter's. Norms and biases do not decay. */
  readonly trained: TrainedArray
  readonly #kernels: Kernels
  readonly #thread: TokenThread
  readonly #post: ((work: TokenWork) => void) | null

  /** `post` tells the other threads what to work on, if there are any; `clock` is charged with what this one does. */
  constructor(
    model: TransformerModel,
    weights: BaseWeights,
    columns: TokenLearnerColumns,
    kernels: Kernels,
    adapter: LoraAdapter | null = null,
    post: ((work: TokenWork) => void) | null = null,
    clock = new Clock(),
  ) {
    this.columns = columns
    const parts = decayingParts((adapter?.lora ?? model).parameters)
    this.trained = new TrainedArray(trainedOf(weights, adapter), columns, kernels, parts)
    this.#kernels = kernels
    this.#thread = new TokenThread(model, weights, { ...columns, packed: columns.packed[0]! }, kernels, adapter, clock)
    this.#post = post
  }

  /**
   * Writes the log-probabilities of the batch's tokens and their entropies, in nats, and the critic's values into `said`, each at
   * its token's place; under the reference's weights if asked. `taken` is the update's.
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
   * Makes the gradient of a prepared batch's loss, the critic's included where there is one. `update` has what the loss was
   * prepared into, and gets what the forward pass says. Returns the loss's sums. `step`, the optimizer's, keys an adapter's
   * dropout.
   */
  *differentiate(
    batch: TokenBatch,
    loss: LossDescriptor,
    totals: LossTotals,
    given: TokenLossColumns,
    update: TokenUpdateColumns,
    temperature: number,
    step = 0,
  ): Together<TokenLossSums> {
    const { taken, sums, logprob, entropy } = update
    const sent = { ...loss, advantages: null } // A function stays in this thread; it has done its part.
    yield* this.#share({ kind: 'differentiate', batch, temperature, taken, step, loss: sent, totals, given, update })
    this.#sumSlots(batch)
    const whole = new Float64Array(SUMS)
    const numSums = SUMS * (batch.parts.length - 1)
    for (let i = 0; i < numSums; i++) whole[i % SUMS] = whole[i % SUMS]! + sums[i]!
    return { policy: whole.subarray(0, PolicySum.length), value: whole.subarray(PolicySum.length), logprob, entropy }
  }

  /** Works together with the others, where there are others and something for them. */
  *#share(work: TokenWork): Together<void> {
    const isShared = this.#post !== null && work.batch.parts.length > 2
    work.taken[0] = 0
    if (isShared) {
      this.#post!(work)
      yield // They know.
    }
    this.#thread.run(work)
    if (isShared) yield // All is done.
  }

  /**
   * Makes the gradient of a loss of one's own, which is called once with all tokens of the batch: so there is a forward pass
   * before the one that is differentiated, which alone has an adapter's dropout. Where there is a critic, its gradient is 0.
   * `step` as in `differentiate`. In one thread.
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

  /** Makes the gradient that these derivatives of a loss, each at its token's place, come to; as in `differentiateBy`. */
  backward(
    batch: TokenBatch,
    { dLogprob, dEntropy }: Parameters<BatchLoss>[1],
    { taken }: Pick<TokenUpdateColumns, 'taken'>,
    temperature: number,
    step: number,
  ): void {
    const { parts, spans } = batch
    taken[0] = 0
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

  #sumSlots(batch: TokenBatch): void {
    const numSlots = this.#thread.slotsOf(batch)
    const { gradient } = this.trained
    if (numSlots === 0) gradient.fill(0)
    else this.#kernels.sumSlots(this.columns.gradient, numSlots, gradient.length, 0, gradient.length)
  }
}

/** What is trained: the adapter's weights, or the model's. @throws InputError for weights in 8 or 4 bits without an adapter. */
export function trainedOf(weights: BaseWeights, adapter: { readonly weights: Float32Array } | null): Float32Array {
  if (adapter !== null) return adapter.weights
  if (weights instanceof Float32Array) return weights
  throw new InputError('weights', `a model in ${bitsOf(weights)} bits`, 'an adapter to train, or whole weights')
}
