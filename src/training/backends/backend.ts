/**
 * The contract of training backends, which own the weights and train them. A trainer sends batches of tokens with a
 * loss, and asks for optimizer steps. Every call returns a future: calls may be made without waiting, and run in order.
 * A gradient belongs to one batch, and an optimizer step takes the last gradient.
 *
 * A call that changes the training state and fails poisons the backend: later calls are refused until a checkpoint is
 * loaded, so that nothing is trained from an unknown state.
 *
 * A loss that the backend does not support reaches it as derivatives by the log-probabilities: a forward pass, the loss
 * in this process, and a backward pass of the derivatives (`differentiateBy`, `differentiate`). Users build backends
 * with `defineBackend`.
 */

import { differentiateLoss, type LossDescriptor, type LossTotals, readsScores } from '../../algorithms/losses/losses.ts'
import type { OptimizerSettings } from '../../algorithms/optimizers/optimizer.ts'
import type { GradientPool } from '../../algorithms/shared-gradient.ts'
import type { TokenBatch } from '../../algorithms/tokens/token-batch.ts'
import type { BatchLoss, OtherThreads, Together, TokenLossSums } from '../../algorithms/tokens/token-learner.ts'
import type { TokenLossColumns, TokensSaid, TokenUpdateColumns } from '../../algorithms/tokens/token-thread.ts'
import type { Clock } from '../../base/clock.ts'
import { InputError } from '../../base/errors.ts'
import type { Columns, Plan } from '../../components/column.ts'
import type { WeightsDelivery } from '../../engines/engine.ts'
import type { EngineShape } from '../../engines/engine-shape.ts'
import { PolicySum, TokenSum } from '../../kernels/bind.ts'
import type { KernelBuild, Kernels } from '../../kernels/kernels.ts'
import type { LoraAdapter } from '../../language/transformer/lora.ts'
import type { BaseWeights } from '../../language/transformer/quantized.ts'

/** A loss with its descriptor, prepared for the whole batch that its micro-batches or minibatches belong to. */
export interface PreparedBatchLoss {
  readonly loss: LossDescriptor
  readonly totals: LossTotals
  readonly given: TokenLossColumns
  /** `update.prepared` has the prepared loss; forward outputs are written beside it. */
  readonly update: TokenUpdateColumns
}

/** The derivatives of any loss, each at its token's index. */
export interface LossDerivatives {
  readonly dLogprob: Float32Array
  readonly dEntropy: Float32Array
}

/** How to differentiate a batch. */
export interface BackwardOptions {
  /** Logits are divided by it. */
  readonly temperature: number
  /** Previous optimizer steps, which key an adapter's dropout. */
  readonly step: number
}

/** The names of a backend's calls. */
export type BackendCall = Exclude<keyof TrainingBackend, 'id' | 'close'>

/** The result of a call. An unawaited failure is not an unhandled rejection: later calls report it. */
export interface TrainFuture<T> extends Promise<T> {
  /** The call, and the number of the backend's calls before it. */
  readonly call: BackendCall
  readonly index: number
  result(): Promise<T>
  done(): boolean
}

/** Owns and trains the weights. */
export interface TrainingBackend {
  readonly id: string
  /** Makes the current weights the reference, and resets the optimizer. */
  start(): TrainFuture<void>
  /**
   * Writes outputs for each token of the batch into `said`, at the token's index: log-probability and entropy in nats,
   * 0 for each sequence's first token; and the critic's value. `whose` selects the weights. Columns in memory shared by
   * threads always work.
   */
  forward(batch: TokenBatch, whose: 'policy' | 'reference', temperature: number, said: TokensSaid): TrainFuture<void>
  /** Computes a loss's gradient; absent without descriptors. @throws InputError before the last one's step. */
  forwardBackward?(batch: TokenBatch, loss: PreparedBatchLoss, options: BackwardOptions): TrainFuture<TokenLossSums>
  /** Computes the gradient from these loss derivatives. @throws InputError if a gradient waits for its step. */
  backward(batch: TokenBatch, derivatives: LossDerivatives, options: BackwardOptions): TrainFuture<void>
  /**
   * Takes one optimizer step with the gradient, clipped to the norm `maxNorm`. Returns the norm before clipping.
   * @throws InputError without a gradient, or if it is not finite: the weights are unchanged then, and the gradient is
   * dropped.
   */
  optimStep(settings: OptimizerSettings, learningRate: number, maxNorm: number): TrainFuture<number>
  /** Saves weights, reference and optimizer under a name, like a path. Returns the name for `loadCheckpoint`. */
  saveCheckpoint(name: string): TrainFuture<string>
  /** Restores a checkpoint, and unpoisons the backend. @throws InputError for a wrong one, without changes. */
  loadCheckpoint(name: string): TrainFuture<void>
  /** The weights at this point in the order of calls, for engines, with this version number. */
  getWeights(version: number): TrainFuture<WeightsDelivery>
  /** Replaces the weights; reference and optimizer stay. @throws InputError for another number of weights. */
  loadWeights(weights: Float32Array): TrainFuture<void>
  /** Continues from a world's restored columns. Only backends without other state have it. */
  takeUpColumns?(): TrainFuture<void>
  /** Frees outside resources, such as an adapter's place at a service. No calls follow. */
  close?(): void
}

/** Lets a trainer's threads help a backend that computes in this process. */
export interface BackendTeam extends OtherThreads {
  /** Runs the steps that all threads do together. */
  run<T>(steps: Together<T>): Promise<T>
}

/** Determines the size of a backend's columns. */
export interface BackendShape extends Omit<EngineShape, 'numSlots'> {
  /** Maximum rows of a micro-batch. */
  readonly rows: number
  readonly optimizer: OptimizerSettings['optimizer']
  /** Whether a loss compares with the reference. */
  readonly hasReference: boolean
}

/** The inputs of a backend's `create`: cohort, columns and team. */
export interface BackendContext extends Omit<BackendShape, 'adapter' | 'threads'> {
  /** The model's and adapter's weights in this process's memory, as its engines read them. */
  readonly weights: BaseWeights
  readonly adapter: LoraAdapter | null
  /** The trained one of the two. A backend whose weights have the same shape begins with these. */
  readonly trained: Float32Array
  readonly columns: Columns<Plan>
  readonly kernels: Kernels
  readonly kernelBuild: KernelBuild
  readonly clock: Clock
  /** Whether an engine samples from weights that the backend keeps at a service, also while it trains. */
  readonly sampledWhileLearning: boolean
  /** Null without other threads. */
  readonly team: BackendTeam | null
  /** The processes that compute gradients with this one; only for a backend whose gradients have shares. */
  readonly pool?: GradientPool | undefined
}

/** A backend's definition, for the option `backend` of `createTrainer`. */
export interface BackendDefinition {
  readonly id: string
  /**
   * Its columns in the world's memory; default none. Saved columns are part of the world's checkpoints. `sequences` is the maximum of a
   * batch, if it is known.
   */
  plan?(shape: BackendShape, sequences?: number): Plan
  create(context: BackendContext): TrainingBackend
}

/** Computes the gradient of a user's loss, called once with the batch's outputs, and writes both into `update`. */
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

/** Computes a prepared loss's gradient, by descriptor or derivatives. @throws InputError for a missing critic. */
export async function differentiate(
  backend: TrainingBackend,
  kernels: Kernels,
  batch: TokenBatch,
  work: PreparedBatchLoss,
  options: BackwardOptions,
): Promise<TokenLossSums> {
  if (backend.forwardBackward !== undefined) return backend.forwardBackward(batch, work, options)
  const { loss, update } = work
  if (loss.settings.advantage === 'critic' || readsScores(loss)) {
    throw new InputError(
      `loss ${loss.id}`,
      `a value head, by backend ${backend.id}`,
      'a loss of log-probabilities only',
    )
  }
  let policy: Float64Array = new Float64Array(PolicySum.length)
  const lossOf: BatchLoss = (_, derivatives) => {
    policy = evaluateLoss(kernels, batch, work, derivatives)
  }
  await differentiateBy(backend, batch, lossOf, update, options)
  const { logprob, entropy } = update
  return { policy, value: new Float64Array(TokenSum.length), logprob, entropy }
}

/** The sums of a prepared loss, in the order of `PolicySum`, from `update`, where it writes its derivatives. */
export function evaluateLoss(
  kernels: Kernels,
  batch: TokenBatch,
  { loss, totals, given, update }: PreparedBatchLoss,
  derivatives: LossDerivatives,
): Float64Array {
  const sums = new Float64Array(PolicySum.length)
  const { logprob, entropy, value, dValue, prepared } = update
  const { tokenAdvantage: advantage, counted } = prepared
  const weight = loss.settings.correction === 'none' ? null : prepared.weight
  const inputs = { ...given, spans: batch.spans, logprob, entropy, value, advantage, counted, weight }
  const [from, to] = [batch.parts[0]!, batch.parts.at(-1)!]
  differentiateLoss(loss, { ...derivatives, dValue, sums }, inputs, totals, from, to, kernels)
  return sums
}
