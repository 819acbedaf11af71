/**
 * The contract of training backends: who learns. A trainer hands over batches of tokens with a loss, and asks for optimizer steps;
 * the weights are the backend's. Every call is a future: calls may be made without waiting for the one before, and are done in the
 * order in which they were made. A gradient is of one batch, and an optimizer step takes the gradient that was made last.
 *
 * A loss that the backend does not know reaches it as its derivatives by the log-probabilities: a forward pass, the loss here,
 * and a backward pass of those derivatives there (`differentiateBy`, `differentiate`).
 */
import { differentiateLoss, type LossDescriptor, type LossTotals } from '../algorithms/losses.ts'
import type { OptimizerSettings } from '../algorithms/optimizer.ts'
import type { TokenBatch } from '../algorithms/token-batch.ts'
import type { BatchLoss, TokenLossSums } from '../algorithms/token-learner.ts'
import type { TokenLossColumns, TokensSaid, TokenUpdateColumns } from '../algorithms/token-thread.ts'
import type { WeightsDelivery } from '../engines/engine.ts'
import { InputError } from '../errors.ts'
import { type Kernels, PolicySum, TokenSum } from '../kernels/bind.ts'

/** A loss by its descriptor, prepared for the whole batch that its micro-batches or minibatches are of. */
export interface PreparedBatchLoss {
  readonly loss: LossDescriptor
  readonly totals: LossTotals
  readonly given: TokenLossColumns
  /** `update.prepared` has what the loss was prepared into; what the forward pass says is written beside it. */
  readonly update: TokenUpdateColumns
}

/** Any loss by its derivatives, each at its token's place. */
export interface LossDerivatives {
  readonly dLogprob: Float32Array
  readonly dEntropy: Float32Array
}

/** How a batch is differentiated. */
export interface BackwardOptions {
  /** What logits are divided by. */
  readonly temperature: number
  /** The optimizer steps made before, which key an adapter's dropout. */
  readonly step: number
}

/** Who learns. */
export interface TrainingBackend {
  readonly id: string
  /** From now on the weights as they are by then are the reference, and the optimizer has made no step. */
  start(): Promise<void>
  /**
   * Writes what the weights, or the reference's, say of each token of the batch into `said`, at the token's place: log-probability and
   * entropy in nats, 0 for each sequence's first; and the critic's value. Columns that lie in memory that threads share are
   * always right.
   */
  forward(batch: TokenBatch, whose: 'policy' | 'reference', temperature: number, said: TokensSaid): Promise<void>
  /**
   * Makes the gradient of a loss over the batch. A backend that knows no descriptors of losses has none of this.
   * @throws InputError where a gradient waits for its step.
   */
  forwardBackward?(batch: TokenBatch, loss: PreparedBatchLoss, options: BackwardOptions): Promise<TokenLossSums>
  /**
   * Makes the gradient that these derivatives of a loss come to.
   * @throws InputError where a gradient waits for its step.
   */
  backward(batch: TokenBatch, derivatives: LossDerivatives, options: BackwardOptions): Promise<void>
  /**
   * One optimizer step against the gradient, which is first brought down to the norm `maxNorm`; gives its norm before.
   * @throws InputError where there is none, or it is not finite: then the weights are as before, and the gradient is gone.
   */
  optimStep(settings: OptimizerSettings, learningRate: number, maxNorm: number): Promise<number>
  /** Keeps weights, reference and optimizer under a name, like the path of a file; gives the name by which `load` finds them. */
  save(name: string): Promise<string>
  /** @throws InputError where nothing is kept under the name, or it is of another model. */
  load(name: string): Promise<void>
  /** The weights as they are by then, for engines, by this number. */
  weights(version: number): Promise<WeightsDelivery>
}

/**
 * Makes the gradient of a loss of the caller's, which is called once with what the model says of all tokens of the batch. Both are
 * written into `update`.
 */
export async function differentiateBy(
  backend: TrainingBackend,
  batch: TokenBatch,
  lossOf: BatchLoss,
  update: TokenUpdateColumns,
  options: BackwardOptions,
): Promise<void> {
  await backend.forward(batch, 'policy', options.temperature, update)
  update.dLogprob.fill(0)
  update.dEntropy.fill(0)
  lossOf(update, update)
  await backend.backward(batch, update, options)
}

/**
 * Makes the gradient of a prepared loss: by its descriptor, or by its derivatives where the backend takes no descriptors.
 * @throws InputError for a loss with a critic where it takes none.
 */
export async function differentiate(
  backend: TrainingBackend,
  kernels: Kernels,
  batch: TokenBatch,
  work: PreparedBatchLoss,
  options: BackwardOptions,
): Promise<TokenLossSums> {
  if (backend.forwardBackward !== undefined) return backend.forwardBackward(batch, work, options)
  const { loss, totals, given, update } = work
  if (loss.settings.advantage === 'critic') {
    throw new InputError(`loss ${loss.id}`, `a critic, by backend ${backend.id}`, 'one of log-probabilities alone')
  }
  const policy = new Float64Array(PolicySum.length)
  const { logprob, entropy, prepared } = update
  const { tokenAdvantage: advantage, counted } = prepared
  const weight = loss.settings.correction === 'none' ? null : prepared.weight
  const inputs = { ...given, spans: batch.spans, logprob, entropy, advantage, counted, weight }
  const lossOf: BatchLoss = (_, derivatives) => {
    const [from, to] = [batch.parts[0]!, batch.parts.at(-1)!]
    differentiateLoss(loss, { ...derivatives, sums: policy }, inputs, totals, from, to, kernels)
  }
  await differentiateBy(backend, batch, lossOf, update, options)
  return { policy, value: new Float64Array(TokenSum.length), logprob, entropy }
}
