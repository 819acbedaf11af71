import { InputError } from '../../base/errors.ts'
import { type Metrics, metric } from '../../base/metrics.ts'
import { fraction, integer, number, type SettingValues } from '../../base/settings.ts'
import type { ImplicitPolicy, ParameterViews } from '../../policies/policy.ts'
import {
  defineOffPolicyAlgorithm,
  type OffPolicyContext,
  type OffPolicyLoss,
  offPolicySettings,
  type ReplayedBlock,
} from './off-policy.ts'

const settings = {
  ...offPolicySettings({
    ...{ learningRate: 3e-4, batchSize: 256, targetRate: 0.005, targetInterval: 1, maxGradNorm: 1e6 },
  }),
  gradientSteps: integer(1000, 'optimizer steps after each rollout', { min: 1 }),
  expectile: fraction(0.7, "τ: expectile of the actions' values that a state's value approaches; 0.5: their mean"),
  beta: number(3, 'β of the weights e^(β · advantage) of actions', { min: 0 }),
  weightMax: number(100, 'upper bound of the weights of actions', { above: 0 }),
}

/** In the order of `IqlSum`. */
const metrics = {
  criticLoss: metric("weighted squared errors of both critics' values of a row", 'rowMean'),
  valueLoss: metric("squared error of a state's value, times expectile or 1 − expectile", 'rowMean'),
  actorLoss: metric('−log π of the recorded action, times its weight', 'rowMean', 'nats'),
  tdError: metric('absolute TD error of a row, mean of both critics', 'rowMean'),
  actionValue: metric("value of a row's action, the minimum of both target critics", 'rowMean'),
  stateValue: metric("value of a row's state", 'rowMean'),
  advantageWeight: metric("weight of a row's action", 'rowMean'),
} as const satisfies Metrics

const IqlSum = {
  ...{ criticLoss: 0, valueLoss: 1, actorLoss: 2, tdError: 3, actionValue: 4, stateValue: 5, advantageWeight: 6 },
} as const

/**
 * Implicit Q-learning (Kostrikov, Nair, Levine 2021), for `iqlNetwork`. It values no action that was not recorded: a state's value is an
 * expectile of the target critics' lesser values of its recorded actions, critics learn rewards and the next state's value, and the actor
 * makes actions more likely by e^(β · advantage). One gradient step updates all. It learns from tables of another policy's rows
 * (`trainer.learn`, `from=`), and can go on online with its weights.
 * @example for await (const { stateValue } of trainer.learn(table, { epochs: 20 })) console.log(stateValue)
 */
export const iql = defineOffPolicyAlgorithm({
  id: 'iql',
  module: import.meta.url,
  settings,
  metrics,
  scratchWidth: () => 1,
  check({ model }) {
    if (model.implicit !== undefined) return
    const expected = 'a policy with a Gaussian actor, two critics and a critic of states: iqlNetwork'
    throw new InputError('iql policy', 'a policy without a critic of states', expected)
  },
  loss: (parameters, context) => new IqlLoss(parameters, context),
})

class IqlLoss implements OffPolicyLoss {
  readonly #parameters: SettingValues<typeof settings>
  readonly #policy: ImplicitPolicy
  readonly #target: ImplicitPolicy
  readonly #derivative: Float32Array

  constructor(parameters: SettingValues<typeof settings>, context: OffPolicyContext) {
    this.#parameters = parameters
    this.#policy = context.policy as ImplicitPolicy
    this.#target = context.target as ImplicitPolicy
    this.#derivative = context.scratch
  }

  ofBlock(block: ReplayedBlock, gradient: ParameterViews, sums: Float64Array, sumsFrom: number): void {
    const { expectile, beta, weightMax } = this.#parameters
    const { rows, nextObservation, nextValue, error, weight, count, scale } = block
    const { observation } = rows
    const policy = this.#policy
    const derivative = this.#derivative
    const add = (sum: number, value: number) => {
      sums[sumsFrom + sum] = sums[sumsFrom + sum]! + value
    }
    const next = policy.stateValues(nextObservation, 0, count)
    for (let row = 0; row < count; row++) nextValue[row] = next[row]!
    const unit = policy.shrink(rows.action as Float32Array, 0, count)

    const least = this.#target.judge(observation, 0, unit, count)
    const values = policy.stateValues(observation, 0, count)
    for (let row = 0; row < count; row++) {
      const advantage = least[row]! - values[row]!
      const slope = advantage < 0 ? 1 - expectile : expectile
      derivative[row] = -2 * weight[row]! * scale * slope * advantage
      add(IqlSum.valueLoss, weight[row]! * slope * advantage * advantage)
      add(IqlSum.actionValue, least[row]!)
      add(IqlSum.stateValue, values[row]!)
    }
    policy.differentiateState(observation, 0, derivative, count, gradient)

    const logDensity = policy.logDensities(observation, 0, unit, count)
    for (let row = 0; row < count; row++) {
      const advantageWeight = Math.min(weightMax, Math.exp(beta * (least[row]! - values[row]!)))
      derivative[row] = -scale * advantageWeight
      add(IqlSum.actorLoss, -advantageWeight * logDensity[row]!)
      add(IqlSum.advantageWeight, advantageWeight)
    }
    policy.differentiateActor(observation, 0, unit, derivative, count, gradient)

    policy.judge(observation, 0, unit, count)
    error.fill(0, 0, count)
    for (const critic of [0, 1] as const) {
      const judged = policy.criticValues[critic]
      for (let row = 0; row < count; row++) {
        const delta = block.return[row]! + block.discount[row]! * nextValue[row]! - judged[row]!
        derivative[row] = -2 * weight[row]! * scale * delta
        error[row] = error[row]! + Math.abs(delta) / 2
        add(IqlSum.criticLoss, weight[row]! * delta * delta)
      }
      policy.differentiateCritic(critic, derivative, count, gradient)
    }
    for (let row = 0; row < count; row++) add(IqlSum.tdError, error[row]!)
  }
}
