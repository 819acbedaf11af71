import { integer, number } from '../../base/settings.ts'
import { defineOffPolicyAlgorithm, offPolicySettings } from './off-policy.ts'
import { checkTd3Policy, Td3Loss, td3Metrics, td3Parts, td3Settings } from './td3.ts'

const { explorationNoise: _, ...losses } = td3Settings

const settings = {
  ...offPolicySettings({
    ...{ learningRate: 3e-4, batchSize: 256, targetRate: 0.005, targetInterval: 2, maxGradNorm: 1e6 },
  }),
  ...losses,
  gradientSteps: integer(1000, 'optimizer steps of the critics after each rollout of the table', { min: 1 }),
  alpha: number(2.5, 'α: weight of the critics’ values relative to the distance to recorded actions', { min: 0 }),
}

/**
 * TD3 with behavior cloning (Fujimoto, Gu 2021, "A Minimalist Approach to Offline Reinforcement Learning"), for `td3Network` and tables of
 * another policy's rows (`trainer.learn`, `from=`). The actor minimizes −α Q / mean |Q| + the mean squared distance of its actions, within
 * ±1, to the recorded ones; the mean is over a block of at most 64 rows of the minibatch, so that threads do not change it. Rows go into the
 * replay rollout by rollout, and each is followed by `gradientSteps`. The weights are TD3's, so that `td3` can go on online.
 * @example for await (const { actionValue } of trainer.learn(table, { epochs: 20 })) console.log(actionValue)
 */
export const td3bc = defineOffPolicyAlgorithm({
  id: 'td3bc',
  module: import.meta.url,
  settings,
  metrics: td3Metrics,
  needsTable: true, // Its actor stays near recorded actions: its own rows would only confirm it.
  ...td3Parts,
  check: (shape) => checkTd3Policy('td3bc', shape),
  loss: (parameters, context) => new Td3Loss({ ...parameters, explorationNoise: 0.1 }, context, parameters.alpha),
})
