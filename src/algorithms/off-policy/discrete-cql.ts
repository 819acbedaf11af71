import { type Metrics, metric } from '../../base/metrics.ts'
import { integer, number, type SettingValues } from '../../base/settings.ts'
import type { ParameterViews } from '../../policies/policy.ts'
import { checkDqnPolicy, DqnLoss, dqnMetrics, dqnSettings } from './dqn.ts'
import { defineOffPolicyAlgorithm, type OffPolicyContext, offPolicySettings, type ReplayedBlock } from './off-policy.ts'

const { explorationFinal: _, explorationFraction: __, ...losses } = dqnSettings

const settings = {
  ...offPolicySettings({ maxGradNorm: 1e6 }),
  ...losses,
  gradientSteps: integer(1000, 'optimizer steps after each rollout of the table', { min: 1 }),
  conservativeWeight: number(1, 'α: weight of the conservative term beside the loss of TD errors', { min: 0 }),
}

/** `conservativeGap` is the last one: see `GAP`. */
const metrics = {
  ...dqnMetrics,
  conservativeGap: metric("log Σ e^value of a state's legal actions − value of a row's action", 'rowMean'),
} as const satisfies Metrics

const GAP = Object.keys(dqnMetrics).length

/**
 * Conservative Q-learning (Kumar, Zhou, Tucker, Levine 2020) of one choice among several, for `qNetwork` and tables of another policy's
 * rows (`trainer.learn`, `from=`): DQN that also minimizes α (log Σ e^Q over the legal actions − Q of the recorded one). The weights are
 * DQN's, so that `dqn` can go on online.
 * @example for await (const { conservativeGap } of trainer.learn(table, { epochs: 20 })) console.log(conservativeGap)
 */
export const discreteCql = defineOffPolicyAlgorithm({
  id: 'discreteCql',
  module: import.meta.url,
  settings,
  metrics,
  needsTable: true, // It holds down the values of actions that were not recorded, and so of all that it would try.
  obeysMasks: true,
  scratchWidth: ({ model }) => model.actionValues?.numActions ?? 0,
  check: (shape) => checkDqnPolicy('discreteCql', shape),
  loss: (parameters, context) => new DiscreteCqlLoss(parameters, context),
})

class DiscreteCqlLoss extends DqnLoss {
  readonly #weight: number

  constructor(parameters: SettingValues<typeof settings>, context: OffPolicyContext) {
    super({ ...parameters, explorationFinal: 0, explorationFraction: 0 }, context)
    this.#weight = parameters.conservativeWeight
  }

  override ofBlock(block: ReplayedBlock, gradient: ParameterViews, sums: Float64Array, sumsFrom: number): void {
    super.ofBlock(block, gradient, sums, sumsFrom)
    const { kernels, model, scratch } = this.context
    const { rows, count, scale } = block
    const { numActions } = model.actionValues!
    const values = this.policy.actionValues(rows.observation, 0, count)
    if (rows.actionMask.length > 0) kernels.maskLogits(values, rows.actionMask, count, numActions, 0)
    for (let row = 0; row < count; row++) {
      const own = values.subarray(row * numActions, (row + 1) * numActions)
      const chosen = rows.action[row]!
      const greatest = own.reduce((most, value) => Math.max(most, value), Number.NEGATIVE_INFINITY)
      const sum = own.reduce((total, value) => total + Math.exp(value - greatest), 0)
      for (const [k, value] of own.entries()) {
        const share = Math.exp(value - greatest) / sum
        scratch[row * numActions + k] = this.#weight * scale * (share - (k === chosen ? 1 : 0))
      }
      sums[sumsFrom + GAP] = sums[sumsFrom + GAP]! + greatest + Math.log(sum) - own[chosen]!
    }
    this.policy.differentiateValues(rows.observation, 0, scratch, count, gradient)
  }
}
