/** Metrics of language model trainings: of supervised steps, and of updates and their conversations. */
import type { LossTotals } from '../../../algorithms/losses/losses.ts'
import type { preferenceMetrics } from '../../../algorithms/tokens/text-metrics.ts'
import type { WorkName } from '../../../base/clock.ts'
import type { TokenSpans } from '../../../kernels/bind.ts'
import { groupNumbers, type TrajectoryRows } from '../../../tables/trajectories/trajectories.ts'
import type { CollectorProgress } from '../../loop/collector.ts'

export interface Spread {
  readonly mean: number
  readonly min: number
  readonly max: number
}

/** Metrics of a supervised step or an update. Null: not of this phase. */
export interface TextMetrics {
  readonly phase: 'sft' | 'rl'
  /** Steps of the phase done, this one included. */
  readonly step: number
  readonly seconds: number
  readonly loss: number
  readonly learningRate: number
  /** Norm of the gradient before clipping. */
  readonly gradNorm: number
  /** Tokens learned from. */
  readonly tokens: number
  /** Seconds of the caller's thread by kind of work; they sum to the total. */
  readonly phaseSeconds: Readonly<Record<WorkName, number>>
  /** Only of a loss of preferences. */
  readonly preference?: PreferenceMetrics
  readonly rl: RlMetrics | null
}

/** Metrics of a step on preferences, by `preferenceMetrics`. Null: unknown. */
export type PreferenceMetrics = Readonly<Record<keyof typeof preferenceMetrics, number | null>>

/** Metrics of an update: its conversations and its first optimizer step. */
export interface RlMetrics extends Omit<CollectorProgress, 'ticks'> {
  /** Mean and deviation of the known rewards; null without any. */
  readonly reward: number | null
  readonly rewardStd: number | null
  readonly components: Readonly<Record<string, number>>
  /** Unknown rewards; the first reason. */
  readonly numUnknown: number
  readonly firstError: string | null
  /** Fraction of groups with equal rewards, which teach nothing. */
  readonly fracRewardZeroStd: number
  readonly completionLength: number
  /** Fraction of conversations cut off by budget or context. */
  readonly clippedRatio: number
  /** Turns cut off by budget or context, including those followed by others. */
  readonly cutTurns: number
  /** Conversations ended by that although the environment had replied; the reply was dropped. */
  readonly droppedReplies: number
  /** How often the chat template rewrote earlier messages, after which the conversation continued in a new row. */
  readonly rewrites: number
  /** Of the whole distribution, in nats, from the training's forward pass; so are the next ones. */
  readonly entropy: number
  /** Estimators of KL(old ‖ new), and of KL(new ‖ reference) if there is one. */
  readonly kl: { readonly k1: number; readonly k2: number; readonly k3: number }
  readonly referenceKl: { readonly k1: number; readonly k2: number; readonly k3: number } | null
  readonly ratio: number
  /** The critic's part of the loss; null without a critic. */
  readonly valueLoss: number | null
  /**
   * Difference between sampler and trainer, for tokens that were evaluated again before the update: mean of e^Δ − Δ − 1
   * with Δ the trainer's minus the recorded log-probability; e^Δ; and the correction weights made of it. Null if
   * recorded values are used unchecked.
   */
  readonly mismatchKl: number | null
  readonly importanceRatio: Spread | null
  readonly importanceWeight: Spread | null
  readonly clipRatio: { readonly low: number; readonly high: number }
  /** Mean known reward of each group that has one, in order. */
  readonly groupRewards: readonly number[]
  readonly trajectories: number
  /** Updates since a token's weights, and counts of tokens by age 0, 1, … max; null if unknown. */
  readonly staleness: { readonly mean: number; readonly max: number; readonly counts: readonly number[] } | null
  /** Tokens that the model chose; those from another distribution, not learned; and all tokens trained on. */
  readonly sampledTokens: number
  readonly untrainedTokens: number
  readonly trainedTokens: number
  /** Tokens without a recorded log-probability, for which the weights before the update were used. */
  readonly numRecomputed: number
  readonly rolloutSeconds: number
  readonly updateSeconds: number
}

/** Mean of e^Δ − Δ − 1 over counted tokens, Δ = trained − recorded (not NaN), an estimate of KL; null without any. */
export function mismatchKl(
  trained: Float32Array,
  recorded: Float32Array,
  counted: Uint8Array,
  { begin, end }: TokenSpans,
): number | null {
  let [sum, count] = [0, 0]
  for (let i = 0; i < begin.length; i++) {
    for (let t = begin[i]!; t < end[i]!; t++) {
      if (counted[t] === 0 || Number.isNaN(recorded[t])) continue
      const apart = trained[t]! - recorded[t]!
      sum += Math.exp(apart) - apart - 1
      count++
    }
  }
  return count === 0 ? null : sum / count
}

/** Mean, minimum and maximum over the counted tokens. */
export function spreadOf(weightOf: (token: number) => number, counted: Uint8Array, { begin, end }: TokenSpans): Spread {
  let [sum, count, min, max] = [0, 0, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY]
  for (let i = 0; i < begin.length; i++) {
    for (let t = begin[i]!; t < end[i]!; t++) {
      if (counted[t] === 0) continue
      const weight = weightOf(t)
      sum += weight
      count++
      min = Math.min(min, weight)
      max = Math.max(max, weight)
    }
  }
  return { mean: sum / count, min, max }
}

/** Staleness of counted tokens of known version, in updates: mean, max, and counts by age; null without any. */
export function stalenessOf(
  current: number,
  version: Int32Array,
  counted: Uint8Array,
  { begin, end }: TokenSpans,
): RlMetrics['staleness'] {
  const counts: number[] = []
  let [sum, count] = [0, 0]
  for (let i = 0; i < begin.length; i++) {
    for (let t = begin[i]!; t < end[i]!; t++) {
      if (counted[t] === 0 || version[t]! < 0) continue
      const age = current - version[t]!
      sum += age
      count++
      while (counts.length <= age) counts.push(0)
      counts[age] = counts[age]! + 1
    }
  }
  return count === 0 ? null : { mean: sum / count, max: counts.length - 1, counts }
}

/** Metrics of the rewards of an update's conversations. */
export function rewardMetrics(columns: TrajectoryRows, { numUnknown }: LossTotals) {
  const { reward, known, segment, stopReason, error, components, cutTurns, droppedReplies } = columns
  const group = groupNumbers(columns)
  const isFirst = (i: number) => segment[i] === 0 // Counts a conversation once, however many rows it has.
  const isLast = (i: number) => i + 1 === segment.length || isFirst(i + 1)
  const rewards = [...reward].filter((_, i) => known[i] === 1 && isFirst(i))
  const ends = stopReason.filter((_, i) => isLast(i))
  const mean = average(rewards)
  const groups = new Map<number, number[]>()
  reward.forEach((value, i) => {
    if (known[i] === 1 && isFirst(i)) groups.set(group[i]!, [...(groups.get(group[i]!) ?? []), value])
  })
  const equal = [...groups.values()].filter((values) => values.every((value) => value === values[0]))
  return {
    reward: mean,
    rewardStd: mean === null ? null : Math.sqrt(average(rewards.map((value) => (value - mean) ** 2))!),
    components: Object.fromEntries(
      [...components].flatMap(([name, values]) => {
        const value = average(values.filter((each, i) => each !== null && isFirst(i)) as number[])
        return value === null ? [] : [[name, value]]
      }),
    ),
    numUnknown,
    firstError: error.find((text) => text !== null) ?? null,
    groupRewards: [...groups.values()].map((values) => average(values)!),
    fracRewardZeroStd: groups.size === 0 ? 0 : equal.length / groups.size,
    clippedRatio: ends.filter((reason) => reason !== 'stop').length / ends.length,
    cutTurns: sum(cutTurns),
    droppedReplies: sum(droppedReplies),
    rewrites: segment.length - ends.length,
  }
}

function sum(counts: Int32Array): number {
  return counts.reduce((total, count) => total + count, 0)
}

function average(values: readonly number[]): number | null {
  return values.length === 0 ? null : values.reduce((sum, value) => sum + value, 0) / values.length
}
