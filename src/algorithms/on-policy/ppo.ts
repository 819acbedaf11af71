import { type Metrics, metric } from '../../base/metrics.ts'
import { choice, integer, number, optionalNumber, type SettingValues } from '../../base/settings.ts'
import { type PpoLossSettings, PpoSum } from '../../kernels/bind.ts'
import type { Kernels } from '../../kernels/kernels.ts'
import { scheduleFactor, schedules } from '../schedule.ts'
import { stalenessSettings } from '../tokens/staleness.ts'
import { defineOnPolicyAlgorithm, type OnPolicyLoss, onPolicySettings } from './on-policy.ts'

const settings = {
  ...onPolicySettings(),
  updateEpochs: integer(4, 'passes over each rollout', { min: 1 }),
  numMinibatches: integer(4, 'minibatches per pass', { min: 1 }),
  clipCoef: number(0.2, 'ε: how far the ratio of probabilities may move from 1', { above: 0 }),
  clipCoefSchedule: choice(
    'constant',
    schedules,
    'how clipCoef falls to 0 over totalSteps; constant: it does not change',
  ),
  clipValue: optionalNumber(null, 'how far a value may move from the old one; null: no bound', { above: 0 }),
  targetKl: optionalNumber(null, 'stop an update after the pass whose mean approxKl is above this; null: never', {
    above: 0,
  }),
  ...stalenessSettings(),
}

/** In the order of `PpoSum`. */
const metrics = {
  policyLoss: metric('clipped surrogate of a row', 'rowMean'),
  valueLoss: metric("half the squared error of a row's value", 'rowMean'),
  entropy: metric('entropy of the action distribution', 'rowMean', 'nats'),
  approxKl: metric("KL(old ‖ new) by Schulman's k3", 'rowMean', 'nats'),
  clipFraction: metric('fraction of the rows whose ratio was outside the clip range', 'rowMean'),
} as const satisfies Metrics

/**
 * Proximal policy optimization (Schulman, Wolski, Dhariwal, Radford, Klimov 2017) with generalized advantage estimation, minibatches in
 * keyed order and Adam (or another optimizer). Details follow Huang et al., "The 37 Implementation Details of PPO" (2022). With
 * `maxStaleness` above 0 it is decoupled PPO (Hilton et al. 2021): the clip is relative to the weights before the update, and advantages
 * are weighted by the ratio of these weights' probabilities to the older ones'.
 * @example ppo({ numSteps: 128, gamma: 0.99, gaeLambda: 0.95, clipCoef: 0.2 })
 */
export const ppo = defineOnPolicyAlgorithm({ id: 'ppo', module: import.meta.url, settings, metrics, loss: ppoLossOf })

function ppoLossOf(parameters: SettingValues<typeof settings>, kernels: Kernels): OnPolicyLoss {
  const { clipCoef, clipCoefSchedule, entropyCoef, valueCoef, targetKl } = parameters
  const clipValue = parameters.clipValue ?? Number.POSITIVE_INFINITY
  const numbers: { -readonly [name in keyof PpoLossSettings]: number } = {
    ...{ advantageMean: 0, advantageScale: 1, weight: 0 },
    ...{ clipCoef, clipValue, entropyCoef, valueCoef },
  }
  return {
    begin(update, numUpdates) {
      numbers.clipCoef = clipCoef * scheduleFactor(clipCoefSchedule, 0, update, numUpdates)
    },
    ofRows(derivatives, sums, evaluated, recorded, minibatch, numRows, from, sumsFrom) {
      numbers.advantageMean = minibatch.advantageMean
      numbers.advantageScale = minibatch.advantageScale
      numbers.weight = minibatch.weight
      kernels.ppoLoss(derivatives, sums, evaluated, recorded, numbers, numRows, from, sumsFrom)
    },
    shader: async () => (await import('../../kernels/webgpu/losses.ts')).ppoShader(PpoSum, numbers),
    stopsAfter: (sums, numRows) => targetKl !== null && sums[PpoSum.approxKl]! / numRows > targetKl,
  }
}
