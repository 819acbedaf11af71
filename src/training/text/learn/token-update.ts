/**
 * Prepares an update from trajectories for a loss, before it is split into micro-batches. To the loss a conversation is
 * one trajectory, however many rows it has: its group counts its reward once, all its tokens have its advantage,
 * returns and critics see later rows after earlier ones, and a mean covers the tokens of all rows. Only ratios of whole
 * sequences are per row.
 */

import { type LossBatch, type LossDescriptor, type LossTotals, prepareLoss } from '../../../algorithms/losses/losses.ts'
import { conversationsOf, markLearned, type TokenBatch } from '../../../algorithms/tokens/token-batch.ts'
import {
  type TokenLossColumns,
  type TokensSaid,
  type TokenUpdateColumns,
  tokenUpdatePlan,
  type UpdateSize,
} from '../../../algorithms/tokens/token-thread.ts'
import { InputError } from '../../../base/errors.ts'
import { sharedBytes } from '../../../base/shared.ts'
import { viewColumn } from '../../../components/arena.ts'
import { type Columns, elementBytes, isColumnSpec, type Plan } from '../../../components/column.ts'
import type { TokenSpans } from '../../../kernels/bind.ts'
import type { Kernels } from '../../../kernels/kernels.ts'
import { groupNumbers, type TrajectoryRows } from '../../../tables/trajectories/trajectories.ts'

/** A caller's values that replace recorded or computed ones. */
export interface UpdateOverrides {
  /** Log-probabilities before the update, one per token of the trajectories. */
  readonly oldLogprob?: ArrayLike<number>
  /** Advantages, one per trajectory; NaN excludes it. The loss must not have its own. */
  readonly advantage?: ArrayLike<number>
}

/** Evaluates a batch while it is prepared: a learner, or a backend. The caller awaits what is yielded. */
export interface Evaluator<Wait> {
  evaluate(
    batch: TokenBatch,
    temperature: number,
    whose: 'policy' | 'reference',
    said: TokensSaid,
    update: TokenUpdateColumns,
  ): Generator<Wait, void>
}

/** An update ready to differentiate: `update.prepared` has the prepared loss. */
export interface PreparedUpdate {
  readonly totals: LossTotals
  readonly given: TokenLossColumns & { readonly behaviorLogprob: Float32Array }
  readonly update: TokenUpdateColumns
  /** Tokens to learn from without a recorded log-probability, for which the weights before the update were used. */
  readonly numRecomputed: number
  /** For each conversation its sequences' indices in the batch: one, or several with segments. */
  readonly conversations: readonly (readonly number[])[]
  /** The token span of each conversation, over all its sequences. */
  readonly wholeSpans: TokenSpans
  /** Rewards, where known, and groups, numbered from 0: a row per conversation, as in `update.prepared`. */
  readonly reward: Float64Array
  readonly known: Uint8Array
  readonly group: Int32Array
}

/**
 * Prepares a batch of trajectories for a loss, in the columns of `update`. `rows` are the batch's rows, read in place.
 * Threads evaluate the batch together. A log-probability that is not recorded, or of an unknown distribution, is
 * computed with the current weights.
 * @throws InputError if a correction needs one that is missing, since it cannot be recomputed.
 */
export function* prepareUpdate<Wait>(
  evaluator: Evaluator<Wait>,
  kernels: Kernels,
  loss: LossDescriptor,
  rows: TrajectoryRows,
  batch: TokenBatch,
  update: TokenUpdateColumns,
  temperature: number,
  overrides: UpdateOverrides = {},
): Generator<Wait, PreparedUpdate> {
  const { order, spans } = batch
  const { prepared, learned, entropy } = update
  const conversations = conversationsOf(batch, rows.segment)
  const first = conversations.map(([place]) => order[place!]!) // Each row has its conversation's reward.
  const numbers = groupNumbers(rows)
  const group = Int32Array.from(first, (i) => numbers[i]!)
  markLearned(learned, batch)
  const { advantage } = overrides
  if (advantage !== undefined) leaveOut(learned, batch, advantage)
  const hasCritic = loss.settings.advantage === 'critic'
  const { correction } = loss.settings
  const numMissing = countMissing(rows, learned, spans)
  if (correction !== 'none' && numMissing > 0) {
    const got = `${numMissing} tokens to learn from whose log-probability is not recorded`
    throw new InputError(`${loss.id}.correction ${correction}`, got, "all of them recorded, or correction: 'none'")
  }
  const own = overrides.oldLogprob && Float32Array.from(overrides.oldLogprob)
  const numRecomputed = own === undefined ? numMissing : 0
  const isEvaluated = hasCritic || (correction !== 'none' && own === undefined)
  const { oldLogprob: evaluated, oldValue: value } = update
  if (isEvaluated || numRecomputed > 0) {
    yield* evaluator.evaluate(batch, temperature, 'policy', { logprob: evaluated, entropy, value }, update)
  }
  // Recorded and evaluated values have equal bits, so evaluation is only needed to compare.
  let behaviorLogprob = rows.logprob
  if (!isEvaluated && numRecomputed > 0) {
    putRecorded(evaluated, rows, spans)
    behaviorLogprob = evaluated
  }
  const oldLogprob = own ?? (isEvaluated ? evaluated : behaviorLogprob)
  const oldValue = hasCritic ? value : null
  let referenceLogprob: Float32Array | null = null
  if (loss.columns.includes('referenceLogprob')) {
    referenceLogprob = update.referenceLogprob
    const said = { logprob: referenceLogprob, entropy, value: update.value }
    yield* evaluator.evaluate(batch, temperature, 'reference', said, update)
  }
  const reward = Float64Array.from(first, (i) => rows.reward[i]!)
  const known = Uint8Array.from(first, (i) => rows.known[i]!)
  const wholeSpans = joined(conversations, spans)
  const whole: LossBatch = {
    spans: wholeSpans,
    lossMask: learned,
    reward,
    known,
    group,
    oldLogprob,
    behaviorLogprob,
    ...(referenceLogprob === null ? {} : { referenceLogprob }),
    ...(oldValue === null ? {} : { value: oldValue }),
  }
  const totals = prepareLoss(loss, whole, prepared, kernels)
  const { counted, tokenAdvantage } = prepared
  if (advantage !== undefined) {
    order.forEach((i, place) => {
      for (let t = spans.begin[place]!; t < spans.end[place]!; t++) {
        tokenAdvantage[t] = counted[t] === 1 ? advantage[i]! : 0
      }
    })
  }
  const areWhole = conversations.length === order.length
  if (!areWhole) countWhole(update.wholeTokens, conversations, spans, counted)
  const given = {
    oldLogprob,
    behaviorLogprob,
    referenceLogprob,
    oldValue,
    wholeTokens: areWhole ? null : update.wholeTokens,
  }
  return { totals, given, update, numRecomputed, conversations, wholeSpans, reward, known, group }
}

/** Excludes sequences whose advantage is NaN. */
function leaveOut(learned: Uint8Array, { order, spans }: TokenBatch, advantage: ArrayLike<number>): void {
  order.forEach((i, place) => {
    if (Number.isNaN(advantage[i])) learned.fill(0, spans.begin[place], spans.end[place])
  })
}

/** Whether a token's log-probability is recorded, with a known candidate set. */
function isRecorded({ logprob, candidateCount }: TrajectoryRows, t: number): boolean {
  return !Number.isNaN(logprob[t]) && candidateCount[t] !== -1
}

function countMissing(rows: TrajectoryRows, learned: Uint8Array, { begin, end }: TokenSpans): number {
  let count = 0
  for (let i = 0; i < begin.length; i++) {
    for (let t = begin[i]!; t < end[i]!; t++) if (learned[t] === 1 && !isRecorded(rows, t)) count++
  }
  return count
}

/** Replaces evaluated values by recorded ones. */
function putRecorded(evaluated: Float32Array, rows: TrajectoryRows, { begin, end }: TokenSpans): void {
  for (let i = 0; i < begin.length; i++) {
    for (let t = begin[i]!; t < end[i]!; t++) if (isRecorded(rows, t)) evaluated[t] = rows.logprob[t]!
  }
}

function joined(conversations: readonly (readonly number[])[], { begin, end }: TokenSpans): TokenSpans {
  return {
    begin: Int32Array.from(conversations, (places) => begin[places[0]!]!),
    end: Int32Array.from(conversations, (places) => end[places.at(-1)!]!),
  }
}

/** Writes the number of counted tokens of each sequence's conversation. */
function countWhole(
  wholeTokens: Int32Array,
  conversations: readonly (readonly number[])[],
  { begin, end }: TokenSpans,
  counted: Uint8Array,
): void {
  for (const places of conversations) {
    let tokens = 0
    for (const place of places) for (let t = begin[place]!; t < end[place]!; t++) tokens += counted[t]!
    for (const place of places) wholeTokens[place] = tokens
  }
}

/** A plan's columns in shared memory of their own, for batches larger than planned. */
export function inOwnMemory<P extends Plan>(plan: P): Columns<P> {
  return Object.fromEntries(
    Object.entries(plan).map(([name, node]) => {
      if (!isColumnSpec(node)) return [name, inOwnMemory(node)]
      const length = node.rows * node.width
      return [name, viewColumn(node.type, sharedBytes(length * elementBytes[node.type]), 0, length)]
    }),
  ) as Columns<P>
}

/** The planned columns of an update if the batch fits; otherwise columns in memory of their own. */
export function columnsFor(planned: TokenUpdateColumns, { rows, tokens }: UpdateSize): TokenUpdateColumns {
  if (rows <= planned.wholeTokens.length && tokens <= planned.logprob.length) return planned
  return inOwnMemory(tokenUpdatePlan({ rows, tokens }, planned.value.length > 0))
}
