/**
 * A reference update on a rollout in f64, by definition: the network reads named parameters, advantages are summed lane
 * by lane, and optimizers follow their papers. Slow, so for tiny networks.
 */
import type { Columns } from '../../src/components/column.ts'
import type { RolloutPlan } from '../../src/components/rollout.ts'
import type { Parameter } from '../../src/policies/policy.ts'

/** The optimizer settings that twins know. */
export interface StepSettings {
  readonly learningRate: number
  readonly optimizer: string
  readonly momentum: number
  readonly beta1: number
  readonly beta2: number
  readonly weightDecay: number
  readonly epsilon: number
}

/** The optimizer's state between updates. */
export interface TwinMoments {
  first: number[]
  second: number[]
  steps: number
}

/** The rollout's columns. */
export type Rollout = Columns<RolloutPlan>

/** Two perceptrons with one tanh layer each, a softmax actor and a critic, by parameter name. */
export function networkOf(parameters: readonly Parameter[]) {
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

/** The policy's observations and actions in a rollout, with its outputs. */
export function recordOf(
  evaluate: ReturnType<typeof networkOf>,
  weights: readonly number[],
  rollout: Rollout,
  numRows: number,
) {
  const width = rollout.observation.length / numRows
  const seen = Array.from({ length: numRows }, (_, i) => [...rollout.observation.subarray(i * width, (i + 1) * width)])
  const action = Array.from(rollout.action)
  const old = seen.map((observation) => evaluate(weights, observation))
  return {
    seen,
    action,
    oldLogprob: old.map(({ logprobs }, i) => logprobs[action[i]!]!),
    value: old.map((each) => each.value),
  }
}

/** Generalized advantage estimates, row by row. */
export function advantagesOf(
  rollout: Rollout,
  value: readonly number[],
  numLanes: number,
  settings: { readonly numSteps: number; readonly gamma: number; readonly gaeLambda: number },
): number[] {
  const advantage = new Array<number>(value.length).fill(0)
  for (let n = 0; n < numLanes; n++) {
    let carried = 0
    for (let t = settings.numSteps - 1; t >= 0; t--) {
      const i = t * numLanes + n
      const ended = rollout.terminated[i] === 1 || rollout.truncated[i] === 1
      const isLast = t === settings.numSteps - 1
      // The final observation of a truncated episode is in no row: its value is the recorded one.
      const next = rollout.terminated[i] === 1 ? 0 : ended || isLast ? rollout.nextValue[i]! : value[i + numLanes]!
      const delta = rollout.reward[i]! + settings.gamma * next - value[i]!
      carried = delta + (ended || isLast ? 0 : settings.gamma * settings.gaeLambda * carried)
      advantage[i] = carried
    }
  }
  return advantage
}

/** Variance, with n in the denominator. */
export function variance(of: readonly number[]): number {
  const mean = of.reduce((sum, each) => sum + each, 0) / of.length
  return of.reduce((sum, each) => sum + (each - mean) ** 2, 0) / of.length
}

/** The gradient of a loss by each weight, as a difference quotient. */
export function gradientOf(weights: readonly number[], lossAt: (weights: readonly number[]) => number): number[] {
  return weights.map((_, k) => {
    const along = (move: number) => lossAt(weights.with(k, weights[k]! + move))
    return (along(1e-6) - along(-1e-6)) / 2e-6
  })
}

/** One step of AdamW, of RMSprop, or of stochastic gradient descent with momentum and decoupled weight decay. */
export function step(
  weights: number[],
  gradient: readonly number[],
  settings: StepSettings,
  moments: TwinMoments,
): void {
  const { learningRate, momentum, beta1, beta2, weightDecay, epsilon } = settings
  moments.steps++
  gradient.forEach((slope, k) => {
    const first = moments.first[k] ?? 0
    let direction: number
    if (settings.optimizer === 'adam') {
      moments.first[k] = beta1 * first + (1 - beta1) * slope
      moments.second[k] = beta2 * (moments.second[k] ?? 0) + (1 - beta2) * slope ** 2
      const size = Math.sqrt(moments.second[k]! / (1 - beta2 ** moments.steps))
      direction = moments.first[k]! / (1 - beta1 ** moments.steps) / (size + epsilon)
    } else if (settings.optimizer === 'rmsprop') {
      moments.second[k] = 0.99 * (moments.second[k] ?? 0) + 0.01 * slope ** 2
      moments.first[k] = momentum * first + slope / (Math.sqrt(moments.second[k]!) + epsilon)
      direction = moments.first[k]!
    } else {
      moments.first[k] = momentum * first + slope
      direction = moments.first[k]!
    }
    weights[k] = weights[k]! - learningRate * (direction + weightDecay * weights[k]!)
  })
}
