/**
 * What learns from tokens: evaluates batches of sequences under a transformer's weights, gathers a loss's gradient micro-batch
 * by micro-batch, and makes one optimizer step of it. However a batch is cut, its loss and gradient are those of the whole.
 */
import { type Columns, column, type Plan, saved } from '../components/column.ts'
import { InputError } from '../errors.ts'
import { type Kernels, PolicySum, TokenSum } from '../kernels/bind.ts'
import type { ParameterViews } from '../policies/policy.ts'
import type { LoraAdapter, LoraModel } from '../policies/transformer/lora.ts'
import type { TransformerModel } from '../policies/transformer/model.ts'
import {
  PackedTransformer,
  packedPlan,
  type TokenDerivatives,
  type TokensEvaluated,
} from '../policies/transformer/packed.ts'
import type { BaseWeights } from '../policies/transformer/quantized.ts'
import {
  differentiateCritic,
  differentiateLoss,
  type LossDescriptor,
  type LossTotals,
  type PreparedLoss,
} from './losses.ts'
import { type OptimizerSettings, optimizerPlan, optimizerStep, startOptimizer } from './optimizer.ts'
import type { TokenBatch } from './token-batch.ts'

/** The columns of a learner of tokens, of the model or of its adapter, for micro-batches of at most `rows` rows. */
export function tokenLearnerPlan(
  model: TransformerModel,
  rows: number,
  context: number,
  settings: OptimizerSettings,
  hasReference: boolean,
  lora: LoraModel | null = null,
  isQuantized = false,
) {
  const { numParameters } = lora ?? model
  return {
    packed: packedPlan(model, rows, context, lora, isQuantized),
    gradient: column('f32', numParameters),
    optimizer: optimizerPlan(settings, numParameters),
    /** What is trained, as the reference policy has it; no elements where there is none. */
    reference: saved(column('f32', hasReference ? numParameters : 0)),
  } satisfies Plan
}

/** The columns of a learner of tokens. */
export type TokenLearnerColumns = Columns<ReturnType<typeof tokenLearnerPlan>>

/** What a loss reads of each token beside what the batch says. */
export interface TokenLossColumns {
  readonly oldLogprob: Float32Array
  readonly referenceLogprob: Float32Array | null
  /** The critic's before the update; null where there is none. */
  readonly oldValue: Float32Array | null
}

/** What evaluating a batch gives, a number for each of its tokens, 0 for each sequence's first. */
export interface TokensInBatch {
  readonly logprob: Float32Array
  /** No elements where there is no critic. */
  readonly value: Float32Array
}

/** What a batch's loss comes to. */
export interface TokenLossSums {
  /** In the order of `PolicySum`; of cross-entropy only the first two are there. */
  readonly policy: Float64Array
  /** In the order of `TokenSum`: the critic's. */
  readonly value: Float64Array
  /** What the forward pass said of each token of the batch: views that stand until the next gradient. */
  readonly logprob: Float32Array
  readonly entropy: Float32Array
}

/** A loss of one's own over a whole batch: reads what the model says of each token, and writes the loss's derivatives. */
export type BatchLoss = (
  evaluated: { readonly logprob: Float32Array; readonly entropy: Float32Array },
  derivatives: { readonly dLogprob: Float32Array; readonly dEntropy: Float32Array },
) => void

/** Learns from tokens, in one thread. */
export class TokenLearner {
  readonly columns: TokenLearnerColumns
  /** What is trained: the model's weights, or the adapter's. */
  readonly #trained: Float32Array
  readonly #kernels: Kernels
  readonly #settings: OptimizerSettings
  readonly #policy: PackedTransformer
  readonly #reference: PackedTransformer | null
  readonly #gradient: ParameterViews
  readonly #hasCritic: boolean
  /** Of each token of the batch in work. */
  #own = tokenColumns(0)

  constructor(
    model: TransformerModel,
    weights: BaseWeights,
    columns: TokenLearnerColumns,
    kernels: Kernels,
    settings: OptimizerSettings,
    adapter: LoraAdapter | null = null,
  ) {
    this.columns = columns
    this.#trained = trainedOf(weights, adapter)
    this.#kernels = kernels
    this.#settings = settings
    this.#hasCritic = model.hasValueHead
    this.#policy = new PackedTransformer(model, weights, columns.packed, kernels, adapter)
    this.#gradient = this.#policy.view(columns.gradient)
    const { reference, packed } = columns
    if (reference.length === 0) this.#reference = null
    else if (adapter === null) this.#reference = new PackedTransformer(model, reference, packed, kernels)
    else this.#reference = new PackedTransformer(model, weights, packed, kernels, { ...adapter, weights: reference })
  }

  /** Begins with the weights as they stand: they are the reference, and the optimizer has taken no step. */
  start(): void {
    const { reference, optimizer } = this.columns
    if (reference.length > 0) reference.set(this.#trained)
    for (const moment of [optimizer.moment, optimizer.squareMoment]) moment.fill(0)
    startOptimizer(optimizer)
  }

  /** Log-probabilities of the batch's tokens, in nats, and the critic's values; under the reference's weights if asked. */
  evaluate(batch: TokenBatch, temperature: number, whose: 'policy' | 'reference'): TokensInBatch {
    const { length } = batch.token
    const logprob = new Float32Array(length)
    const value = new Float32Array(this.#hasCritic ? length : 0)
    const packed = whose === 'policy' ? this.#policy : this.#reference!
    for (let part = 0; part + 1 < batch.parts.length; part++) {
      const [from, to] = [batch.parts[part]!, batch.parts[part + 1]!]
      const evaluated = packed.evaluate(packed.pack(batch.token, batch.offsets, from, to, batch.supports), temperature)
      rowsToTokens(logprob, evaluated.logprob, batch.offsets, from, to)
      if (this.#hasCritic) rowsToTokens(value, evaluated.value, batch.offsets, from, to)
    }
    return { logprob, value }
  }

  /**
   * Makes the gradient of a prepared batch's loss, the critic's included where there is one. Returns the loss's sums. `step`,
   * the optimizer's, keys an adapter's dropout.
   */
  differentiate(
    batch: TokenBatch,
    descriptor: LossDescriptor,
    prepared: PreparedLoss,
    totals: LossTotals,
    given: TokenLossColumns,
    temperature: number,
    step = 0,
  ): TokenLossSums {
    const { token, offsets, parts } = batch
    const own = this.#room(token.length)
    const sums = { policy: new Float64Array(PolicySum.length), value: new Float64Array(TokenSum.length) }
    this.columns.gradient.fill(0)
    const outputs = { dLogprob: own.dLogprob, dEntropy: own.dEntropy, sums: sums.policy }
    const inputs = {
      ...given,
      logprob: own.logprob,
      entropy: own.entropy,
      advantage: prepared.tokenAdvantage,
      weight: descriptor.settings.correction === 'none' ? null : prepared.weight,
      counted: prepared.counted,
    }
    for (let part = 0; part + 1 < parts.length; part++) {
      const [from, to] = [parts[part]!, parts[part + 1]!]
      const lossOf = (evaluated: TokensEvaluated, derivatives: TokenDerivatives): void => {
        rowsToTokens(own.logprob, evaluated.logprob, offsets, from, to)
        rowsToTokens(own.entropy, evaluated.entropy, offsets, from, to)
        const some = { ...inputs, offsets: offsets.subarray(from, to + 1) }
        differentiateLoss(descriptor, outputs, some, totals, this.#kernels)
        tokensToRows(derivatives.dLogprob, own.dLogprob, offsets, from, to)
        tokensToRows(derivatives.dEntropy, own.dEntropy, offsets, from, to)
        if (!this.#hasCritic) return
        rowsToTokens(own.value, evaluated.value, offsets, from, to)
        differentiateCritic(
          descriptor,
          own.dValue,
          sums.value,
          own.value,
          given.oldValue,
          prepared,
          some.offsets,
          totals,
          this.#kernels,
        )
        tokensToRows(derivatives.dValue, own.dValue, offsets, from, to)
      }
      const rows = this.#policy.pack(token, offsets, from, to, batch.supports)
      this.#policy.differentiate(rows, lossOf, this.#gradient, temperature, step)
    }
    return { ...sums, ...evaluatedOf(own, token.length) }
  }

  /**
   * Makes the gradient of a loss of one's own, which is called once with all tokens of the batch: so there is a forward pass
   * before the one that is differentiated, which alone has an adapter's dropout. Where there is a critic, its gradient is 0.
   * `step` as in `differentiate`.
   */
  differentiateBy(batch: TokenBatch, lossOf: BatchLoss, temperature: number, step = 0): void {
    const { token, offsets, parts } = batch
    const own = this.#room(token.length)
    const evaluated = evaluatedOf(own, token.length)
    const derivatives = { dLogprob: new Float32Array(token.length), dEntropy: new Float32Array(token.length) }
    const pack = (part: number) => this.#policy.pack(token, offsets, parts[part]!, parts[part + 1]!, batch.supports)
    for (let part = 0; part + 1 < parts.length; part++) {
      const rows = this.#policy.evaluate(pack(part), temperature)
      rowsToTokens(evaluated.logprob, rows.logprob, offsets, parts[part]!, parts[part + 1]!)
      rowsToTokens(evaluated.entropy, rows.entropy, offsets, parts[part]!, parts[part + 1]!)
    }
    lossOf(evaluated, derivatives)
    this.columns.gradient.fill(0)
    for (let part = 0; part + 1 < parts.length; part++) {
      const [from, to] = [parts[part]!, parts[part + 1]!]
      const derive = (_: TokensEvaluated, rows: TokenDerivatives): void => {
        tokensToRows(rows.dLogprob, derivatives.dLogprob, offsets, from, to)
        tokensToRows(rows.dEntropy, derivatives.dEntropy, offsets, from, to)
        rows.dValue.fill(0)
      }
      this.#policy.differentiate(pack(part), derive, this.#gradient, temperature, step)
    }
  }

  #room(count: number): ReturnType<typeof tokenColumns> {
    if (this.#own.logprob.length < count) this.#own = tokenColumns(count)
    return this.#own
  }

  /**
   * One optimizer step against the gradient, which is first brought down to the norm `maxNorm`; returns its norm before.
   * @throws InputError for a gradient that is not finite, before the weights are touched.
   */
  descend(learningRate: number, maxNorm: number): number {
    const { gradient, optimizer } = this.columns
    const norm = this.#kernels.globalNorm(gradient, gradient.length)
    if (!Number.isFinite(norm)) {
      throw new InputError('gradient', `a norm of ${norm}`, 'a finite one: a smaller learningRate, or smaller rewards')
    }
    const scale = Math.min(1, maxNorm / (norm + 1e-6))
    optimizerStep(this.#settings, optimizer, this.#kernels, this.#trained, gradient, scale, learningRate)
    return norm
  }
}

/** What is trained: the adapter's weights, or the model's. @throws InputError for weights in 8 bits without an adapter. */
export function trainedOf(weights: BaseWeights, adapter: { readonly weights: Float32Array } | null): Float32Array {
  if (adapter !== null) return adapter.weights
  if (weights instanceof Float32Array) return weights
  throw new InputError('weights', 'a model in 8 bits', 'an adapter to train, or whole weights')
}

function evaluatedOf({ logprob, entropy }: ReturnType<typeof tokenColumns>, count: number) {
  return { logprob: logprob.subarray(0, count), entropy: entropy.subarray(0, count) }
}

function tokenColumns(count: number) {
  const each = () => new Float32Array(count)
  return { logprob: each(), entropy: each(), value: each(), dLogprob: each(), dEntropy: each(), dValue: each() }
}

/** Rows of packed sequences `from` to `to` go to the tokens that they predict. */
function rowsToTokens(tokens: Float32Array, rows: Float32Array, offsets: Int32Array, from: number, to: number): void {
  let row = 0
  for (let i = from; i < to; i++) {
    tokens[offsets[i]!] = 0
    for (let t = offsets[i]! + 1; t < offsets[i + 1]!; t++) tokens[t] = rows[row++]!
  }
}

function tokensToRows(rows: Float32Array, tokens: Float32Array, offsets: Int32Array, from: number, to: number): void {
  let row = 0
  for (let i = from; i < to; i++) for (let t = offsets[i]! + 1; t < offsets[i + 1]!; t++) rows[row++] = tokens[t]!
}
