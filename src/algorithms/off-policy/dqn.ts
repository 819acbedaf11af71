import { InputError } from '../../base/errors.ts'
import { type Metrics, metric } from '../../base/metrics.ts'
import { boolean, fraction, optionalNumber, type SettingValues } from '../../base/settings.ts'
import type { ActionValuePolicy, Derivatives, Evaluated, ParameterViews } from '../../policies/policy.ts'
import type { LearnerShape } from '../algorithm.ts'
import {
  defineOffPolicyAlgorithm,
  type OffPolicyContext,
  type OffPolicyLoss,
  offPolicySettings,
  type ReplayedBlock,
} from './off-policy.ts'

/** The settings of DQN's loss. */
export const dqnSettings = {
  double: boolean(
    true,
    'double DQN: the online network chooses the next action and the target network values it; otherwise the target network does both',
  ),
  huberDelta: optionalNumber(
    1,
    'Huber loss: error above which the loss is linear; null: half the squared error everywhere',
    {
      above: 0,
    },
  ),
  explorationFinal: fraction(0.05, 'final probability of a random action; its initial value is 1'),
  explorationFraction: fraction(
    0.5,
    'fraction of totalSteps over which the probability of a random action falls linearly',
  ),
}

/** In the order of `TdSum`. */
export const dqnMetrics = {
  tdLoss: metric("weighted loss of a row's TD error", 'rowMean'),
  tdError: metric('absolute TD error of a row', 'rowMean'),
  actionValue: metric("value of a row's action", 'rowMean'),
} as const satisfies Metrics

/**
 * Deep Q-learning (Mnih et al. 2015), with double Q-learning (van Hasselt, Guez, Silver 2016), n-step returns (Sutton 1988, uncorrected
 * as in Rainbow: Hessel et al. 2018) and prioritized replay (Schaul et al. 2016), for a policy that outputs action values: `qNetwork`,
 * whose `dueling` is that of Wang et al. 2016. With action masks, only legal actions are chosen, and a state's value is that of its best
 * legal action.
 * @example dqn({ replayRows: 10_000, nStep: 3, priorityExponent: 0.6 })
 */
export const dqn = defineOffPolicyAlgorithm({
  id: 'dqn',
  module: import.meta.url,
  settings: { ...offPolicySettings(), ...dqnSettings },
  metrics: dqnMetrics,
  obeysMasks: true,
  check: (shape) => checkDqnPolicy('dqn', shape),
  loss: (parameters, context) => new DqnLoss(parameters, context),
})

/** @throws InputError for a policy without action values. */
export function checkDqnPolicy(id: string, { model }: LearnerShape): void {
  if (model.actionValues !== undefined) return
  throw new InputError(`${id} policy`, 'a policy without action values', 'a policy that outputs them: qNetwork')
}

export class DqnLoss implements OffPolicyLoss {
  readonly #parameters: SettingValues<typeof dqnSettings>
  protected readonly context: OffPolicyContext
  protected readonly policy: ActionValuePolicy
  readonly #target: ActionValuePolicy
  readonly #huberDelta: number
  /** The current block, and the position of its sums. */
  #block: ReplayedBlock | undefined
  #sums: Float64Array | undefined
  #sumsFrom = 0

  constructor(parameters: SettingValues<typeof dqnSettings>, context: OffPolicyContext) {
    this.#parameters = parameters
    this.context = context
    this.policy = context.policy as ActionValuePolicy
    this.#target = context.target as ActionValuePolicy
    this.#huberDelta = parameters.huberDelta ?? Number.POSITIVE_INFINITY
  }

  ofBlock(block: ReplayedBlock, gradient: ParameterViews, sums: Float64Array, sumsFrom: number): void {
    const { kernels, model } = this.context
    const { nextObservation, nextActionMask, nextValue, rows, count } = block
    const { numActions } = model.actionValues!
    const values = this.#target.actionValues(nextObservation, 0, count)
    const judged = this.#parameters.double ? this.policy.actionValues(nextObservation, 0, count) : values
    if (nextActionMask.length > 0) kernels.maskLogits(judged, nextActionMask, count, numActions, 0)
    kernels.valueOfBest(nextValue, values, judged, count, numActions, 0)
    this.#block = block
    this.#sums = sums
    this.#sumsFrom = sumsFrom
    this.policy.differentiate(rows, 0, count, this.#lossOf, gradient)
  }

  advance(progress: number): void {
    const { weights, model } = this.context
    const { explorationFinal, explorationFraction } = this.#parameters
    const fallen = explorationFraction === 0 ? 1 : Math.min(1, progress / explorationFraction)
    weights[model.actionValues!.exploration] = 1 - fallen * (1 - explorationFinal)
  }

  readonly #lossOf = ({ value }: Evaluated, { dValue }: Derivatives): void => {
    const block = this.#block!
    const { count, scale, error } = block
    this.context.kernels.tdLoss(
      dValue,
      error,
      this.#sums!,
      value,
      block,
      this.#huberDelta,
      scale,
      count,
      this.#sumsFrom,
    )
  }
}
