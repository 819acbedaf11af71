/**
 * One thread of a learner of tokens: it takes micro-batches of a batch that all threads were told, evaluates or differentiates
 * them, and writes into columns that all share. What comes of it does not depend on which thread took which: micro-batch p
 * adds to gradient slot p mod (number of slots), a slot belongs to one thread from its first micro-batch to its last, and
 * every token has a place of its own.
 *
 * There are 2 to 16 slots, by what is trained and never by the number of threads; a micro-batch has 128 rows or the
 * longest conversation, so that there are some for each.
 */
import type { Columns } from '../components/column.ts'
import { type Kernels, PolicySum, TokenSum } from '../kernels/bind.ts'
import type { ParameterViews } from '../policies/policy.ts'
import type { LoraAdapter } from '../policies/transformer/lora.ts'
import type { TransformerModel } from '../policies/transformer/model.ts'
import {
  PackedTransformer,
  type packedPlan,
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
import type { TokenBatch } from './token-batch.ts'

/** What a loss reads of each token beside what the batch says. */
export interface TokenLossColumns {
  readonly oldLogprob: Float32Array
  readonly referenceLogprob: Float32Array | null
  /** The critic's before the update; null where there is none. */
  readonly oldValue: Float32Array | null
  /** A row a sequence: the counted tokens of its conversation; null where every sequence is a whole one. */
  readonly wholeTokens: Int32Array | null
}

/** What a forward pass says of each token of a batch, and the loss's derivatives by it; the critic's have no elements without one. */
export type TokenColumns = ReturnType<typeof tokenColumns>

/** Such columns, in memory that threads share. */
export function tokenColumns(count: number, hasCritic: boolean) {
  const each = (length: number) => new Float32Array(new SharedArrayBuffer(4 * length))
  const critics = hasCritic ? count : 0
  return {
    logprob: each(count),
    entropy: each(count),
    value: each(critics),
    dLogprob: each(count),
    dEntropy: each(count),
    dValue: each(critics),
  }
}

/** What all threads work on at once. It travels as a message: what threads write lies in shared memory. */
export type TokenWork = {
  readonly batch: TokenBatch
  readonly temperature: number
  readonly columns: TokenColumns
  /** How many slots, or micro-batches, threads have taken: in shared memory. */
  readonly taken: Int32Array
} & (
  | { readonly kind: 'evaluate'; readonly whose: 'policy' | 'reference' }
  | {
      readonly kind: 'differentiate'
      /** The optimizer's step, which keys an adapter's dropout. */
      readonly step: number
      readonly loss: LossDescriptor
      readonly prepared: PreparedLoss
      readonly totals: LossTotals
      readonly given: TokenLossColumns
      /** Sums of each micro-batch, in shared memory: those of `PolicySum`, then those of `TokenSum`. */
      readonly sums: Float64Array
    }
)

/** Sums of a micro-batch. */
export const SUMS = PolicySum.length + TokenSum.length

/** Makes the derivatives of micro-batch `part`'s loss. */
export type PartLoss = (part: number, evaluated: TokensEvaluated, derivatives: TokenDerivatives) => void

/** The columns of a learner that a thread works in. */
export interface TokenThreadColumns {
  /** Its own. */
  readonly packed: Columns<ReturnType<typeof packedPlan>>
  /** Shared: the gradient slots, one after another, and what is trained as the reference has it. */
  readonly gradient: Float32Array
  readonly reference: Float32Array
}

/** One thread's part of a learner of tokens. */
export class TokenThread {
  readonly #kernels: Kernels
  readonly #policy: PackedTransformer
  readonly #reference: PackedTransformer | null
  readonly #slots: readonly { readonly column: Float32Array; readonly views: ParameterViews }[]

  constructor(
    model: TransformerModel,
    weights: BaseWeights,
    { packed, gradient, reference }: TokenThreadColumns,
    kernels: Kernels,
    adapter: LoraAdapter | null,
  ) {
    this.#kernels = kernels
    this.#policy = new PackedTransformer(model, weights, packed, kernels, adapter)
    if (reference.length === 0) this.#reference = null
    else if (adapter === null) this.#reference = new PackedTransformer(model, reference, packed, kernels)
    else this.#reference = new PackedTransformer(model, weights, packed, kernels, { ...adapter, weights: reference })
    const { numParameters } = adapter?.lora ?? model
    this.#slots = Array.from({ length: gradient.length / numParameters }, (_, slot) => {
      const column = gradient.subarray(slot * numParameters, (slot + 1) * numParameters)
      return { column, views: this.#policy.view(column) }
    })
  }

  /** How many gradient slots a batch uses. */
  slotsOf({ parts }: TokenBatch): number {
    return Math.min(this.#slots.length, parts.length - 1)
  }

  /** Does of the work what no other thread has taken. */
  run(work: TokenWork): void {
    if (work.kind === 'evaluate') this.#evaluate(work, work.whose === 'policy' ? this.#policy : this.#reference!)
    else this.differentiate(work, this.#lossOf(work), work.step)
  }

  #evaluate({ batch, temperature, columns, taken }: TokenWork, packed: PackedTransformer): void {
    const { token, offsets, parts, supports } = batch
    for (let part = take(taken); part + 1 < parts.length; part = take(taken)) {
      const [from, to] = [parts[part]!, parts[part + 1]!]
      const evaluated = packed.evaluate(packed.pack(token, offsets, from, to, supports), temperature)
      rowsToTokens(columns.logprob, evaluated.logprob, offsets, from, to)
      rowsToTokens(columns.entropy, evaluated.entropy, offsets, from, to)
      if (columns.value.length > 0) rowsToTokens(columns.value, evaluated.value, offsets, from, to)
    }
  }

  /** Takes gradient slots, one after another, and fills each with the gradients of its micro-batches. */
  differentiate(
    { batch, temperature, taken }: Pick<TokenWork, 'batch' | 'temperature' | 'taken'>,
    lossOf: PartLoss,
    step: number,
  ): void {
    const { token, offsets, parts, supports } = batch
    for (let slot = take(taken); slot < this.slotsOf(batch); slot = take(taken)) {
      const { column, views } = this.#slots[slot]!
      column.fill(0)
      for (let part = slot; part + 1 < parts.length; part += this.#slots.length) {
        const rows = this.#policy.pack(token, offsets, parts[part]!, parts[part + 1]!, supports)
        const derive = (evaluated: TokensEvaluated, derivatives: TokenDerivatives) =>
          lossOf(part, evaluated, derivatives)
        this.#policy.differentiate(rows, derive, views, temperature, step)
      }
    }
  }

  #lossOf(work: TokenWork & { readonly kind: 'differentiate' }): PartLoss {
    const { loss, totals, prepared, given, columns, sums } = work
    const { offsets, parts } = work.batch
    const inputs = {
      ...given,
      logprob: columns.logprob,
      entropy: columns.entropy,
      advantage: prepared.tokenAdvantage,
      weight: loss.settings.correction === 'none' ? null : prepared.weight,
      counted: prepared.counted,
    }
    return (part, evaluated, derivatives) => {
      const [from, to] = [parts[part]!, parts[part + 1]!]
      const wholeTokens = given.wholeTokens?.subarray(from, to) ?? null
      const some = { ...inputs, offsets: offsets.subarray(from, to + 1), wholeTokens }
      const policySums = sums.subarray(part * SUMS, part * SUMS + PolicySum.length)
      rowsToTokens(columns.logprob, evaluated.logprob, offsets, from, to)
      rowsToTokens(columns.entropy, evaluated.entropy, offsets, from, to)
      differentiateLoss(loss, { ...columns, sums: policySums }, some, totals, this.#kernels)
      tokensToRows(derivatives.dLogprob, columns.dLogprob, offsets, from, to)
      tokensToRows(derivatives.dEntropy, columns.dEntropy, offsets, from, to)
      if (columns.value.length === 0) return
      rowsToTokens(columns.value, evaluated.value, offsets, from, to)
      differentiateCritic(
        loss,
        columns.dValue,
        sums.subarray(part * SUMS + PolicySum.length, (part + 1) * SUMS),
        columns.value,
        given.oldValue,
        prepared,
        some.offsets,
        wholeTokens,
        totals,
        this.#kernels,
      )
      tokensToRows(derivatives.dValue, columns.dValue, offsets, from, to)
    }
  }
}

/** The next slot or micro-batch that no thread has taken. */
function take(taken: Int32Array): number {
  return Atomics.add(taken, 0, 1)
}

/** Rows of packed sequences `from` to `to` go to the tokens that they predict. */
function rowsToTokens(tokens: Float32Array, rows: Float32Array, offsets: Int32Array, from: number, to: number): void {
  let row = 0
  for (let i = from; i < to; i++) {
    tokens[offsets[i]!] = 0
    for (let t = offsets[i]! + 1; t < offsets[i + 1]!; t++) tokens[t] = rows[row++]!
  }
}

/** What stands at the tokens of sequences `from` to `to` goes to the packed rows that predict them. */
export function tokensToRows(
  rows: Float32Array,
  tokens: Float32Array,
  offsets: Int32Array,
  from: number,
  to: number,
): void {
  let row = 0
  for (let i = from; i < to; i++) for (let t = offsets[i]! + 1; t < offsets[i + 1]!; t++) rows[row++] = tokens[t]!
}
