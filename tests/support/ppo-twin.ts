/** A reference PPO in f64, by definition: one update from a rollout's rows and the weights before it. */
import { shuffleRows } from '../../src/kernels/rollout/rows.ts'
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

export interface TwinSettings extends StepSettings {
  readonly numSteps: number
  readonly gamma: number
  readonly gaeLambda: number
  readonly updateEpochs: number
  readonly numMinibatches: number
  readonly normalizeAdvantage: boolean
  readonly clipCoef: number
  readonly clipValue: number | null
  readonly entropyCoef: number
  readonly valueCoef: number
  readonly maxGradNorm: number
  readonly targetKl: number | null
}

/** The weights and metrics after an update on a rollout. `moments` are updated. */
export function ppoTwin(
  parameters: readonly Parameter[],
  before: ArrayLike<number>,
  rollout: Rollout,
  numLanes: number,
  settings: TwinSettings,
  moments: TwinMoments,
  shuffle: { readonly update: number; readonly key0: number; readonly key1: number },
  estimate?: (value: readonly number[], logprob: readonly number[]) => { advantage: number[]; target: number[] },
) {
  const numRows = settings.numSteps * numLanes
  const evaluate = networkOf(parameters)
  const weights = Array.from(before)
  const { seen, action, oldLogprob, value } = recordOf(evaluate, weights, rollout, numRows)
  const estimated = estimate?.(value, oldLogprob)
  const advantage = estimated?.advantage ?? advantagesOf(rollout, value, numLanes, settings)
  const target = estimated?.target ?? advantage.map((each, i) => each + value[i]!)

  /** The sums over some rows, with advantages normalized among them. */
  const sumsOf = (rows: readonly number[], at: readonly number[]) => {
    const some = rows.map((i) => advantage[i]!)
    const mean = some.reduce((sum, each) => sum + each, 0) / some.length
    const deviation = Math.sqrt(some.reduce((sum, each) => sum + (each - mean) ** 2, 0) / (some.length - 1))
    const sums = { policyLoss: 0, valueLoss: 0, entropy: 0, approxKl: 0, clipped: 0 }
    for (const i of rows) {
      const now = evaluate(at, seen[i]!)
      const ratio = Math.exp(now.logprobs[action[i]!]! - oldLogprob[i]!)
      const worth = settings.normalizeAdvantage ? (advantage[i]! - mean) / (deviation + 1e-8) : advantage[i]!
      const clipped = Math.min(1 + settings.clipCoef, Math.max(1 - settings.clipCoef, ratio))
      const bound = settings.clipValue ?? Number.POSITIVE_INFINITY
      const near = value[i]! + Math.min(bound, Math.max(-bound, now.value - value[i]!))
      sums.policyLoss += Math.max(-worth * ratio, -worth * clipped)
      sums.valueLoss += 0.5 * Math.max((now.value - target[i]!) ** 2, (near - target[i]!) ** 2)
      sums.entropy += now.entropy
      sums.approxKl += ratio - 1 - Math.log(ratio)
      if (ratio < 1 - settings.clipCoef || ratio > 1 + settings.clipCoef) sums.clipped++
    }
    return sums
  }
  const lossOf = (rows: readonly number[], at: readonly number[]) => {
    const { policyLoss, valueLoss, entropy } = sumsOf(rows, at)
    return (policyLoss + settings.valueCoef * valueLoss - settings.entropyCoef * entropy) / rows.length
  }

  const total = { policyLoss: 0, valueLoss: 0, entropy: 0, approxKl: 0, clipped: 0 }
  const order = Uint32Array.from({ length: numRows }, (_, i) => i)
  const norms: number[] = []
  let counted = 0
  for (let epoch = 0; epoch < settings.updateEpochs; epoch++) {
    shuffleRows(order, new Uint32Array(4), numRows, shuffle.update, epoch, shuffle.key0, shuffle.key1)
    let epochKl = 0
    for (let m = 0; m < settings.numMinibatches; m++) {
      const [from, to] = [m, m + 1].map((each) => Math.floor((each * numRows) / settings.numMinibatches))
      const rows = Array.from(order.subarray(from, to))
      const sums = sumsOf(rows, weights)
      for (const key of Object.keys(total) as (keyof typeof total)[]) total[key] += sums[key]
      epochKl += sums.approxKl
      counted += rows.length
      const gradient = gradientOf(weights, (at) => lossOf(rows, at))
      const norm = Math.hypot(...gradient)
      norms.push(norm)
      const scale = norm > settings.maxGradNorm ? settings.maxGradNorm / norm : 1
      step(
        weights,
        gradient.map((each) => each * scale),
        settings,
        moments,
      )
    }
    if (settings.targetKl !== null && epochKl / numRows > settings.targetKl) break
  }
  const metrics = {
    policyLoss: total.policyLoss / counted,
    valueLoss: total.valueLoss / counted,
    entropy: total.entropy / counted,
    approxKl: total.approxKl / counted,
    clipFraction: total.clipped / counted,
    explainedVariance: 1 - variance(target.map((each, i) => each - value[i]!)) / variance(target),
    gradNorm: norms.reduce((sum, each) => sum + each, 0) / norms.length,
    learningRate: settings.learningRate,
  }
  return { weights, metrics, epochs: norms.length / settings.numMinibatches, norms }
}
