import { InputError } from '../../base/errors.ts'
import { type Metrics, metric } from '../../base/metrics.ts'
import { integer, number, type SettingValues } from '../../base/settings.ts'
import type { DeterministicPolicy, ParameterViews } from '../../policies/policy.ts'
import type { LearnerShape } from '../algorithm.ts'
import {
  defineOffPolicyAlgorithm,
  type OffPolicyContext,
  type OffPolicyLoss,
  offPolicySettings,
  type ReplayedBlock,
  type Stage,
} from './off-policy.ts'

const DEFAULTS = { learningRate: 1e-3, batchSize: 256, targetRate: 0.005, targetInterval: 2, maxGradNorm: 100 }

/** The settings of TD3's loss. */
export const td3Settings = {
  policyDelay: integer(2, 'gradient steps of the critics per step of the actor', { min: 1 }),
  explorationNoise: number(0.1, 'standard deviation of the noise on actions while collecting, for actions within ±1', {
    above: 0,
  }),
  targetNoise: number(0.2, "standard deviation of the noise on the target's actions", { min: 0 }),
  targetNoiseClip: number(0.5, 'bound of the absolute noise on the target’s actions', { min: 0 }),
}

const settings = { ...offPolicySettings(DEFAULTS), ...td3Settings }

/** In the order of `Td3Sum`. */
export const td3Metrics = {
  criticLoss: metric("weighted squared errors of both critics' values of a row", 'rowMean'),
  actorLoss: metric("−value of the actor's action; NaN in updates without a step of the actor", 'rowMean'),
  tdError: metric('absolute TD error of a row, mean of both critics', 'rowMean'),
  actionValue: metric("value of a row's action, the minimum of both critics", 'rowMean'),
} as const satisfies Metrics

export const Td3Sum = { criticLoss: 0, actorLoss: 1, tdError: 2, actionValue: 3 } as const

/** The number of the critics' stage; the actor's is the last one. */
const CRITICS = 0

/** The use of a minibatch's normal random numbers. */
const NEXT = 1

/** The common part of algorithms with TD3's critics. */
export const td3Parts = {
  scratchWidth: ({ model }: LearnerShape) => (model.deterministic?.actionWidth ?? 0) + 1,
  stages: ({ policyDelay }: { readonly policyDelay: number }, { model }: LearnerShape): Stage[] => {
    const { critics, actor } = model.deterministic!
    return [
      { ...critics, interval: 1, metrics: ['criticLoss', 'tdError', 'actionValue'] },
      { ...actor, interval: policyDelay, metrics: ['actorLoss'] },
    ]
  },
}

/** @throws InputError for a policy without a deterministic actor. */
export function checkTd3Policy(id: string, { model }: LearnerShape): void {
  if (model.deterministic !== undefined) return
  const expected = 'a policy with a deterministic actor and two critics: td3Network'
  throw new InputError(`${id} policy`, 'a policy without a deterministic actor', expected)
}

/**
 * Twin delayed deep deterministic policy gradient (Fujimoto, van Hoof, Meger 2018), for `td3Network`. Critics learn the lesser of both
 * target critics' values of the target actor's action with clipped noise. The actor steps along the first critic after every `policyDelay`
 * steps of the critics. Actor and critics have separate optimizer states. The first `learningStarts` rows are collected with uniform
 * actions.
 * @example td3({ learningRate: 1e-3, gradientSteps: 4 })
 */
export const td3 = defineOffPolicyAlgorithm({
  id: 'td3',
  module: import.meta.url,
  settings,
  metrics: td3Metrics,
  ...td3Parts,
  check: (shape) => checkTd3Policy('td3', shape),
  loss: (parameters, context) => new Td3Loss(parameters, context),
})

export class Td3Loss implements OffPolicyLoss {
  readonly #parameters: SettingValues<typeof td3Settings>
  protected readonly context: OffPolicyContext
  protected readonly policy: DeterministicPolicy
  readonly #target: DeterministicPolicy
  readonly #normal: Float32Array
  readonly #dValue: Float32Array
  readonly #words = new Uint32Array(4)

  constructor(parameters: SettingValues<typeof td3Settings>, context: OffPolicyContext) {
    const { actionWidth } = context.model.deterministic!
    this.#parameters = parameters
    this.context = context
    this.policy = context.policy as DeterministicPolicy
    this.#target = context.target as DeterministicPolicy
    const { blockRows, scratch } = context
    this.#normal = scratch.subarray(0, blockRows * actionWidth)
    this.#dValue = scratch.subarray(blockRows * actionWidth, blockRows * (actionWidth + 1))
  }

  ofBlock(block: ReplayedBlock, gradient: ParameterViews, sums: Float64Array, sumsFrom: number): void {
    if (block.stage !== CRITICS) {
      this.differentiateActor(block, gradient, sums, sumsFrom)
      return
    }
    this.#valueNext(block)
    this.#differentiateCritics(block, gradient, sums, sumsFrom)
  }

  /** Values the next state: the lesser of both target critics' values of the target actor's action with noise. */
  #valueNext({ nextObservation, nextValue, first, step, count }: ReplayedBlock): void {
    const { kernels, random, model } = this.context
    const { targetNoise, targetNoiseClip } = this.#parameters
    const { key0, key1 } = random
    const { actionWidth } = model.deterministic!
    const unit = this.#target.act(nextObservation, 0, count)
    kernels.drawReplayNormal(this.#normal, this.#words, step, NEXT, first, key0, key1, count, actionWidth)
    kernels.addActionNoise(unit, this.#normal, targetNoise, targetNoiseClip, count, actionWidth)
    const least = this.#target.judge(nextObservation, 0, unit, count)
    for (let row = 0; row < count; row++) nextValue[row] = least[row]!
  }

  #differentiateCritics(block: ReplayedBlock, gradient: ParameterViews, sums: Float64Array, sumsFrom: number): void {
    const { rows, count, scale, weight, error, return: returns, discount, nextValue } = block
    const policy = this.policy
    const least = policy.judge(rows.observation, 0, policy.shrink(rows.action as Float32Array, 0, count), count)
    error.fill(0, 0, count)
    for (const critic of [0, 1] as const) {
      const values = policy.criticValues[critic]
      for (let row = 0; row < count; row++) {
        const delta = returns[row]! + discount[row]! * nextValue[row]! - values[row]!
        this.#dValue[row] = -2 * weight[row]! * scale * delta
        error[row] = error[row]! + Math.abs(delta) / 2
        sums[sumsFrom + Td3Sum.criticLoss] = sums[sumsFrom + Td3Sum.criticLoss]! + weight[row]! * delta * delta
      }
      policy.differentiateCritic(critic, this.#dValue, count, gradient)
    }
    for (let row = 0; row < count; row++) {
      sums[sumsFrom + Td3Sum.tdError] = sums[sumsFrom + Td3Sum.tdError]! + error[row]!
      sums[sumsFrom + Td3Sum.actionValue] = sums[sumsFrom + Td3Sum.actionValue]! + least[row]!
    }
  }

  protected differentiateActor(
    block: ReplayedBlock,
    gradient: ParameterViews,
    sums: Float64Array,
    sumsFrom: number,
  ): void {
    const { rows, count, scale } = block
    const { policy } = this
    policy.judge(rows.observation, 0, policy.act(rows.observation, 0, count), count)
    const [values] = policy.criticValues
    let loss = 0
    for (let row = 0; row < count; row++) loss -= values[row]!
    sums[sumsFrom + Td3Sum.actorLoss] = sums[sumsFrom + Td3Sum.actorLoss]! + loss
    policy.differentiateActor(rows.observation, 0, scale, count, gradient)
  }

  advance(_: number, gradientSteps: number): void {
    const { weights, model } = this.context
    weights.set([gradientSteps > 0 ? 0 : 1, this.#parameters.explorationNoise], model.deterministic!.exploration)
  }
}
