import { InputError } from '../../base/errors.ts'
import { type Metrics, metric } from '../../base/metrics.ts'
import { optionalNumber, type SettingValues } from '../../base/settings.ts'
import type { ParameterViews, SoftPolicy } from '../../policies/policy.ts'
import type { LearnerShape } from '../algorithm.ts'
import {
  defineOffPolicyAlgorithm,
  type OffPolicyContext,
  type OffPolicyLoss,
  offPolicySettings,
  type ReplayedBlock,
} from './off-policy.ts'

/** The settings of SAC's loss. */
export const sacSettings = {
  temperature: optionalNumber(
    null,
    'weight of the entropy; null: learned, so that the entropy approaches targetEntropy',
    {
      above: 0,
    },
  ),
  targetEntropy: optionalNumber(
    null,
    "target entropy of actions within ±1, in nats; null: minus the number of an action's elements",
  ),
}

const settings = {
  ...offPolicySettings({
    ...{ learningRate: 1e-3, batchSize: 256, targetRate: 0.005, targetInterval: 1, maxGradNorm: 100 },
  }),
  ...sacSettings,
}

/** In the order of `SacSum`. */
export const sacMetrics = {
  criticLoss: metric("half the weighted squared errors of both critics' values of a row", 'rowMean'),
  actorLoss: metric('temperature · log π − value of a newly sampled action', 'rowMean'),
  tdError: metric('absolute TD error of a row, mean of both critics', 'rowMean'),
  actionValue: metric("value of a row's action, the minimum of both critics", 'rowMean'),
  entropy: metric('−log π of a newly sampled action within ±1', 'rowMean', 'nats'),
  temperature: metric('weight of the entropy', 'rowMean'),
} as const satisfies Metrics

export const SacSum = { criticLoss: 0, actorLoss: 1, tdError: 2, actionValue: 3, entropy: 4, temperature: 5 } as const

/** Uses of a minibatch's normal random numbers; subclasses have further ones. */
export const Use = { next: 1, own: 2, further: 3 } as const

/** Numbers per row that the loss needs as workspace. */
export function sacScratchWidth({ model }: LearnerShape): number {
  return (model.soft?.actionWidth ?? 0) + 2
}

/** @throws InputError for a policy without two critics. */
export function checkSacPolicy(id: string, { model }: LearnerShape): void {
  if (model.soft !== undefined) return
  throw new InputError(`${id} policy`, 'a policy without action critics', 'a policy with two critics: sacNetwork')
}

/**
 * Soft actor-critic (Haarnoja et al. 2018, with two critics, a learned temperature and squashed actions), for `sacNetwork`. One gradient
 * step updates actor, critics and temperature together.
 * @example sac({ learningRate: 1e-3, gradientSteps: 4 })
 */
export const sac = defineOffPolicyAlgorithm({
  id: 'sac',
  module: import.meta.url,
  settings,
  metrics: sacMetrics,
  scratchWidth: sacScratchWidth,
  check: (shape) => checkSacPolicy('sac', shape),
  loss: (parameters, context) => new SacLoss(parameters, context),
})

export class SacLoss implements OffPolicyLoss {
  readonly #parameters: SettingValues<typeof sacSettings>
  protected readonly context: OffPolicyContext
  protected readonly policy: SoftPolicy
  protected readonly target: SoftPolicy
  readonly #targetEntropy: number
  protected readonly normal: Float32Array
  protected readonly logprob: Float32Array
  protected readonly dValue: Float32Array
  readonly #words = new Uint32Array(4)
  readonly #temperature: number

  constructor(parameters: SettingValues<typeof sacSettings>, context: OffPolicyContext) {
    const { actionWidth, logTemperature } = context.model.soft!
    this.#parameters = parameters
    this.context = context
    this.policy = context.policy as SoftPolicy
    this.target = context.target as SoftPolicy
    this.#targetEntropy = parameters.targetEntropy ?? -actionWidth
    this.#temperature = context.model.parameters[logTemperature]!.offset
    const { blockRows, scratch } = context
    this.normal = scratch.subarray(0, blockRows * actionWidth)
    this.logprob = scratch.subarray(blockRows * actionWidth, blockRows * (actionWidth + 1))
    this.dValue = scratch.subarray(blockRows * (actionWidth + 1), blockRows * (actionWidth + 2))
  }

  ofBlock(block: ReplayedBlock, gradient: ParameterViews, sums: Float64Array, sumsFrom: number): void {
    const { weights, model } = this.context
    const { count, scale } = block
    const logprob = this.logprob
    const temperature = this.#parameters.temperature ?? Math.exp(weights[this.#temperature]!)
    this.valueNext(block, temperature)
    this.differentiateCritics(block, gradient, sums, sumsFrom)

    const { observation } = block.rows
    this.drawNormal(block, Use.own)
    const least = this.policy.judge(
      observation,
      0,
      this.policy.draw(observation, 0, this.normal, logprob, count),
      count,
    )
    let distance = 0
    for (let row = 0; row < count; row++) {
      const loss = temperature * logprob[row]! - least[row]!
      sums[sumsFrom + SacSum.actorLoss] = sums[sumsFrom + SacSum.actorLoss]! + loss
      sums[sumsFrom + SacSum.entropy] = sums[sumsFrom + SacSum.entropy]! - logprob[row]!
      distance += logprob[row]! + this.#targetEntropy
    }
    this.policy.differentiateActor(observation, 0, this.normal, temperature, scale, count, gradient)
    // Temperature loss: −log temperature · (log π + targetEntropy), equation 18 of the paper with its logarithm in place.
    const dTemperature = gradient[model.soft!.logTemperature]!
    if (this.#parameters.temperature === null) dTemperature[0] = dTemperature[0]! - scale * distance
    sums[sumsFrom + SacSum.temperature] = sums[sumsFrom + SacSum.temperature]! + count * temperature
  }

  /** Values the next state: the target's lesser value of a newly sampled action, plus its entropy. */
  protected valueNext(block: ReplayedBlock, temperature: number): void {
    const { nextObservation, nextValue, count } = block
    this.drawNormal(block, Use.next)
    const unit = this.policy.draw(nextObservation, 0, this.normal, this.logprob, count)
    const least = this.target.judge(nextObservation, 0, unit, count)
    for (let row = 0; row < count; row++) nextValue[row] = least[row]! - temperature * this.logprob[row]!
  }

  protected differentiateCritics(
    block: ReplayedBlock,
    gradient: ParameterViews,
    sums: Float64Array,
    sumsFrom: number,
  ): void {
    const { rows, count, scale, weight, error, return: returns, discount, nextValue } = block
    const policy = this.policy
    const least = policy.judge(rows.observation, 0, policy.shrink(rows.action as Float32Array, 0, count), count)
    error.fill(0, 0, count)
    for (const critic of [0, 1] as const) {
      const values = policy.criticValues[critic]
      for (let row = 0; row < count; row++) {
        const delta = returns[row]! + discount[row]! * nextValue[row]! - values[row]!
        this.dValue[row] = -weight[row]! * scale * delta
        error[row] = error[row]! + Math.abs(delta) / 2
        sums[sumsFrom + SacSum.criticLoss] = sums[sumsFrom + SacSum.criticLoss]! + 0.5 * weight[row]! * delta * delta
      }
      policy.differentiateCritic(critic, this.dValue, count, gradient)
    }
    for (let row = 0; row < count; row++) {
      sums[sumsFrom + SacSum.tdError] = sums[sumsFrom + SacSum.tdError]! + error[row]!
      sums[sumsFrom + SacSum.actionValue] = sums[sumsFrom + SacSum.actionValue]! + least[row]!
    }
  }

  protected drawNormal({ first, count, step }: ReplayedBlock, use: number): void {
    const { kernels, random, model } = this.context
    const { key0, key1 } = random
    const { actionWidth } = model.soft!
    kernels.drawReplayNormal(this.normal, this.#words, step, use, first, key0, key1, count, actionWidth)
  }
}
