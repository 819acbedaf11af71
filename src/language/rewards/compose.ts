import { checkGiven, InputError, show } from '../../base/errors.ts'
import {
  type BatchSize,
  batchSizeOf,
  type ExcessKind,
  type FailureKind,
  failed,
  isInTime,
  type Judgment,
  judgeMany,
  judgesInTime,
  judgesTogether,
  type Reward,
  type RewardInput,
  type RewardValue,
} from './reward.ts'

/** A part of a composed reward; the default weight is 1. */
export type RewardPart = Reward | { readonly reward: Reward; readonly weight?: number }

/**
 * The weighted sum of rewards. The parts' unweighted values are components under their names, and their own components
 * are `name/component`. If a part has no value, the sum has none, unless its weight is 0: such a part is only recorded.
 * Parts that `judgesTogether` keep doing so: the sum then judges a group if one of them does, or else batches of the
 * largest part's size.
 * @throws InputError without parts or for a weight that is not finite.
 */
export function composeRewards(parts: Readonly<Record<string, RewardPart>>): Reward {
  checkGiven('options of composeRewards', parts, [])
  const list = Object.entries(parts).map(([name, part]) => {
    const { reward, weight = 1 } = typeof part === 'function' ? { reward: part } : part
    if (!Number.isFinite(weight)) throw new InputError(`weight of reward ${name}`, show(weight), 'a finite number')
    if (typeof reward !== 'function') throw new InputError(`reward ${name}`, show(reward), 'a reward')
    return { name, reward, weight }
  })
  if (list.length === 0) throw new InputError('composeRewards', 'no reward', 'at least one')
  /** The judgment of the sum from its parts' judgments. */
  const combined = (judgments: readonly Judgment[]): RewardValue => {
    const components: Record<string, number | null> = {}
    const errors: string[] = []
    const reasons: string[] = []
    let excess: ExcessKind | undefined
    let failure: FailureKind | undefined
    let sum = 0
    for (const [i, judgment] of judgments.entries()) {
      const { name, weight } = list[i]!
      components[name] = judgment.value
      for (const [inner, value] of Object.entries(judgment.components)) components[`${name}/${inner}`] = value
      if (judgment.reason !== undefined) reasons.push(`${name}: ${judgment.reason}`)
      excess ??= judgment.excess
      if (judgment.value !== null) sum += weight * judgment.value
      else if (weight !== 0) {
        failure ??= judgment.failure
        errors.push(`${name}: ${judgment.error}`)
      }
    }
    if (failure !== undefined) return failed(failure, errors.join('; '), components)
    return { value: sum, components, reason: reasons.length > 0 ? reasons.join('; ') : undefined, excess }
  }
  const judgeAll = (inputs: readonly RewardInput[], signal?: AbortSignal): Promise<RewardValue>[] => {
    const parts = list.map(({ reward }) => judgeMany(reward, inputs, signal))
    return inputs.map(async (_, i) => combined(await Promise.all(parts.map((judgments) => judgments[i]!))))
  }
  const sizes = list.map(({ reward }) => batchSizeOf(reward)).filter((size) => size !== null)
  const composed: Reward =
    sizes.length > 0
      ? judgesTogether(judgeAll, largest(sizes))
      : (prompt, completion, example, signal) => judgeAll([{ prompt, completion, example }], signal)[0]!
  return list.every((part) => isInTime(part.reward)) ? judgesInTime(composed) : composed
}

function largest(sizes: readonly BatchSize[]): BatchSize {
  return sizes.reduce((a, b) => (a === 'group' || b === 'group' ? 'group' : Math.max(a, b)))
}
