import { type Metrics, metric } from '../../base/metrics.ts'
import type { SettingValues } from '../../base/settings.ts'
import type { A2cLossSettings } from '../../kernels/bind.ts'
import type { Kernels } from '../../kernels/kernels.ts'
import { stalenessSettings } from '../tokens/staleness.ts'
import { defineOnPolicyAlgorithm, type OnPolicyLoss, onPolicySettings } from './on-policy.ts'

const settings = {
  ...onPolicySettings({
    numSteps: 5,
    learningRate: 7e-4,
    learningRateSchedule: 'constant',
    gaeLambda: 1, // numSteps-step returns.
    normalizeAdvantage: false,
    valueCoef: 1,
    optimizer: 'rmsprop',
  }),
  ...stalenessSettings(),
}

/** In the order of `A2cSum`. */
const metrics = {
  policyLoss: metric('−A log π of a row', 'rowMean'),
  valueLoss: metric("half the squared error of a row's value", 'rowMean'),
  entropy: metric('entropy of the action distribution', 'rowMean', 'nats'),
} as const satisfies Metrics

/**
 * Advantage actor-critic: synchronous A3C (Mnih et al. 2016). One gradient step on the whole rollout. The defaults are those of
 * Stable-Baselines3 2.x (RMSprop with α = 0.99, as in PyTorch); its `vf_coef` 0.5 is `valueCoef` 1 here, since its value loss is not
 * halved. With `maxStaleness` above 0 it is IMPALA (Espeholt et al. 2018): actors collect during updates, corrected by V-trace.
 * @example a2c({ numSteps: 5, gamma: 0.99, entropyCoef: 0.01 })
 */
export const a2c = defineOnPolicyAlgorithm({ id: 'a2c', module: import.meta.url, settings, metrics, loss: a2cLossOf })

function a2cLossOf({ entropyCoef, valueCoef }: SettingValues<typeof settings>, kernels: Kernels): OnPolicyLoss {
  const numbers: { -readonly [name in keyof A2cLossSettings]: number } = {
    ...{ advantageMean: 0, advantageScale: 1, weight: 0 },
    ...{ entropyCoef, valueCoef },
  }
  return {
    ofRows(derivatives, sums, evaluated, recorded, minibatch, numRows, from, sumsFrom) {
      numbers.advantageMean = minibatch.advantageMean
      numbers.advantageScale = minibatch.advantageScale
      numbers.weight = minibatch.weight
      kernels.a2cLoss(derivatives, sums, evaluated, recorded, numbers, numRows, from, sumsFrom)
    },
  }
}
