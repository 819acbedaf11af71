import { expect, test } from 'vitest'
import { boxMuller, philox4x32, Stream } from '../../src/base/random.ts'
import { td3, td3Network } from '../../src/entries/algorithms.ts'
import { BOUNDS, drift } from '../support/drift.ts'
import { holdToReplay, layersOf, type OffPolicyTwinSettings, type TwinBatch } from '../support/off-policy-twin.ts'

interface Td3TwinSettings extends OffPolicyTwinSettings {
  readonly policyDelay: number
  readonly explorationNoise: number
  readonly targetNoise: number
  readonly targetNoiseClip: number
}

const WIDTH = 2

function lossOf(batch: TwinBatch, { targetNoise, targetNoiseClip }: Td3TwinSettings) {
  const { rows, weights, target, step, key0, key1, parameters } = batch
  const critics = (['critic0', 'critic1'] as const).map((name) => layersOf(parameters, name))
  const outputs = layersOf(parameters, 'actor')
  const actor = (at: readonly number[], seen: readonly number[]) => outputs(at, seen).map(Math.tanh)
  const cut = (x: number, most: number) => Math.max(-most, Math.min(most, x))
  const targets = rows.map(({ next, return: sum, discount }, row) => {
    const words = new Uint32Array(4)
    philox4x32(words, row, step, 1, Stream.replay, key0, key1)
    const noisy = actor(target, next).map((a, k) =>
      cut(a + cut(targetNoise * boxMuller(words[0]!, words[1]!, k), targetNoiseClip), 1),
    )
    return sum + discount * Math.min(...critics.map((critic) => critic(target, next, noisy)[0]!))
  })
  const meanOf = (each: (row: number) => number) => rows.reduce((sum, _, row) => sum + each(row), 0) / rows.length
  const seenIn = (row: number) => rows[row]!.observation
  const taken = rows.map(({ action }) =>
    action.map((each, k) => (2 * (each - BOUNDS.low[k]!)) / (BOUNDS.high[k]! - BOUNDS.low[k]!) - 1),
  )
  const valueAt = (at: readonly number[], critic: number, row: number) =>
    critics[critic]!(at, seenIn(row), taken[row]!)[0]!
  const criticAt = (at: readonly number[], critic: number) =>
    meanOf((row) => rows[row]!.weight * (targets[row]! - valueAt(at, critic, row)) ** 2)
  const actorAt = (at: readonly number[]) =>
    meanOf((row) => -critics[0]!(weights, seenIn(row), actor(at, seenIn(row)))[0]!)
  const lossAt = (at: readonly number[], parameter: string) =>
    parameter.startsWith('actor') ? actorAt(at) : criticAt(at, parameter.startsWith('critic0') ? 0 : 1)
  const values = rows.map((_, row) => [valueAt(weights, 0, row), valueAt(weights, 1, row)])
  const errors = values.map((each, row) => each.reduce((sum, value) => sum + Math.abs(targets[row]! - value) / 2, 0))
  const metrics = {
    criticLoss: criticAt(weights, 0) + criticAt(weights, 1),
    actorLoss: actorAt(weights),
    tdError: meanOf((row) => errors[row]!),
    actionValue: meanOf((row) => Math.min(...values[row]!)),
  }
  return { lossAt, errors, metrics }
}

/** Actor and critics have moments and norms of their own; the actor steps with the critics' new weights. */
const stagesOf = ({ policyDelay }: Td3TwinSettings) => [
  { names: ['critic0', 'critic1'], interval: 1, metrics: ['criticLoss', 'tdError', 'actionValue'] },
  { names: ['actor'], interval: policyDelay, metrics: ['actorLoss'] },
]

const settings = {
  ...{ gradientSteps: 2, batchSize: 70, replayRows: 66, learningStarts: 35, gamma: 0.8, learningRate: 0.01 },
  ...{ targetRate: 0.2, maxGradNorm: 1.1, targetNoise: 0.3, targetNoiseClip: 0.4 },
}

const cases = [
  {
    name: 'by priority over three steps',
    given: {
      ...{ ...settings, nStep: 3, priorityExponent: 0.7, priorityCorrection: 0.3, learningRateSchedule: 'linear' },
      ...{ beta1: 0.8, beta2: 0.98, epsilon: 1e-3, weightDecay: 0.05, warmupFraction: 0.3, targetInterval: 3 },
    },
    policy: {},
    others: {
      ...{ gradientSteps: 1, batchSize: 69, replayRows: 71, learningStarts: 70, nStep: 2, priorityExponent: 0.6 },
      ...{ priorityCorrection: 0.2, targetRate: 0.3, targetInterval: 2, learningRate: 0.011, warmupFraction: 0.5 },
      ...{ learningRateSchedule: 'cosine', gamma: 0.79, maxGradNorm: 1, optimizer: 'rmsprop', beta1: 0.81 },
      ...{ beta2: 0.97, epsilon: 2e-3, weightDecay: 0.06, policyDelay: 1, targetNoise: 0.2, targetNoiseClip: 0.2 },
      explorationNoise: 0.2,
    },
  },
  {
    name: 'with observations at mean 0 and deviation 1, momentum and a longer delay',
    given: { ...settings, nStep: 2, policyDelay: 3, optimizer: 'sgd', momentum: 0.6, learningRate: 0.05 },
    policy: { normalizeObservations: true },
    others: { momentum: 0.5, targetRate: 1, policyDelay: 2 },
  },
] as const

test.each(cases)(
  'a run is what its definition says $name: weights, target, draws and every metric',
  async ({ given, policy, others }) => {
    const network = td3Network({ hidden: [3], activation: 'tanh', ...policy })
    const environment = drift({ kind: 'numbers' })
    const explore = (
      weights: number[],
      { explorationNoise }: Td3TwinSettings,
      _: number,
      parameters: readonly { readonly name: string; readonly offset: number }[],
      gradientSteps: number,
    ) => {
      const { offset } = parameters.find(({ name }) => name === 'exploration')!
      weights.splice(offset, WIDTH, gradientSteps === 0 ? 1 : 0, explorationNoise)
    }
    const twins = await holdToReplay(td3, given, environment, network, lossOf, explore, others, stagesOf)
    // The case is one that tells: the replay's end is passed, a minibatch has several blocks, and gradients are clipped.
    expect(twins.at(-1)!.metrics.drawableRows).toBe(twins.at(-2)!.metrics.drawableRows)
    expect(twins.some(({ norms }) => norms.some((norm) => norm > given.maxGradNorm))).toBe(true)
    if ('priorityExponent' in given) expect(new Set(twins.at(-1)!.weight.slice(64)).size).toBeGreaterThan(2)
  },
)
