/**
 * PPO once more, in f64 and by definition: what an update makes of a rollout, from the rollout's rows and the weights before
 * it. The network is read off its named parameters; the gradient is a difference quotient. Slow, so for tiny networks.
 */
import type { Columns } from '../../src/components/column.ts'
import type { RolloutPlan } from '../../src/components/rollout.ts'
import { shuffleRows } from '../../src/kernels/rollout/rows.ts'
import type { Parameter } from '../../src/policies/policy.ts'

/** The settings of PPO that say what a step is; those of the optimizer beside them. */
export interface TwinSettings {
  readonly numSteps: number
  readonly learningRate: number
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
  readonly optimizer: string
  readonly momentum: number
  readonly weightDecay: number
}

/** What the optimizer carries from one update to the next. */
export interface TwinMoments {
  first: number[]
  second: number[]
  steps: number
}

type Rollout = Columns<RolloutPlan>

/** Two perceptrons of one tanh layer each, an actor with a softmax and a critic, by the names of their parameters. */
function networkOf(parameters: readonly Parameter[]) {
  const layerOf = (name: string) => {
    const weight = parameters.find((each) => each.name === `${name}.weight`)!
    const bias = parameters.find((each) => each.name === `${name}.bias`)!
    const [numInputs, numOutputs] = weight.shape as [number, number]
    return (weights: readonly number[], input: readonly number[]): number[] => {
      const outputs: number[] = []
      for (let j = 0; j < numOutputs; j++) {
        let sum = weights[bias.offset + j]!
        for (let i = 0; i < numInputs; i++) sum += input[i]! * weights[weight.offset + i * numOutputs + j]!
        outputs.push(sum)
      }
      return outputs
    }
  }
  const [actor, actorHead] = [layerOf('actor.0'), layerOf('actor.head')]
  const [critic, criticHead] = [layerOf('critic.0'), layerOf('critic.head')]
  return (weights: readonly number[], observation: readonly number[]) => {
    const logits = actorHead(weights, actor(weights, observation).map(Math.tanh))
    const [value] = criticHead(weights, critic(weights, observation).map(Math.tanh))
    const top = Math.max(...logits)
    const total = top + Math.log(logits.reduce((sum, logit) => sum + Math.exp(logit - top), 0))
    const logprobs = logits.map((logit) => logit - total)
    return { logprobs, entropy: -logprobs.reduce((sum, each) => sum + Math.exp(each) * each, 0), value: value! }
  }
}

/** What an update makes of a rollout: the weights after it, and its metrics. `moments` go on. */
export function ppoTwin(
  parameters: readonly Parameter[],
  before: ArrayLike<number>,
  rollout: Rollout,
  numLanes: number,
  settings: TwinSettings,
  moments: TwinMoments,
  shuffle: { readonly update: number; readonly key0: number; readonly key1: number },
) {
  const numRows = settings.numSteps * numLanes
  const evaluate = networkOf(parameters)
  const weights = Array.from(before)
  const width = rollout.observation.length / numRows
  const rowOf = (i: number) => Array.from(rollout.observation.subarray(i * width, (i + 1) * width))
  const seen = Array.from({ length: numRows }, (_, i) => rowOf(i))
  const action = Array.from(rollout.action)
  const old = seen.map((observation) => evaluate(weights, observation))
  const oldLogprob = old.map(({ logprobs }, i) => logprobs[action[i]!]!)
  const value = old.map((each) => each.value)

  const advantage = new Array<number>(numRows).fill(0)
  for (let n = 0; n < numLanes; n++) {
    let carried = 0
    for (let t = settings.numSteps - 1; t >= 0; t--) {
      const i = t * numLanes + n
      const ended = rollout.terminated[i] === 1 || rollout.truncated[i] === 1
      const isLast = t === settings.numSteps - 1
      // What a lane saw last, in an episode that was cut off, is in no row: its value is the recorded one.
      const next = rollout.terminated[i] === 1 ? 0 : ended || isLast ? rollout.nextValue[i]! : value[i + numLanes]!
      const delta = rollout.reward[i]! + settings.gamma * next - value[i]!
      carried = delta + (ended || isLast ? 0 : settings.gamma * settings.gaeLambda * carried)
      advantage[i] = carried
    }
  }
  const target = advantage.map((each, i) => each + value[i]!)

  /** The sums over some rows, with advantages normalised among them. */
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
      const gradient = weights.map((_, k) => {
        const along = (move: number) => lossOf(rows, weights.with(k, weights[k]! + move))
        return (along(1e-6) - along(-1e-6)) / 2e-6
      })
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
  const variance = (of: readonly number[]) => {
    const mean = of.reduce((sum, each) => sum + each, 0) / of.length
    return of.reduce((sum, each) => sum + (each - mean) ** 2, 0) / of.length
  }
  const metrics = {
    policyLoss: total.policyLoss / counted,
    valueLoss: total.valueLoss / counted,
    entropy: total.entropy / counted,
    approxKl: total.approxKl / counted,
    clipFraction: total.clipped / counted,
    explainedVariance: 1 - variance(advantage) / variance(target),
    gradNorm: norms.reduce((sum, each) => sum + each, 0) / norms.length,
    learningRate: settings.learningRate,
  }
  return { weights, metrics, epochs: norms.length / settings.numMinibatches, norms }
}

/** One step of AdamW, or of stochastic gradient descent with momentum and decoupled weight decay. */
function step(weights: number[], gradient: readonly number[], settings: TwinSettings, moments: TwinMoments): void {
  const { learningRate, momentum, weightDecay } = settings
  moments.steps++
  gradient.forEach((slope, k) => {
    const first = moments.first[k] ?? 0
    let direction: number
    if (settings.optimizer === 'adam') {
      moments.first[k] = 0.9 * first + 0.1 * slope
      moments.second[k] = 0.999 * (moments.second[k] ?? 0) + 0.001 * slope ** 2
      const size = Math.sqrt(moments.second[k]! / (1 - 0.999 ** moments.steps))
      direction = moments.first[k]! / (1 - 0.9 ** moments.steps) / (size + 1e-5)
    } else {
      moments.first[k] = momentum * first + slope
      direction = moments.first[k]!
    }
    weights[k] = weights[k]! - learningRate * (direction + weightDecay * weights[k]!)
  })
}
