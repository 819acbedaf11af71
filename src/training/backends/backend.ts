/**
 * The contract of training backends: who learns. A trainer hands over batches of tokens with a loss, and asks for optimizer steps;
 * the weights are the backend's. Every call gives a future: calls may be made without waiting for the one before, and are done in
 * the order in which they were made. A gradient is of one batch, and an optimizer step takes the gradient that was made last.
 *
 * A call that changes what is learned and fails leaves the backend poisoned: calls that were made behind it, or are made later, are
 * refused until a checkpoint is loaded, so that nothing is learned from a state that nobody knows.
 *
 * A loss that the backend does not know reaches it as its derivatives by the log-probabilities: a forward pass, the loss here,
 * and a backward pass of those derivatives there (`differentiateBy`, `differentiate`). Backends of one's own stand on
 * `defineBackend`.
 */

import { differentiateLoss, type LossDescriptor, type LossTotals } from '../../algorithms/losses/losses.ts'
import type { OptimizerSettings } from '../../algorithms/optimizers/optimizer.ts'
import type { TokenBatch } from '../../algorithms/tokens/token-batch.ts'
import type { BatchLoss, Together, TokenLossSums } from '../../algorithms/tokens/token-learner.ts'
import type {
  TokenLossColumns,
  TokensSaid,
  TokenUpdateColumns,
  TokenWork,
} from '../../algorithms/tokens/token-thread.ts'
import type { Clock } from '../../base/clock.ts'
import { InputError, show } from '../../base/errors.ts'
import type { Columns, Plan } from '../../components/column.ts'
import type { WeightsDelivery } from '../../engines/engine.ts'
import type { EngineShape } from '../../engines/engine-shape.ts'
import { PolicySum, TokenSum } from '../../kernels/bind.ts'
import type { KernelBuild, Kernels } from '../../kernels/kernels.ts'
import type { LoraAdapter } from '../../language/transformer/lora.ts'
import type { BaseWeights } from '../../language/transformer/quantized.ts'

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

/** What a backend can be asked for. */
export type BackendCall = Exclude<keyof TrainingBackend, 'id' | 'close'>

/**
 * What a call of a backend comes to. One that nobody waits for and that fails is no unhandled rejection: the calls behind it are
 * refused, and say what failed.
 */
export interface TrainFuture<T> extends Promise<T> {
  /** The call that it is of, and how many were made of the backend before it. */
  readonly call: BackendCall
  readonly index: number
  /** The promise by its other name. */
  result(): Promise<T>
  /** Whether it has been done, or has failed. */
  done(): boolean
}

/** Who learns. */
export interface TrainingBackend {
  readonly id: string
  /** From now on the weights as they are by then are the reference, and the optimizer has made no step. */
  start(): TrainFuture<void>
  /**
   * Writes what the weights, or the reference's, say of each token of the batch into `said`, at the token's place: log-probability and
   * entropy in nats, 0 for each sequence's first; and the critic's value. Columns that lie in memory that threads share are
   * always right.
   */
  forward(batch: TokenBatch, whose: 'policy' | 'reference', temperature: number, said: TokensSaid): TrainFuture<void>
  /**
   * Makes the gradient of a loss over the batch. A backend that knows no descriptors of losses has none of this.
   * @throws InputError where a gradient waits for its step.
   */
  forwardBackward?(batch: TokenBatch, loss: PreparedBatchLoss, options: BackwardOptions): TrainFuture<TokenLossSums>
  /**
   * Makes the gradient that these derivatives of a loss come to.
   * @throws InputError where a gradient waits for its step.
   */
  backward(batch: TokenBatch, derivatives: LossDerivatives, options: BackwardOptions): TrainFuture<void>
  /**
   * One optimizer step against the gradient, which is first brought down to the norm `maxNorm`; gives its norm before.
   * @throws InputError where there is none, or it is not finite: then the weights are as before, and the gradient is gone.
   */
  optimStep(settings: OptimizerSettings, learningRate: number, maxNorm: number): TrainFuture<number>
  /** Keeps weights, reference and optimizer under a name, like the path of a file; gives the name by which `loadCheckpoint` finds them. */
  saveCheckpoint(name: string): TrainFuture<string>
  /**
   * Goes on from what is kept. A gradient that waits for its step is gone, and a backend that was poisoned is not any longer.
   * @throws InputError where nothing is kept under the name, or it is of another model; then nothing has changed.
   */
  loadCheckpoint(name: string): TrainFuture<void>
  /** The weights as they are by then, for engines, by this number. */
  getWeights(version: number): TrainFuture<WeightsDelivery>
  /**
   * Takes these weights in place of its own; reference and optimizer stay.
   * @throws InputError for another number of them.
   */
  loadWeights(weights: Float32Array): TrainFuture<void>
  /**
   * Goes on from the columns of its plan as they are, like `loadCheckpoint`: a checkpoint of the world has put them back. Only a
   * backend has it that keeps nothing anywhere else; the others' checkpoints are asked for beside those of the world.
   */
  takeUpColumns?(): TrainFuture<void>
  /** Gives back what it holds elsewhere, like a service's place for an adapter; nothing is asked of it afterwards. */
  close?(): void
}

/** How the threads of a trainer help a backend that computes in this process. */
export interface BackendTeam {
  /** Tells the other threads what to work on, once they are met. */
  post(work: TokenWork): void
  /** Goes through what all threads do together. */
  run<T>(steps: Together<T>): Promise<T>
}

/** What the size of a backend's columns depends on. */
export interface BackendShape extends Omit<EngineShape, 'numSlots'> {
  /** Rows of a micro-batch, at most. */
  readonly rows: number
  readonly optimizer: OptimizerSettings['optimizer']
  /** Whether a loss compares with the reference. */
  readonly hasReference: boolean
}

/** What a backend is made of. */
export interface BackendContext extends Omit<BackendShape, 'adapter' | 'threads'> {
  /** The weights in this process's memory, and of its adapter, as engines of this process read them. */
  readonly weights: BaseWeights
  readonly adapter: LoraAdapter | null
  /** What is trained, of the two: a backend whose weights are of the same shape begins with these numbers. */
  readonly trained: Float32Array
  /** The columns of its plan. */
  readonly columns: Columns<Plan>
  readonly kernels: Kernels
  readonly kernelBuild: KernelBuild
  readonly clock: Clock
  /** Whether an engine samples by the weights that this backend keeps at a service, also while it learns. */
  readonly sampledWhileLearning: boolean
  /** Null where this thread is alone. */
  readonly team: BackendTeam | null
}

/** A backend before it is made: what the option `backend` of `createTrainer` takes. */
export interface BackendDefinition {
  readonly id: string
  /** Its columns in the world's memory; none where this is not given. Those that are saved are in checkpoints of the world. */
  plan?(shape: BackendShape): Plan
  create(context: BackendContext): TrainingBackend
}

/** @throws InputError for what makes no backend, and where no cohort of conversations learns by it. */
export function checkBackend(backend: BackendDefinition | undefined, numConversations: number): void {
  if (backend === undefined) return
  if (typeof backend?.id !== 'string' || typeof backend.create !== 'function') {
    throw new InputError('createTrainer, backend', show(backend), 'one like defineBackend(…), with an id and create()')
  }
  if (numConversations > 0) return
  const expected = 'at least one of conversations: those of episodes learn in this process'
  throw new InputError('createTrainer, backend', `${backend.id}, and cohorts of episodes`, expected)
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
  const { loss, update } = work
  if (loss.settings.advantage === 'critic') {
    throw new InputError(`loss ${loss.id}`, `a critic, by backend ${backend.id}`, 'one of log-probabilities alone')
  }
  let policy: Float64Array = new Float64Array(PolicySum.length)
  const lossOf: BatchLoss = (_, derivatives) => {
    policy = evaluateLoss(kernels, batch, work, derivatives)
  }
  await differentiateBy(backend, batch, lossOf, update, options)
  const { logprob, entropy } = update
  return { policy, value: new Float64Array(TokenSum.length), logprob, entropy }
}

/**
 * What a prepared loss comes to, in the order of `PolicySum`, by the log-probabilities and entropies in its `update`; writes its
 * derivatives by them.
 */
export function evaluateLoss(
  kernels: Kernels,
  batch: TokenBatch,
  { loss, totals, given, update }: PreparedBatchLoss,
  derivatives: LossDerivatives,
): Float64Array {
  const sums = new Float64Array(PolicySum.length)
  const { logprob, entropy, prepared } = update
  const { tokenAdvantage: advantage, counted } = prepared
  const weight = loss.settings.correction === 'none' ? null : prepared.weight
  const inputs = { ...given, spans: batch.spans, logprob, entropy, advantage, counted, weight }
  const [from, to] = [batch.parts[0]!, batch.parts.at(-1)!]
  differentiateLoss(loss, { ...derivatives, sums }, inputs, totals, from, to, kernels)
  return sums
}
