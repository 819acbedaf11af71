/** An update from trajectories before it is cut into micro-batches: what its loss needs to know of all of them. */
import {
  type LossBatch,
  type LossDescriptor,
  type LossTotals,
  type PreparedLoss,
  preparedLossPlan,
  prepareLoss,
} from '../../algorithms/losses.ts'
import { type TokenBatch, tokensInOrder } from '../../algorithms/token-batch.ts'
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

/** An update that is ready to be differentiated. Columns are in the batch's order. */
export interface PreparedUpdate {
  readonly prepared: PreparedLoss
  readonly totals: LossTotals
  readonly given: TokenLossColumns & { readonly behaviourLogprob: Float32Array }
  /** Tokens to learn from whose log-probability is not recorded: it was worked out under the weights before the update. */
  readonly numRecomputed: number
  /** The rewards, where they are known, and the groups, numbered from 0: a row a trajectory. */
  readonly whole: LossBatch & Required<Pick<LossBatch, 'reward' | 'known' | 'group'>>
}

/**
 * Prepares a batch of trajectories for a loss. `columns` are what the batch was made of. Threads evaluate it together. A
 * log-probability that is not recorded, or under a distribution that nobody knows, is that of the weights as they are.
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
  const numbers = groupNumbers(columns)
  const group = Int32Array.from(order, (i) => numbers[i]!)
  const numGroups = new Set(numbers).size
  const { advantage } = overrides
  const lossMask = batch.lossMask.slice()
  if (advantage !== undefined) {
    order.forEach((i, place) => {
      if (Number.isNaN(advantage[i])) lossMask.fill(0, offsets[place], offsets[place + 1])
    })
  }
  // What was recorded while sampling is what evaluating gives, to the bit, so it is evaluated only to be compared.
  const behaviourLogprob = tokensInOrder(batch, columns.offsets, recordedLogprob(columns))
  const missing = missingAt(behaviourLogprob, lossMask)
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
  if (!isEvaluated && numRecomputed > 0) for (const t of missing) behaviourLogprob[t] = old!.logprob[t]!
  const oldLogprob = own ?? (isEvaluated ? old!.logprob : behaviourLogprob)
  const oldValue = hasCritic ? old!.value : null
  const hasReference = loss.columns.includes('referenceLogprob')
  const referenceLogprob = hasReference ? (yield* learner.evaluate(batch, temperature, 'reference')).logprob : null
  const whole = {
    offsets,
    lossMask,
    reward: Float64Array.from(order, (i) => columns.reward[i]!),
    known: Uint8Array.from(order, (i) => columns.known[i]!),
    group,
    oldLogprob,
    behaviourLogprob,
    ...(referenceLogprob === null ? {} : { referenceLogprob }),
    ...(oldValue === null ? {} : { value: oldValue }),
  }
  const prepared = inHeap(preparedLossPlan(order.length, batch.token.length, numGroups))
  const totals = prepareLoss(loss, whole, prepared, kernels)
  if (advantage !== undefined) {
    order.forEach((i, place) => {
      for (let t = offsets[place]!; t < offsets[place + 1]!; t++) {
        prepared.tokenAdvantage[t] = prepared.counted[t] === 1 ? advantage[i]! : 0
      }
    })
  }
  return { prepared, totals, given: { oldLogprob, behaviourLogprob, referenceLogprob, oldValue }, numRecomputed, whole }
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
