import { type Metrics, metric } from '../../base/metrics.ts'
import { integer, number, type SettingValues } from '../../base/settings.ts'
import type { ParameterViews } from '../../policies/policy.ts'
import type { LearnerShape } from '../algorithm.ts'
import {
  defineOffPolicyAlgorithm,
  type OffPolicyContext,
  offPolicySettings,
  type ReplayedBlock,
  type Stage,
} from './off-policy.ts'
import { checkTd3Policy, Td3Loss, Td3Sum, td3Metrics, td3Parts, td3Settings } from './td3.ts'

const { explorationNoise: _, ...losses } = td3Settings

const settings = {
  ...offPolicySettings({
    ...{ learningRate: 3e-4, batchSize: 256, targetRate: 0.005, targetInterval: 2, maxGradNorm: 1e6 },
  }),
  ...losses,
  gradientSteps: integer(1000, 'optimizer steps of the critics after each rollout of the table', { min: 1 }),
  alpha: number(2.5, 'α: weight of the critics’ values relative to the distance to recorded actions', { min: 0 }),
}

/** `valueSize` is the last one: see `VALUE_SIZE`. */
const metrics = {
  ...td3Metrics,
  valueSize: metric("|value| of the actor's action; NaN in updates without a step of the actor", 'rowMean'),
} as const satisfies Metrics

const VALUE_SIZE = Object.keys(td3Metrics).length

/** The number of the stage that measures the values; it follows the critics' and precedes the actor's. */
const SIZE = 1

/**
 * TD3 with behavior cloning (Fujimoto, Gu 2021, "A Minimalist Approach to Offline Reinforcement Learning"), for `td3Network` and tables of
 * another policy's rows (`trainer.learn`, `from=`). The actor minimizes −α Q / mean |Q| + the mean squared distance of its actions, within
 * ±1, to the recorded ones; the means are over the minibatch. Rows go into the replay rollout by rollout, and each is followed by
 * `gradientSteps`. The weights are TD3's, so that `td3` can go on online.
 * @example for await (const { actionValue } of trainer.learn(table, { epochs: 20 })) console.log(actionValue)
 */
export const td3bc = defineOffPolicyAlgorithm({
  id: 'td3bc',
  module: import.meta.url,
  settings,
  metrics,
  needsTable: true, // Its actor stays near recorded actions: its own rows would only confirm it.
  scratchWidth: td3Parts.scratchWidth,
  stages: (parameters, shape: LearnerShape): Stage[] => {
    const [critics, actor] = td3Parts.stages(parameters, shape) as [Stage, Stage]
    return [critics, { ...actor, metrics: ['valueSize'], measures: true }, actor]
  },
  check: (shape) => checkTd3Policy('td3bc', shape),
  loss: (parameters, context) => new Td3BcLoss(parameters, context),
})

class Td3BcLoss extends Td3Loss {
  readonly #alpha: number

  constructor(parameters: SettingValues<typeof settings>, context: OffPolicyContext) {
    super({ ...parameters, explorationNoise: 0.1 }, context)
    this.#alpha = parameters.alpha
  }

  protected override differentiateActor(
    { rows, count, scale, stage, measured }: ReplayedBlock,
    gradient: ParameterViews,
    sums: Float64Array,
    sumsFrom: number,
  ): void {
    const { policy } = this
    const unit = policy.act(rows.observation, 0, count)
    policy.judge(rows.observation, 0, unit, count)
    const [values] = policy.criticValues
    const add = (sum: number, value: number) => {
      sums[sumsFrom + sum] = sums[sumsFrom + sum]! + value
    }
    if (stage === SIZE) {
      for (let row = 0; row < count; row++) add(VALUE_SIZE, Math.abs(values[row]!))
      return
    }
    const factor = measured === 0 ? 0 : this.#alpha / measured
    const recorded = policy.shrink(rows.action as Float32Array, 0, count)
    const { actionWidth } = this.context.model.deterministic!
    let loss = 0
    for (let row = 0; row < count; row++) loss -= factor * values[row]!
    for (let i = 0; i < count * actionWidth; i++) loss += (unit[i]! - recorded[i]!) ** 2 / actionWidth
    add(Td3Sum.actorLoss, loss)
    policy.differentiateActor(rows.observation, 0, scale * factor, count, gradient, { recorded, scale })
  }
}
