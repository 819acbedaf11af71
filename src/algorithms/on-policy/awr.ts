import { number } from '../../base/settings.ts'
import { rowLoss } from '../losses/row-loss.ts'
import { imitationLoss, imitationMetrics, imitationSettings } from './bc.ts'
import { defineOnPolicyAlgorithm, onPolicySettings } from './on-policy.ts'

const settings = {
  ...onPolicySettings({ learningRate: 1e-3, learningRateSchedule: 'constant' }),
  ...imitationSettings,
  temperature: number(1, 'β of the weights e^(advantage / β) of actions', { above: 0 }),
}

/**
 * Advantage-weighted regression (Peng, Kumar, Zhang, Levine 2019), for tables of another policy's rows (`trainer.learn`, `from=`): makes
 * recorded actions more likely by e^(advantage / β), and its critic learns their λ-returns. As in the authors' code, advantages have mean
 * 0 and deviation 1 over a minibatch, and weights are at most 20. Its weights are those of `ppo` and `a2c`, which can go on online.
 * @example for await (const { logprob } of trainer.learn(await readArrow('medium.arrow'), { epochs: 10 })) console.log(logprob)
 */
export const awr = defineOnPolicyAlgorithm({
  id: 'awr',
  module: import.meta.url,
  settings,
  metrics: imitationMetrics,
  needsTable: true, // Its own rows give it little to imitate.
  loss: rowLoss((columns, settings) => imitationLoss(columns, settings, 1 / settings.temperature)),
})
