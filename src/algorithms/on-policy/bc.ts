import { metric } from '../../base/metrics.ts'
import { integer, number } from '../../base/settings.ts'
import { type RowLossColumns, rowLoss } from '../losses/row-loss.ts'
import { defineOnPolicyAlgorithm, onPolicySettings } from './on-policy.ts'

/** The settings of imitation by weights of actions, besides β and `onPolicySettings`. */
export const imitationSettings = {
  updateEpochs: integer(1, 'passes over each rollout', { min: 1 }),
  numMinibatches: integer(4, 'minibatches per pass', { min: 1 }),
  weightMax: number(20, 'upper bound of the weights of actions', { above: 0 }),
}

const settings = {
  ...onPolicySettings({ learningRate: 1e-3, learningRateSchedule: 'constant', gaeLambda: 1 }),
  ...imitationSettings,
  beta: number(0, 'β of the weights e^(β · advantage) of actions; 0: equal weights', { min: 0 }),
}

export const imitationMetrics = {
  policyLoss: metric('−log π of the recorded action, times its weight', 'rowMean', 'nats'),
  valueLoss: metric("half the squared error of a row's value", 'rowMean'),
  entropy: metric('entropy of the action distribution', 'rowMean', 'nats'),
  logprob: metric('log π of the recorded action', 'rowMean', 'nats'),
} as const

/** The loss of a row whose action has the weight e^(β · advantage), at most `weightMax`. */
export function imitationLoss(
  { logprob, entropy, value, advantage, return: returns }: RowLossColumns,
  { weightMax, valueCoef, entropyCoef }: Readonly<Record<'weightMax' | 'valueCoef' | 'entropyCoef', number>>,
  beta: number,
) {
  const weight = beta === 0 ? 1 : advantage.times(beta).exp().min(weightMax)
  const policyLoss = logprob.times(weight).negative()
  const valueLoss = value.minus(returns).square().times(0.5)
  const loss = policyLoss.plus(valueLoss.times(valueCoef)).minus(entropy.times(entropyCoef))
  return { loss, policyLoss, valueLoss, entropy, logprob }
}

/**
 * Behavior cloning: makes recorded actions more likely, for tables of another policy's rows (`trainer.learn`). With `beta` above 0 it is
 * advantage-weighted (MARWIL: Wang et al. 2018, "Exponentially Weighted Imitation Learning for Batched Historical Data"), and the critic
 * also learns the recorded returns.
 * @example for await (const { logprob } of trainer.learn(await readArrow('expert.arrow'), { epochs: 10 })) console.log(logprob)
 */
export const bc = defineOnPolicyAlgorithm({
  id: 'bc',
  module: import.meta.url,
  settings,
  metrics: imitationMetrics,
  needsTable: true, // Its own rows give it nothing to imitate.
  loss: rowLoss((columns, settings) => imitationLoss(columns, settings, settings.beta)),
})
