import type { TokenSpans } from '../spans.ts'

/**
 * Advantages of trajectories within their group, the answers to one prompt, in f64. With the n known rewards r of a group,
 * their mean μ and deviation σ (n − 1 below the root where `unbiased`):
 *
 *     baseline   mean            A = r − μ
 *                leave-one-out   A = r − mean of the others = n / (n − 1) · (r − μ)     RLOO, arXiv 2402.14740
 *     scale      none            A                                                      Dr. GRPO, arXiv 2503.20783
 *                group           A / (σ + ε)                                            GRPO, arXiv 2402.03300
 *                batch           A / (σ of all known rewards + ε)
 *                mean            A / (μ + ε)                                            MaxRL
 *
 * An unknown reward has no advantage and enters no mean. If all rewards are equal except for rounding, advantages are 0
 * for any ε, so that rounding errors are never divided by a σ of their own size. A group of one has no baseline: it is
 * left out, or its reward is its advantage (`lone`). `standing` records the outcome for each trajectory.
 */
export const Standing = { learns: 0, unknown: 1, alone: 2, equal: 3 } as const

export type GroupBaseline = 'mean' | 'leave-one-out'
export type GroupScale = 'none' | 'group' | 'batch' | 'mean'
/** What a trajectory without others in its group gets. */
export type LoneAdvantage = 'mask' | 'reward'

/** Deviations below this fraction of the largest reward count as rounding. */
const EQUAL = 1e-8

/** Columns that `groupAdvantage` writes: a row per trajectory, then a row per group. */
export interface GroupAdvantageOutputs {
  readonly advantage: Float64Array
  readonly standing: Uint8Array
  /** Known rewards of the group, their mean and deviation. */
  readonly groupSize: Uint32Array
  readonly groupMean: Float64Array
  readonly groupDeviation: Float64Array
}

/** Choices of the formulas above. */
export interface GroupAdvantageSettings {
  readonly baseline: GroupBaseline
  readonly scale: GroupScale
  readonly unbiased: boolean
  readonly epsilon: number
  readonly lone: LoneAdvantage
}

/** group[i] < numGroups is the group of trajectory i. */
export function groupAdvantage(
  outputs: GroupAdvantageOutputs,
  reward: Float64Array,
  known: Uint8Array,
  group: Int32Array,
  settings: GroupAdvantageSettings,
  numTrajectories: number,
  numGroups: number,
): void {
  const { advantage, standing, groupSize: size, groupMean: mean, groupDeviation: deviation } = outputs
  const { baseline, scale, unbiased, epsilon, lone } = settings
  size.fill(0, 0, numGroups)
  mean.fill(0, 0, numGroups)
  deviation.fill(0, 0, numGroups)
  let numKnown = 0
  let total = 0
  let largest = 0
  for (let i = 0; i < numTrajectories; i++) {
    if (known[i] === 0) continue
    const g = group[i]!
    size[g]!++
    mean[g] = mean[g]! + reward[i]!
    numKnown++
    total += reward[i]!
    largest = Math.max(largest, Math.abs(reward[i]!))
  }
  for (let g = 0; g < numGroups; g++) mean[g] = size[g] === 0 ? 0 : mean[g]! / size[g]!
  let squares = 0
  for (let i = 0; i < numTrajectories; i++) {
    if (known[i] === 0) continue
    const g = group[i]!
    const fromMean = reward[i]! - mean[g]!
    const fromAll = reward[i]! - total / numKnown
    deviation[g] = deviation[g]! + fromMean * fromMean
    squares += fromAll * fromAll
  }
  const freedom = unbiased ? 1 : 0
  const batchDeviation = Math.sqrt(squares / Math.max(1, numKnown - freedom))
  for (let g = 0; g < numGroups; g++) deviation[g] = Math.sqrt(deviation[g]! / Math.max(1, size[g]! - freedom))

  for (let i = 0; i < numTrajectories; i++) {
    const g = group[i]!
    advantage[i] = 0
    if (known[i] === 0) standing[i] = Standing.unknown
    else if (size[g] === 1) {
      standing[i] = lone === 'mask' ? Standing.alone : Standing.learns
      advantage[i] = lone === 'mask' ? 0 : reward[i]!
    } else if (deviation[g]! <= EQUAL * largest) standing[i] = Standing.equal
    else {
      standing[i] = Standing.learns
      const n = size[g]!
      const centered = (reward[i]! - mean[g]!) * (baseline === 'mean' ? 1 : n / (n - 1))
      if (scale === 'none') advantage[i] = centered
      else
        advantage[i] =
          centered / ((scale === 'group' ? deviation[g]! : scale === 'batch' ? batchDeviation : mean[g]!) + epsilon)
    }
  }
}

/**
 * Gives each token of lossMask its trajectory's advantage, by the true lengths. `counted` is lossMask without the trajectories whose reward
 * is unknown or that are alone.
 */
export function spreadAdvantage(
  tokenAdvantage: Float32Array,
  counted: Uint8Array,
  advantage: Float64Array,
  standing: Uint8Array,
  lossMask: Uint8Array,
  { begin, end }: TokenSpans,
  numTrajectories: number,
): void {
  for (let i = 0; i < numTrajectories; i++) {
    const learns = standing[i] === Standing.learns || standing[i] === Standing.equal
    for (let t = begin[i]!; t < end[i]!; t++) {
      counted[t] = learns ? lossMask[t]! : 0
      tokenAdvantage[t] = counted[t] === 0 ? 0 : advantage[i]!
    }
  }
}
