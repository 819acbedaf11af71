/**
 * One thread of a token learner. It takes micro-batches of a shared batch, evaluates or differentiates them, and writes into shared
 * columns. The result does not depend on which thread takes which: micro-batch p adds to gradient slot p mod (number of slots), one
 * thread fills a whole slot in order, and every token has its own position.
 *
 * There are 1 to 16 slots, depending on the trained weights but not on the number of threads. In a single one, threads take turns.
 */
import { type Clock, Work } from '../../base/clock.ts'
import { type Columns, column, type Plan } from '../../components/column.ts'
import { PolicySum, type TokenSpans, TokenSum } from '../../kernels/bind.ts'
import type { Kernels } from '../../kernels/kernels.ts'
import type { LoraAdapter } from '../../language/transformer/lora.ts'
import type { TransformerModel } from '../../language/transformer/model.ts'
import {
  PackedTransformer,
  type packedPlan,
  type TokenDerivatives,
  type TokenLossOf,
  type TokensEvaluated,
} from '../../language/transformer/packed.ts'
import type { BaseWeights } from '../../language/transformer/quantized.ts'
import type { SoftTargets } from '../../language/transformer/soft-targets.ts'
import type { ParameterViews } from '../../policies/policy.ts'
import {
  comparesAnswers,
  differentiateCritic,
  differentiateLoss,
  type LossDescriptor,
  type LossTotals,
  preparedLossPlan,
} from '../losses/losses.ts'
import type { ComparedRows } from '../losses/preference-run.ts'
import type { SlotRange } from '../slot-shares.ts'
import { ThreadTurns } from './gradient-turns.ts'
import type { PackedBatch } from './token-batch.ts'

/** Inputs of a loss per token, besides the batch. */
export interface TokenLossColumns {
  readonly oldLogprob: Float32Array
  readonly referenceLogprob: Float32Array | null
  /** The critic's values before the update; null without a critic. */
  readonly oldValue: Float32Array | null
  /** Per sequence: the counted tokens of its conversation; null if every sequence is a whole conversation. */
  readonly wholeTokens: Int32Array | null
  /** Of a loss of preferences. */
  readonly compared?: ComparedRows
  /** The teacher whose distributions are the targets; it evaluates each micro-batch in this thread. */
  readonly teacher?: SoftTargets
}

/** Results of a forward pass per token. `value` is empty without a critic. */
export interface TokensSaid {
  readonly logprob: Float32Array
  readonly entropy: Float32Array
  readonly value: Float32Array
}

/** Maximum rows (sequences) and tokens of an update. */
export interface UpdateSize {
  readonly rows: number
  readonly tokens: number
}

/**
 * Plans the per-batch results that all threads write: one row per token, at the token's position in the batch's source columns, or one
 * row per sequence.
 */
export function tokenUpdatePlan({ rows, tokens }: UpdateSize, hasCritic: boolean) {
  const each = () => column('f32', tokens)
  const critics = () => column('f32', hasCritic ? tokens : 0)
  return {
    /** The forward pass, and the loss's derivatives by it. */
    logprob: each(),
    entropy: each(),
    value: critics(),
    dLogprob: each(),
    dEntropy: each(),
    dValue: critics(),
    /** With the weights before the update, and with the reference's. */
    oldLogprob: each(),
    oldValue: critics(),
    referenceLogprob: each(),
    /** 1 for tokens to learn from, before rewards exclude some. */
    learned: column('u8', tokens),
    prepared: preparedLossPlan(rows, tokens, rows),
    /** Per sequence: the counted tokens of its conversation. */
    wholeTokens: column('i32', rows),
    /** The `ComparedRows` of a loss of preferences. */
    compared: {
      unit: column('i32', rows),
      isGood: column('u8', rows),
      reference: column('f64', rows),
      margin: column('f64', rows),
    },
    /** Sums of each micro-batch: those of `PolicySum`, then those of `TokenSum`. */
    sums: column('f64', rows, SUMS),
    /** Number of slots or micro-batches that threads have taken. */
    taken: column('i32', 1),
  } satisfies Plan
}

/** The update columns: in the trainer's arena, or on the heap for an external batch. */
export type TokenUpdateColumns = Columns<ReturnType<typeof tokenUpdatePlan>>

/** The shared work of all threads. It is sent as a message; its columns lie in shared memory. */
export type TokenWork = {
  readonly batch: PackedBatch
  readonly temperature: number
  readonly taken: Int32Array
  /** The gradient slots to fill; default all. */
  readonly slots?: SlotRange
} & (
  | { readonly kind: 'evaluate'; readonly whose: 'policy' | 'reference'; readonly said: TokensSaid }
  | {
      readonly kind: 'differentiate'
      /** The optimizer's step, which keys an adapter's dropout. */
      readonly step: number
      readonly loss: LossDescriptor
      readonly totals: LossTotals
      readonly given: TokenLossColumns
      readonly update: TokenUpdateColumns
    }
)

export type DifferentiateWork = TokenWork & { readonly kind: 'differentiate' }

type GradientWork = Pick<TokenWork, 'batch' | 'temperature' | 'taken' | 'slots'> & {
  readonly given?: Pick<TokenLossColumns, 'teacher'>
}

/** Number of sums of a micro-batch. */
export const SUMS = PolicySum.length + TokenSum.length

/** Computes the derivatives of micro-batch `part`'s loss. */
export type PartLoss = (part: number, evaluated: TokensEvaluated, derivatives: TokenDerivatives) => void

export interface TokenThreadColumns {
  readonly packed: Columns<ReturnType<typeof packedPlan>>
  /** Shared: the gradient slots, one after another, and the reference's trained weights. */
  readonly gradient: Float32Array
  readonly reference: Float32Array
  /** Shared: the number of micro-batches that have passed each stage of the backward pass. */
  readonly passed: Int32Array
}

/** `check`, where it is given, is called while other threads are waited for; it throws if one has ended. */
export class TokenThread {
  readonly #kernels: Kernels
  readonly #clock: Clock
  readonly #policy: PackedTransformer
  readonly #reference: PackedTransformer | null
  /** Null with several slots. */
  readonly #turns: ThreadTurns | null
  readonly #slots: readonly { readonly column: Float32Array; readonly views: ParameterViews }[]
  /** The current micro-batch, its loss and sums; fields, so that nothing is allocated per micro-batch. */
  #part = 0
  #partLoss: PartLoss = () => {}
  readonly #derive: TokenLossOf = (evaluated, derivatives) => {
    this.#clock.charge(Work.forward)
    this.#partLoss(this.#part, evaluated, derivatives)
    this.#clock.charge(Work.loss)
  }
  readonly #policySums = new Float64Array(PolicySum.length)
  readonly #valueSums = new Float64Array(TokenSum.length)

  constructor(
    model: TransformerModel,
    weights: BaseWeights,
    { packed, gradient, reference, passed }: TokenThreadColumns,
    kernels: Kernels,
    adapter: LoraAdapter | null,
    clock: Clock,
    check: () => void = () => {},
  ) {
    this.#kernels = kernels
    this.#clock = clock
    this.#policy = new PackedTransformer(model, weights, packed, kernels, adapter)
    if (reference.length === 0) this.#reference = null
    else if (adapter === null) this.#reference = new PackedTransformer(model, reference, packed, kernels)
    else this.#reference = new PackedTransformer(model, weights, packed, kernels, { ...adapter, weights: reference })
    const { numParameters } = adapter?.lora ?? model
    this.#slots = Array.from({ length: Math.floor(gradient.length / numParameters) }, (_, slot) => {
      const column = gradient.subarray(slot * numParameters, (slot + 1) * numParameters)
      return { column, views: this.#policy.view(column) }
    })
    const embedding = gradient.length > numParameters ? gradient.subarray(numParameters) : null
    this.#turns = this.#slots.length === 1 ? new ThreadTurns(passed, embedding, clock, check) : null
  }

  /** Number of gradient slots that a batch uses. */
  slotsOf({ parts }: PackedBatch): number {
    return Math.min(this.#slots.length, parts.length - 1)
  }

  /** The micro-batches of slots. */
  partsOf({ parts }: PackedBatch, { first, end }: SlotRange): number[] {
    const list: number[] = []
    for (let part = 0; part + 1 < parts.length; part++) {
      const slot = part % this.#slots.length
      if (slot >= first && slot < end) list.push(part)
    }
    return list
  }

  /** Does the work that no other thread has taken. */
  run(work: TokenWork): void {
    if (work.kind === 'evaluate') this.#evaluate(work, work.whose === 'policy' ? this.#policy : this.#reference!)
    else for (const _ of this.steps(work));
  }

  /** Does the work that no other thread has taken, a micro-batch at each step. */
  steps(work: DifferentiateWork): Generator<void, void> {
    return this.#differentiate(work, partLossOf(work, this.#kernels, this.#policySums, this.#valueSums), work.step)
  }

  #evaluate(
    { batch, temperature, taken, said }: TokenWork & { readonly kind: 'evaluate' },
    packed: PackedTransformer,
  ): void {
    const { token, spans, parts, candidates } = batch
    for (let part = take(taken); part + 1 < parts.length; part = take(taken)) {
      const from = parts[part]!
      const to = parts[part + 1]!
      const evaluated = packed.evaluate(packed.pack(token, spans, from, to, candidates), temperature)
      rowsToTokens(said.logprob, evaluated.logprob, spans, from, to)
      rowsToTokens(said.entropy, evaluated.entropy, spans, from, to)
      if (said.value.length > 0) rowsToTokens(said.value, evaluated.value, spans, from, to)
      this.#clock.charge(Work.forward)
    }
  }

  /** The work of `steps` with any loss. */
  differentiate(work: GradientWork, lossOf: PartLoss, step: number): void {
    for (const _ of this.#differentiate(work, lossOf, step));
  }

  /** Takes gradient slots one by one and fills each with the gradients of its micro-batches; or takes those for the only slot. */
  *#differentiate(work: GradientWork, lossOf: PartLoss, step: number): Generator<void, void> {
    const { batch, taken } = work
    const { parts } = batch
    this.#partLoss = lossOf
    this.#policy.batchRows = rowsOf(batch)
    if (this.#turns !== null) {
      this.#differentiateInTurns(work, this.#turns, step)
      return
    }
    const { end } = work.slots ?? { end: this.slotsOf(batch) }
    for (let slot = take(taken); slot < end; slot = take(taken)) {
      const { column, views } = this.#slots[slot]!
      this.#clear(column, null)
      for (let part = slot; part + 1 < parts.length; part += this.#slots.length) {
        this.#differentiatePart(work, part, views, step)
        yield
      }
    }
  }

  #differentiateInTurns(work: GradientWork, turns: ThreadTurns, step: number): void {
    const { batch, taken } = work
    try {
      for (let part = take(taken); part + 1 < batch.parts.length; part = take(taken)) {
        if (part === 0) this.#clear(this.#slots[0]!.column, turns.embedding) // No thread adds before it.
        turns.part = part
        this.#differentiatePart(work, part, this.#slots[0]!.views, step, turns)
      }
    } catch (cause) {
      turns.fail()
      throw cause
    }
  }

  #clear(gradient: Float32Array, embedding: Float32Array | null): void {
    this.#kernels.clear(gradient, gradient.length)
    if (embedding !== null) this.#kernels.clear(embedding, embedding.length)
  }

  #differentiatePart(
    { batch, temperature, given }: GradientWork,
    part: number,
    views: ParameterViews,
    step: number,
    turns?: ThreadTurns,
  ): void {
    const { token, spans, parts, candidates } = batch
    this.#part = part
    const rows = this.#policy.pack(token, spans, parts[part]!, parts[part + 1]!, candidates)
    if (given?.teacher !== undefined) {
      given.teacher.aim(token, spans, parts[part]!, parts[part + 1]!)
      this.#policy.retarget(given.teacher, rows)
    }
    this.#clock.charge(Work.gather)
    this.#policy.differentiate(rows, this.#derive, views, temperature, step, turns)
    this.#clock.charge(Work.backward)
  }
}

/** A prepared loss, which also writes the forward pass, derivatives and sums into `update`. `policySums` and `valueSums` are workspace. */
export function partLossOf(
  { batch, loss, totals, given, update }: Pick<DifferentiateWork, 'batch' | 'loss' | 'totals' | 'given' | 'update'>,
  kernels: Kernels,
  policySums = new Float64Array(PolicySum.length),
  valueSums = new Float64Array(TokenSum.length),
): PartLoss {
  const { spans, parts } = batch
  const { prepared, dLogprob, dEntropy, dValue, value, sums } = update
  const inputs = {
    ...given,
    spans,
    value,
    logprob: update.logprob,
    entropy: update.entropy,
    advantage: prepared.tokenAdvantage,
    weight: loss.settings.correction === 'none' ? null : prepared.weight,
    counted: prepared.counted,
  }
  const outputs = { dLogprob, dEntropy, dValue, sums: policySums }
  const hasCritic = !comparesAnswers(loss)
  const { oldValue } = given
  return (part, evaluated, derivatives) => {
    const from = parts[part]!
    const to = parts[part + 1]!
    policySums.fill(0)
    valueSums.fill(0)
    rowsToTokens(inputs.logprob, evaluated.logprob, spans, from, to)
    rowsToTokens(inputs.entropy, evaluated.entropy, spans, from, to)
    if (value.length > 0) rowsToTokens(value, evaluated.value, spans, from, to)
    differentiateLoss(loss, outputs, inputs, totals, from, to, kernels)
    tokensToRows(derivatives.dLogprob, dLogprob, spans, from, to)
    tokensToRows(derivatives.dEntropy, dEntropy, spans, from, to)
    if (value.length > 0) {
      if (hasCritic) {
        differentiateCritic(loss, dValue, valueSums, value, oldValue, prepared, inputs, totals, from, to, kernels)
      }
      tokensToRows(derivatives.dValue, dValue, spans, from, to)
    }
    for (let i = 0; i < PolicySum.length; i++) sums[part * SUMS + i] = policySums[i]!
    const lossAt = part * SUMS + PolicySum.loss
    sums[lossAt] = sums[lossAt]! + (evaluated.balance?.[0] ?? 0)
    for (let i = 0; i < TokenSum.length; i++) sums[part * SUMS + PolicySum.length + i] = valueSums[i]!
  }
}

/** Rows of a batch: its sequences' tokens but the last of each. */
function rowsOf({ parts, spans: { begin, end } }: PackedBatch): number {
  let rows = 0
  for (let i = parts[0]!; i < parts.at(-1)!; i++) rows += end[i]! - begin[i]! - 1
  return rows
}

/** The next slot or micro-batch that no thread has taken. */
function take(taken: Int32Array): number {
  return Atomics.add(taken, 0, 1)
}

/** Copies rows of packed sequences `from` to `to` to the tokens that they predict. */
export function rowsToTokens(
  tokens: Float32Array,
  rows: Float32Array,
  { begin, end }: TokenSpans,
  from: number,
  to: number,
): void {
  let row = 0
  for (let i = from; i < to; i++) {
    tokens[begin[i]!] = 0
    for (let t = begin[i]! + 1; t < end[i]!; t++) tokens[t] = rows[row++]!
  }
}

/** Copies values at the tokens of sequences `from` to `to` to the packed rows that predict them. */
export function tokensToRows(
  rows: Float32Array,
  tokens: Float32Array,
  { begin, end }: TokenSpans,
  from: number,
  to: number,
): void {
  let row = 0
  for (let i = from; i < to; i++) for (let t = begin[i]! + 1; t < end[i]!; t++) rows[row++] = tokens[t]!
}
