/**
 * An update from trajectories before it is cut into micro-batches: what its loss needs to know of all of them. To its
 * loss a conversation is one trajectory whatever rows it has: its group counts its reward once, all its tokens have its
 * advantage, returns and critics see later rows behind earlier ones, and a mean over its tokens is over those of all
 * rows. Only a ratio of a whole sequence is each row's own.
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
import { type Columns, elementBytes, isColumnSpec, type Plan, viewColumn } from '../../../components/column.ts'
import type { TokenSpans } from '../../../kernels/bind.ts'
import type { Kernels } from '../../../kernels/kernels.ts'
import { groupNumbers, type TrajectoryRows } from '../../../tables/trajectories/trajectories.ts'

/** What a caller says in place of what would be recorded or worked out. */
export interface UpdateOverrides {
  /** Log-probabilities before the update, a number for each token of the trajectories. */
  readonly oldLogprob?: ArrayLike<number>
  /** Advantages, a number for each trajectory; one that is NaN is left out. The loss must ask for none of its own. */
  readonly advantage?: ArrayLike<number>
}

/** Who evaluates a batch while it is prepared: a learner, or a backend. What is yielded is for the caller to wait for. */
export interface Evaluator<Wait> {
  evaluate(
    batch: TokenBatch,
    temperature: number,
    whose: 'policy' | 'reference',
    said: TokensSaid,
    update: TokenUpdateColumns,
  ): Generator<Wait, void>
}

/** An update that is ready to be differentiated: `update.prepared` has what its loss was prepared into. */
export interface PreparedUpdate {
  readonly totals: LossTotals
  readonly given: TokenLossColumns & { readonly behaviorLogprob: Float32Array }
  readonly update: TokenUpdateColumns
  /** Tokens to learn from whose log-probability is not recorded: it was worked out under the weights before the update. */
  readonly numRecomputed: number
  /** Of each conversation the places of its sequences in the batch: one, or several where it has segments. */
  readonly conversations: readonly (readonly number[])[]
  /** Where the tokens of each conversation lie, from its first sequence to its last. */
  readonly wholeSpans: TokenSpans
  /** The rewards, where they are known, and the groups, numbered from 0: a row a conversation. So are `update.prepared`'s. */
  readonly reward: Float64Array
  readonly known: Uint8Array
  readonly group: Int32Array
}

/**
 * Prepares a batch of trajectories for a loss, in the columns of `update`. `rows` are what the batch was made of: their tokens and
 * what was recorded of them are read where they lie. Threads evaluate the batch together. A log-probability that is not
 * recorded, or under a distribution that nobody knows, is that of the weights as they are.
 *
 * The segments of a conversation are one trajectory to the loss, and lie one after another: its group counts its reward once,
 * its advantage is that of all its tokens, returns and critics see a later segment behind an earlier one, and a mean over its
 * tokens is over all of them. Only a ratio of a whole sequence is each segment's own.
 * @throws InputError where one is missing that a correction compares with: no evaluation tells what others had sampled from.
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
  const first = conversations.map(([place]) => order[place!]!) // What a conversation is worth, each of its rows says.
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
  // What was recorded while sampling is what evaluating gives, to the bit, so it is evaluated only to be compared.
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

/** Learns nothing from sequences whose advantage is NaN. */
function leaveOut(learned: Uint8Array, { order, spans }: TokenBatch, advantage: ArrayLike<number>): void {
  order.forEach((i, place) => {
    if (Number.isNaN(advantage[i])) learned.fill(0, spans.begin[place], spans.end[place])
  })
}

/** True where a token's log-probability is recorded; not where nobody knows from which tokens it was drawn. */
function isRecorded({ logprob, candidateCount }: TrajectoryRows, t: number): boolean {
  return !Number.isNaN(logprob[t]) && candidateCount[t] !== -1
}

/** How many of the tokens to learn from have no log-probability. */
function countMissing(rows: TrajectoryRows, learned: Uint8Array, { begin, end }: TokenSpans): number {
  let count = 0
  for (let i = 0; i < begin.length; i++) {
    for (let t = begin[i]!; t < end[i]!; t++) if (learned[t] === 1 && !isRecorded(rows, t)) count++
  }
  return count
}

/** Puts what is recorded in the place of what was evaluated. */
function putRecorded(evaluated: Float32Array, rows: TrajectoryRows, { begin, end }: TokenSpans): void {
  for (let i = 0; i < begin.length; i++) {
    for (let t = begin[i]!; t < end[i]!; t++) if (isRecorded(rows, t)) evaluated[t] = rows.logprob[t]!
  }
}

/** Where the conversations' tokens lie, each conversation's from its first sequence to its last. */
function joined(conversations: readonly (readonly number[])[], { begin, end }: TokenSpans): TokenSpans {
  return {
    begin: Int32Array.from(conversations, (places) => begin[places[0]!]!),
    end: Int32Array.from(conversations, (places) => end[places.at(-1)!]!),
  }
}

/** Writes the counted tokens of each sequence's conversation. */
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

/** A plan's columns, each over shared memory of its own: those of a batch that nobody could plan for. */
export function inOwnMemory<P extends Plan>(plan: P): Columns<P> {
  return Object.fromEntries(
    Object.entries(plan).map(([name, node]) => {
      if (!isColumnSpec(node)) return [name, inOwnMemory(node)]
      const length = node.rows * node.width
      return [name, viewColumn(node.type, new SharedArrayBuffer(length * elementBytes[node.type]), 0, length)]
    }),
  ) as Columns<P>
}

/** The planned columns of an update, where a batch of that size fits into them; else such columns in memory of their own. */
export function columnsFor(planned: TokenUpdateColumns, { rows, tokens }: UpdateSize): TokenUpdateColumns {
  if (rows <= planned.wholeTokens.length && tokens <= planned.logprob.length) return planned
  return inOwnMemory(tokenUpdatePlan({ rows, tokens }, planned.value.length > 0))
}
