/** A reference A2C in f64, by definition: one update from a rollout's rows and the weights before it. */
import type { Parameter } from '../../src/policies/policy.ts'
import {
  advantagesOf,
  gradientOf,
  networkOf,
  type Rollout,
  recordOf,
  type StepSettings,
  step,
  type TwinMoments,
  variance,
} from './on-policy-twin.ts'

export interface A2cTwinSettings extends StepSettings {
  readonly numSteps: number
  readonly gamma: number
  readonly gaeLambda: number
  readonly normalizeAdvantage: boolean
  readonly entropyCoef: number
  readonly valueCoef: number
  readonly maxGradNorm: number
}

/** The weights and metrics after an update on a rollout. `moments` are updated. */
export function a2cTwin(
  parameters: readonly Parameter[],
  before: ArrayLike<number>,
  rollout: Rollout,
  numLanes: number,
  settings: A2cTwinSettings,
  moments: TwinMoments,
) {
  const numRows = settings.numSteps * numLanes
  const evaluate = networkOf(parameters)
  const weights = Array.from(before)
  const { seen, action, value } = recordOf(evaluate, weights, rollout, numRows)
  const advantage = advantagesOf(rollout, value, numLanes, settings)
  const target = advantage.map((each, i) => each + value[i]!)
  const mean = advantage.reduce((sum, each) => sum + each, 0) / numRows
  const deviation = Math.sqrt((variance(advantage) * numRows) / (numRows - 1))
  const worth = settings.normalizeAdvantage ? advantage.map((each) => (each - mean) / (deviation + 1e-8)) : advantage
  const meansAt = (at: readonly number[]) => {
    const means = { policyLoss: 0, valueLoss: 0, entropy: 0 }
    for (let i = 0; i < numRows; i++) {
      const now = evaluate(at, seen[i]!)
      means.policyLoss -= (worth[i]! * now.logprobs[action[i]!]!) / numRows
      means.valueLoss += (now.value - target[i]!) ** 2 / 2 / numRows
      means.entropy += now.entropy / numRows
    }
    return means
  }
  const means = meansAt(weights)
  const gradient = gradientOf(weights, (at) => {
    const { policyLoss, valueLoss, entropy } = meansAt(at)
    return policyLoss + settings.valueCoef * valueLoss - settings.entropyCoef * entropy
  })
  const norm = Math.hypot(...gradient)
  const scale = norm > settings.maxGradNorm ? settings.maxGradNorm / norm : 1
  step(
    weights,
    gradient.map((each) => each * scale),
    settings,
    moments,
  )
  const metrics = {
    ...means,
    explainedVariance: 1 - variance(advantage) / variance(target),
    gradNorm: norm,
    learningRate: settings.learningRate,
  }
  return { weights, metrics, norms: [norm] }
}
