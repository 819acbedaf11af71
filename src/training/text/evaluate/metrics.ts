/** What trainings of language models tell: of a supervised step, and of an update and its conversations. */
import type { LossTotals } from '../../../algorithms/losses/losses.ts'
import type { WorkName } from '../../../base/clock.ts'
import { type Metrics, metric } from '../../../base/metrics.ts'
import type { TokenSpans } from '../../../kernels/bind.ts'
import { groupNumbers, type TrajectoryRows } from '../../../tables/trajectories/trajectories.ts'
import type { AgeSpread } from '../../loop/collector.ts'

/** What a line of `metrics.jsonl` says beside what the phases tell. */
export const lineMetrics = {
  checkpoint: metric('number of a checkpoint behind it: ticks, supervised steps and updates done', 'last'),
} as const satisfies Metrics

/** Of numbers of tokens. */
export interface Spread {
  readonly mean: number
  readonly min: number
  readonly max: number
}

/** What a supervised step, or an update of reinforcement learning, did. Null: not of this phase. */
export interface TextMetrics {
  readonly phase: 'sft' | 'rl'
  /** Steps of the phase done, this one included. */
  readonly step: number
  readonly seconds: number
  readonly loss: number
  readonly learningRate: number
  /** Norm of the gradient before it was clipped. */
  readonly gradNorm: number
  /** Tokens that were learned from. */
  readonly tokens: number
  /** What the caller's thread spent on each kind of work, in seconds; they add up to the whole. */
  readonly phaseSeconds: Readonly<Record<WorkName, number>>
  readonly rl: RlMetrics | null
}

/** What an update of reinforcement learning did, of its conversations and of its first optimizer step. */
export interface RlMetrics {
  /** Mean and deviation of the known rewards; null where none is known. */
  readonly reward: number | null
  readonly rewardStd: number | null
  /** Means of what the rewards are made of. */
  readonly components: Readonly<Record<string, number>>
  /** Rewards that could not be told; the first reason. */
  readonly numUnknown: number
  readonly firstError: string | null
  /** Part of the groups whose rewards are all equal: nothing is learned of them. */
  readonly fracRewardZeroStd: number
  readonly completionLength: number
  /** Part of the conversations that their budget or the context cut off. */
  readonly clippedRatio: number
  /** Turns that their budget or the context cut off, in all conversations; those after which others followed are among them. */
  readonly cutTurns: number
  /** Conversations that ended so, though the environment had replied with more: it was not appended. */
  readonly droppedReplies: number
  /** How often the chat template rewrote what stood before a turn: each time the conversation went on in a row of its own. */
  readonly rewrites: number
  /** Of the whole distribution, in nats, from the training's forward pass; so are the next ones. */
  readonly entropy: number
  /** Estimators of KL(old ‖ new), and of KL(new ‖ reference) where there is one. */
  readonly kl: { readonly k1: number; readonly k2: number; readonly k3: number }
  readonly referenceKl: { readonly k1: number; readonly k2: number; readonly k3: number } | null
  readonly ratio: number
  /** The critic's part of the loss; null where there is no critic. */
  readonly valueLoss: number | null
  /**
   * How far sampler and trainer are apart, of tokens that were evaluated again before the update: mean of e^Δ − Δ − 1 with Δ the
   * trainer's logprob less the recorded one; e^Δ; and the corrections' weights, which are made of it. Null where what is recorded is taken as it is.
   */
  readonly mismatchKl: number | null
  readonly importanceRatio: Spread | null
  readonly importanceWeight: Spread | null
  readonly clipRatio: { readonly low: number; readonly high: number }
  /** Mean of the known rewards of each group that has one, in the order of the groups. */
  readonly groupRewards: readonly number[]
  readonly trajectories: number
  /**
   * Updates since the weights that chose a token, and how many tokens are 0, 1, … max updates stale; null where nobody knows the
   * weights.
   */
  readonly staleness: { readonly mean: number; readonly max: number; readonly counts: readonly number[] } | null
  readonly rolloutAgeSeconds: AgeSpread
  /** Groups that were whole and waited for a later update. */
  readonly queueDepth: number
  /** Seconds in which a lane had no conversation to go on with, the mean of all lanes. */
  readonly lanesIdleSeconds: number
  /** Groups that were dropped since the update before, by reason. */
  readonly drops: Readonly<Record<string, number>>
  /**
   * Tokens that the model chose; those of them that were drawn from another distribution than is trained, of which nothing is
   * learned; and tokens that it was trained on, prompts included.
   */
  readonly sampledTokens: number
  readonly untrainedTokens: number
  readonly trainedTokens: number
  /** Tokens whose log-probability nobody had recorded: that of the weights before the update stands for it. */
  readonly numRecomputed: number
  readonly rolloutSeconds: number
  readonly updateSeconds: number
}

/** A step's metrics by their names: an update's own stand beside those of every step. */
export function metricsLine({ rl, ...top }: TextMetrics): Readonly<Record<string, unknown>> {
  return { ...top, ...(rl ?? {}) }
}

/**
 * The mean over counted tokens of e^Δ − Δ − 1, Δ = trained − recorded: an estimate of KL(recorded ‖ trained). Tokens of which
 * nothing is recorded (NaN) are passed over; null where that are all.
 */
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

/** Mean, least and greatest of what the counted tokens have. */
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

/**
 * How old the counted tokens are for weights of that version, in updates: mean, max, and how many are 0, 1, … max updates old.
 * Tokens of which nobody knows the weights (version −1) are passed over; null where that are all.
 */
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

/** What the rewards of an update's conversations come to. */
export function rewardMetrics(columns: TrajectoryRows, { numUnknown }: LossTotals) {
  const { reward, known, segment, stopReason, error, components, cutTurns, droppedReplies } = columns
  const group = groupNumbers(columns)
  const isFirst = (i: number) => segment[i] === 0 // A conversation is counted once, however many rows it has.
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
