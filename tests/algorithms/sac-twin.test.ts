import { expect, test } from 'vitest'
import { boxMuller, philox4x32, Stream } from '../../src/base/random.ts'
import { sac, sacNetwork } from '../../src/entries/algorithms.ts'
import { BOUNDS, drift } from '../support/drift.ts'
import { holdToReplay, layersOf, type OffPolicyTwinSettings, type TwinBatch } from '../support/off-policy-twin.ts'

interface SacTwinSettings extends OffPolicyTwinSettings {
  readonly temperature: number | null
  readonly targetEntropy: number | null
}

const WIDTH = 2
const CRITICS = ['critic0', 'critic1'] as const

function lossOf(batch: TwinBatch, { temperature, targetEntropy }: SacTwinSettings) {
  const { rows, weights, target, step, key0, key1, parameters } = batch
  const actor = layersOf(parameters, 'actor')
  const critics = CRITICS.map((name) => layersOf(parameters, name))
  const logTemperature = parameters.find(({ name }) => name === 'logTemperature')!.offset
  const alpha = temperature ?? Math.exp(weights[logTemperature]!)
  const normals = [1, 2].map((use) =>
    rows.map((_, row) => {
      const words = new Uint32Array(4)
      philox4x32(words, row, step, use, Stream.replay, key0, key1)
      return [0, 1].map((part) => boxMuller(words[0]!, words[1]!, part))
    }),
  )
  /** An action drawn anew, within ±1, and its log-probability: the density of the Gaussian over the slope of tanh. */
  const drawn = (at: readonly number[], seen: readonly number[], row: number, use: number) => {
    const outputs = actor(at, seen)
    let logprob = 0
    const unit = Array.from({ length: WIDTH }, (_, k) => {
      const normal = normals[use - 1]![row]![k]!
      const deviation = Math.exp(Math.min(2, Math.max(-20, outputs[WIDTH + k]!)))
      const a = Math.tanh(outputs[k]! + deviation * normal)
      const density = Math.exp(-(normal ** 2) / 2) / (deviation * Math.sqrt(2 * Math.PI)) / (1 - a * a)
      logprob += Math.log(density)
      return a
    })
    return { unit, logprob }
  }
  const least = (at: readonly number[], seen: readonly number[], unit: readonly number[]) =>
    Math.min(...critics.map((critic) => critic(at, seen, unit)[0]!))
  const taken = rows.map(({ action }) =>
    action.map((each, k) => (2 * (each - BOUNDS.low[k]!)) / (BOUNDS.high[k]! - BOUNDS.low[k]!) - 1),
  )
  const targets = rows.map(({ next, return: sum, discount }, row) => {
    const { unit, logprob } = drawn(weights, next, row, 1)
    return sum + discount * (least(target, next, unit) - alpha * logprob)
  })
  const meanOf = (each: (row: number) => number) => rows.reduce((sum, _, row) => sum + each(row), 0) / rows.length
  const seenIn = (row: number) => rows[row]!.observation
  const own = rows.map(({ observation }, row) => drawn(weights, observation, row, 2))
  const actorAt = (at: readonly number[]) =>
    meanOf((row) => {
      const { unit, logprob } = drawn(at, seenIn(row), row, 2)
      return alpha * logprob - least(weights, seenIn(row), unit)
    })
  const deltaAt = (at: readonly number[], critic: 0 | 1, row: number) =>
    targets[row]! - critics[critic]!(at, seenIn(row), taken[row]!)[0]!
  const criticAt = (at: readonly number[], critic: 0 | 1) =>
    meanOf((row) => (rows[row]!.weight * deltaAt(at, critic, row) ** 2) / 2)
  const entropy = meanOf((row) => -own[row]!.logprob)
  const lossAt = (at: readonly number[], parameter: string) => {
    if (parameter.startsWith('actor')) return actorAt(at)
    if (parameter.startsWith('critic0')) return criticAt(at, 0)
    if (parameter.startsWith('critic1')) return criticAt(at, 1)
    return temperature === null ? at[logTemperature]! * (entropy - (targetEntropy ?? -WIDTH)) : 0
  }
  const errors = rows.map((_, row) => (Math.abs(deltaAt(weights, 0, row)) + Math.abs(deltaAt(weights, 1, row))) / 2)
  const metrics = {
    criticLoss: criticAt(weights, 0) + criticAt(weights, 1),
    actorLoss: actorAt(weights),
    tdError: meanOf((row) => errors[row]!),
    actionValue: meanOf((row) => least(weights, seenIn(row), taken[row]!)),
    entropy,
    temperature: alpha,
  }
  return { lossAt, errors, metrics }
}

const settings = {
  ...{ gradientSteps: 2, batchSize: 70, replayRows: 66, learningStarts: 35, gamma: 0.8, learningRate: 0.01 },
  ...{ targetRate: 0.2, maxGradNorm: 1.1 },
}

const cases = [
  {
    name: 'by priority over three steps, with a temperature that is learned',
    given: {
      ...{ ...settings, nStep: 3, priorityExponent: 0.7, priorityCorrection: 0.3, learningRateSchedule: 'linear' },
      ...{ beta1: 0.8, beta2: 0.98, epsilon: 1e-3, weightDecay: 0.05, warmupFraction: 0.3, targetEntropy: -0.7 },
      targetInterval: 3,
    },
    policy: {},
    others: {
      ...{ gradientSteps: 1, batchSize: 69, replayRows: 71, learningStarts: 70, nStep: 2, priorityExponent: 0.6 },
      ...{ priorityCorrection: 0.2, targetRate: 0.3, targetInterval: 2, learningRate: 0.011, warmupFraction: 0.5 },
      ...{ learningRateSchedule: 'cosine', gamma: 0.79, maxGradNorm: 1, optimizer: 'rmsprop', beta1: 0.81 },
      ...{ beta2: 0.97, epsilon: 2e-3, weightDecay: 0.06, temperature: 1, targetEntropy: null },
    },
  },
  {
    name: 'with a temperature that stands, observations at mean 0 and deviation 1, and momentum',
    given: { ...settings, nStep: 2, temperature: 0.3, optimizer: 'sgd', momentum: 0.6, learningRate: 0.05 },
    policy: { normalizeObservations: true },
    others: { temperature: 0.2, momentum: 0.5, targetRate: 1, targetInterval: 2 },
  },
] as const

test.each(cases)(
  'a run is what its definition says $name: weights, target, draws and every metric',
  async ({ given, policy, others }) => {
    const network = sacNetwork({ hidden: [3], activation: 'tanh', ...policy })
    const environment = drift({ kind: 'numbers' })
    const twins = await holdToReplay(sac, given, environment, network, lossOf, undefined, others)
    // The case is one that tells: the replay's end is passed, a minibatch has several blocks, and gradients are clipped.
    expect(twins.at(-1)!.metrics.drawableRows).toBe(twins.at(-2)!.metrics.drawableRows)
    expect(twins.some(({ norms }) => norms.some((norm) => norm > given.maxGradNorm))).toBe(true)
    expect(twins.map(({ norms }) => norms.length)).toEqual([0, 2, 2, 2, 2, 2, 2, 2])
    if ('priorityExponent' in given) expect(new Set(twins.at(-1)!.weight.slice(64)).size).toBeGreaterThan(2)
  },
)
