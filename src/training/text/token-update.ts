/**
 * An update from trajectories before it is cut into micro-batches: what its loss needs to know of all of them. To its
 * loss a conversation is one trajectory whatever rows it has: its group counts its reward once, all its tokens have its
 * advantage, returns and critics see later rows behind earlier ones, and a mean over its tokens is over those of all
 * rows. Only a ratio of a whole sequence is each row's own.
 */
import {
  type LossBatch,
  type LossDescriptor,
  type LossTotals,
  type PreparedLoss,
  preparedLossPlan,
  prepareLoss,
} from '../../algorithms/losses.ts'
import { conversationsOf, type TokenBatch, tokensInOrder } from '../../algorithms/token-batch.ts'
import type { Together, TokenLearner } from '../../algorithms/token-learner.ts'
import type { TokenLossColumns } from '../../algorithms/token-thread.ts'
import { type Columns, elementBytes, isColumnSpec, type Plan, viewColumn } from '../../components/column.ts'
import { InputError } from '../../errors.ts'
import type { Kernels } from '../../kernels/bind.ts'
import { groupNumbers, type TrajectoryColumns } from '../../tables/trajectories.ts'

/** What a caller says in place of what would be recorded or worked out. */
export interface UpdateOverrides {
  /** Log-probabilities before the update, a number for each token of the trajectories. */
  readonly oldLogprob?: ArrayLike<number>
  /** Advantages, a number for each trajectory; one that is NaN is left out. The loss must ask for none of its own. */
  readonly advantage?: ArrayLike<number>
}

/** An update that is ready to be differentiated. Columns of tokens are in the batch's order. */
export interface PreparedUpdate {
  /** Its columns of trajectories have a row a conversation, in the order of `conversations`. */
  readonly prepared: PreparedLoss
  readonly totals: LossTotals
  readonly given: TokenLossColumns & { readonly behaviorLogprob: Float32Array }
  /** Tokens to learn from whose log-probability is not recorded: it was worked out under the weights before the update. */
  readonly numRecomputed: number
  /** Of each conversation the places of its sequences in the batch: one, or several where it has segments. */
  readonly conversations: readonly (readonly number[])[]
  /** The rewards, where they are known, and the groups, numbered from 0: a row a conversation. */
  readonly reward: Float64Array
  readonly known: Uint8Array
  readonly group: Int32Array
}

/**
 * Prepares a batch of trajectories for a loss. `columns` are what the batch was made of. Threads evaluate it together. A
 * log-probability that is not recorded, or under a distribution that nobody knows, is that of the weights as they are.
 *
 * The segments of a conversation are one trajectory to the loss, their tokens one after another: its group counts its reward
 * once, its advantage is that of all its tokens, returns and critics see a later segment behind an earlier one, and a mean over
 * its tokens is over all of them. Only a ratio of a whole sequence is each segment's own.
 * @throws InputError where one is missing that a correction compares with: no evaluation tells what others had sampled from.
 */
export function* prepareUpdate(
  learner: TokenLearner,
  kernels: Kernels,
  loss: LossDescriptor,
  columns: TrajectoryColumns,
  batch: TokenBatch,
  temperature: number,
  overrides: UpdateOverrides = {},
): Together<PreparedUpdate> {
  const { order, offsets } = batch
  const conversations = conversationsOf(batch, columns.segment)
  const rows = conversations.map(([place]) => order[place!]!) // What a conversation is worth, each of its rows says.
  const numbers = groupNumbers(columns)
  const group = Int32Array.from(rows, (i) => numbers[i]!)
  const numGroups = new Set(numbers).size
  const { advantage } = overrides
  const lossMask = batch.lossMask.slice()
  if (advantage !== undefined) {
    order.forEach((i, place) => {
      if (Number.isNaN(advantage[i])) lossMask.fill(0, offsets[place], offsets[place + 1])
    })
  }
  // What was recorded while sampling is what evaluating gives, to the bit, so it is evaluated only to be compared.
  const behaviorLogprob = tokensInOrder(batch, columns.offsets, recordedLogprob(columns))
  const missing = missingAt(behaviorLogprob, lossMask)
  const hasCritic = loss.settings.advantage === 'critic'
  const { correction } = loss.settings
  if (correction !== 'none' && missing.length > 0) {
    const got = `${missing.length} tokens to learn from whose log-probability is not recorded`
    throw new InputError(`${loss.id}.correction ${correction}`, got, "all of them recorded, or correction: 'none'")
  }
  const own = overrides.oldLogprob && tokensInOrder(batch, columns.offsets, overrides.oldLogprob)
  const numRecomputed = own === undefined ? missing.length : 0
  const isEvaluated = hasCritic || (correction !== 'none' && own === undefined)
  const old = isEvaluated || numRecomputed > 0 ? yield* learner.evaluate(batch, temperature, 'policy') : null
  if (!isEvaluated && numRecomputed > 0) for (const t of missing) behaviorLogprob[t] = old!.logprob[t]!
  const oldLogprob = own ?? (isEvaluated ? old!.logprob : behaviorLogprob)
  const oldValue = hasCritic ? old!.value : null
  const hasReference = loss.columns.includes('referenceLogprob')
  const referenceLogprob = hasReference ? (yield* learner.evaluate(batch, temperature, 'reference')).logprob : null
  const reward = Float64Array.from(rows, (i) => columns.reward[i]!)
  const known = Uint8Array.from(rows, (i) => columns.known[i]!)
  const joined = new JoinedTokens(offsets, conversations)
  const whole: LossBatch = {
    offsets: joined.offsets,
    lossMask: joined.join(lossMask),
    reward,
    known,
    group,
    oldLogprob: joined.join(oldLogprob),
    behaviorLogprob: joined.join(behaviorLogprob),
    ...(referenceLogprob === null ? {} : { referenceLogprob: joined.join(referenceLogprob) }),
    ...(oldValue === null ? {} : { value: joined.join(oldValue) }),
  }
  const prepared = inHeap(preparedLossPlan(rows.length, batch.token.length, numGroups))
  const totals = prepareLoss(loss, whole, prepared, kernels)
  const { counted, tokenAdvantage, weight, tokenReward, returns } = prepared
  for (const column of [counted, tokenAdvantage, weight, tokenReward, returns]) joined.part(column)
  if (advantage !== undefined) {
    order.forEach((i, place) => {
      for (let t = offsets[place]!; t < offsets[place + 1]!; t++) {
        tokenAdvantage[t] = counted[t] === 1 ? advantage[i]! : 0
      }
    })
  }
  const wholeTokens = conversations.length === order.length ? null : countedOf(conversations, offsets, counted)
  const given = { oldLogprob, behaviorLogprob, referenceLogprob, oldValue, wholeTokens }
  return { prepared, totals, given, numRecomputed, conversations, reward, known, group }
}

/** What is recorded of each token; NaN also where nobody knows from which tokens it was drawn. */
function recordedLogprob({ logprob, supportLength }: TrajectoryColumns): Float32Array {
  return logprob.map((value, t) => (supportLength[t] === -1 ? Number.NaN : value))
}

/** The tokens to learn from at which there is no number. */
function missingAt(logprob: Float32Array, lossMask: Uint8Array): number[] {
  const missing: number[] = []
  for (let t = 0; t < logprob.length; t++) if (lossMask[t] === 1 && Number.isNaN(logprob[t])) missing.push(t)
  return missing
}

/** The tokens of a batch in the order of its conversations. Where each has one sequence that is the batch's own order. */
class JoinedTokens {
  /** Conversation c's tokens are offsets[c] … offsets[c + 1] − 1. */
  readonly offsets: Int32Array
  /** Where each token stands in the batch; null where the orders are one. */
  readonly #from: Int32Array | null

  constructor(offsets: Int32Array, conversations: readonly (readonly number[])[]) {
    if (conversations.length === offsets.length - 1) {
      this.offsets = offsets
      this.#from = null
      return
    }
    this.offsets = new Int32Array(conversations.length + 1)
    this.#from = new Int32Array(offsets.at(-1)!)
    let to = 0
    for (const [c, places] of conversations.entries()) {
      for (const place of places) for (let t = offsets[place]!; t < offsets[place + 1]!; t++) this.#from[to++] = t
      this.offsets[c + 1] = to
    }
  }

  /** A column of the batch's tokens, conversation by conversation. */
  join<C extends Float32Array | Uint8Array>(column: C): C {
    const from = this.#from
    if (from === null) return column
    const joined = column.slice() as C
    for (let t = 0; t < from.length; t++) joined[t] = column[from[t]!]!
    return joined
  }

  /** Puts what `join` had put together back to its places in the batch. */
  part(column: Float32Array | Uint8Array): void {
    const from = this.#from
    if (from === null) return
    const joined = column.slice()
    for (let t = 0; t < from.length; t++) column[from[t]!] = joined[t]!
  }
}

/** The counted tokens of each sequence's conversation. */
function countedOf(
  conversations: readonly (readonly number[])[],
  offsets: Int32Array,
  counted: Uint8Array,
): Int32Array {
  const wholeTokens = new Int32Array(offsets.length - 1)
  for (const places of conversations) {
    let tokens = 0
    for (const place of places) for (let t = offsets[place]!; t < offsets[place + 1]!; t++) tokens += counted[t]!
    for (const place of places) wholeTokens[place] = tokens
  }
  return wholeTokens
}

/** A plan's columns, each over memory of its own: what no compiled kernel touches need not lie in the arena. */
export function inHeap<P extends Plan>(plan: P): Columns<P> {
  return Object.fromEntries(
    Object.entries(plan).map(([name, node]) => {
      if (!isColumnSpec(node)) return [name, inHeap(node)]
      const length = node.rows * node.width
      return [name, viewColumn(node.type, new ArrayBuffer(length * elementBytes[node.type]), 0, length)]
    }),
  ) as Columns<P>
}
