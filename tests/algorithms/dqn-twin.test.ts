import { expect, test } from 'vitest'
import { dqn, qNetwork } from '../../src/entries/algorithms.ts'
import { drift, isLegal } from '../support/drift.ts'
import { holdToReplay, layersOf, type OffPolicyTwinSettings, type TwinBatch } from '../support/off-policy-twin.ts'

interface DqnTwinSettings extends OffPolicyTwinSettings {
  readonly double: boolean
  readonly huberDelta: number | null
  readonly explorationFinal: number
  readonly explorationFraction: number
}

const lossOf =
  (isDueling: boolean, isMasked: boolean) =>
  ({ rows, weights, target, parameters }: TwinBatch, { double, huberDelta }: DqnTwinSettings) => {
    const outputsOf = layersOf(parameters, 'values')
    const valuesOf = (at: readonly number[], seen: readonly number[]) => {
      const outputs = outputsOf(at, seen)
      if (!isDueling) return outputs
      const [advantages, value] = [outputs.slice(0, -1), outputs.at(-1)!]
      const mean = advantages.reduce((sum, each) => sum + each, 0) / advantages.length
      return advantages.map((each) => value + each - mean)
    }
    const targets = rows.map(({ next, return: sum, discount }) => {
      const [values, judged] = [valuesOf(target, next), valuesOf(double ? weights : target, next)]
      const legal = judged.map((_, a) => a).filter((a) => !isMasked || isLegal(next, a))
      const best = legal.reduce((best, a) => (judged[a]! > judged[best]! ? a : best))
      return sum + discount * values[best]!
    })
    const delta = huberDelta ?? Number.POSITIVE_INFINITY
    const meanOf = (each: (row: (typeof rows)[number], i: number) => number) =>
      rows.reduce((sum, row, i) => sum + each(row, i), 0) / rows.length
    const valueAt = (at: readonly number[], { observation, action }: (typeof rows)[number]) =>
      valuesOf(at, observation)[action[0]!]!
    const lossAt = (at: readonly number[]) =>
      meanOf((row, i) => {
        const size = Math.abs(targets[i]! - valueAt(at, row))
        return row.weight * (size <= delta ? size ** 2 / 2 : delta * (size - delta / 2))
      })
    const errors = rows.map((row, i) => Math.abs(targets[i]! - valueAt(weights, row)))
    const metrics = {
      tdLoss: lossAt(weights),
      tdError: meanOf((_, i) => errors[i]!),
      actionValue: meanOf((row) => valueAt(weights, row)),
    }
    return { lossAt, errors, metrics }
  }

const after = (
  weights: number[],
  { explorationFinal, explorationFraction }: DqnTwinSettings,
  progress: number,
  parameters: TwinBatch['parameters'],
) => {
  const { offset } = parameters.find(({ name }) => name === 'exploration')!
  weights[offset] = Math.max(explorationFinal, 1 - (progress / explorationFraction) * (1 - explorationFinal))
}

const settings = {
  ...{ gradientSteps: 3, batchSize: 70, replayRows: 66, learningStarts: 35, gamma: 0.8, targetInterval: 4 },
  ...{ learningRate: 0.02, maxGradNorm: 0.15, explorationFinal: 0.1, explorationFraction: 0.6, huberDelta: 0.7 },
}

const cases = [
  {
    name: 'by priority over three steps, double and dueling, with masks',
    given: {
      ...{ ...settings, nStep: 3, priorityExponent: 0.7, priorityCorrection: 0.3, learningRateSchedule: 'linear' },
      ...{ beta1: 0.8, beta2: 0.98, epsilon: 1e-3, weightDecay: 0.05, warmupFraction: 0.3 },
    },
    kind: 'masks',
    policy: { dueling: true },
    others: {
      ...{ gradientSteps: 2, batchSize: 69, replayRows: 71, learningStarts: 70, nStep: 2, priorityExponent: 0.6 },
      ...{ priorityCorrection: 0.2, targetRate: 0.9, targetInterval: 5, learningRate: 0.021, warmupFraction: 0.5 },
      ...{ learningRateSchedule: 'cosine', gamma: 0.79, maxGradNorm: 0.12, optimizer: 'rmsprop', beta1: 0.81 },
      ...{ beta2: 0.97, epsilon: 2e-3, weightDecay: 0.06, double: false, huberDelta: 0.6 },
      ...{ explorationFinal: 0.15, explorationFraction: 0.7 },
    },
  },
  {
    name: 'by one network, whose target follows slowly, with squares and momentum',
    given: {
      ...{ ...settings, double: false, huberDelta: null, targetRate: 0.3, targetInterval: 4, nStep: 2 },
      ...{ optimizer: 'sgd', momentum: 0.6, learningRate: 0.1, learningRateSchedule: 'cosine' },
    },
    kind: 'choices',
    policy: {},
    others: { momentum: 0.5, double: true, huberDelta: 1, priorityExponent: 0.3, learningRateSchedule: 'linear' },
  },
  {
    name: 'of observations at mean 0 and deviation 1, by priority with RMSprop',
    given: {
      ...settings,
      priorityExponent: 1.2,
      optimizer: 'rmsprop',
      momentum: 0.3,
      weightDecay: 0.1,
      learningRate: 0.004,
    },
    kind: 'choices',
    policy: { normalizeObservations: true },
    others: { momentum: 0.2, priorityCorrection: 0.5, weightDecay: 0 },
  },
] as const

test.each(cases)(
  'a run is what its definition says $name: weights, target, draws and every metric',
  async ({ given, kind, policy, others }) => {
    const network = qNetwork({ hidden: [4], activation: 'tanh', ...policy })
    const loss = lossOf('dueling' in policy, kind === 'masks')
    const twins = await holdToReplay(dqn, given, drift({ kind }), network, loss, after, others)
    // The case is one that tells: the replay's end is passed, a minibatch has several blocks, and gradients are clipped.
    expect(twins.at(-1)!.metrics.drawableRows).toBe(twins.at(-2)!.metrics.drawableRows)
    expect(twins.some(({ norms }) => norms.some((norm) => norm > given.maxGradNorm))).toBe(true)
    expect(twins.map(({ norms }) => norms.length)).toEqual([0, 3, 3, 3, 3, 3, 3, 3])
    if ('priorityExponent' in given) expect(new Set(twins.at(-1)!.weight.slice(64)).size).toBeGreaterThan(2)
  },
)
