import { expect, test } from 'vitest'
import { ppo } from '../../src/index.ts'
import { holdToTwin } from '../support/beside-twin.ts'
import { ppoTwin, type TwinSettings } from '../support/ppo-twin.ts'

type PpoSettings = NonNullable<Parameters<typeof ppo>[0]>

const cases: [string, PpoSettings, number[], number[]][] = [
  [
    'with every clip at work',
    {
      updateEpochs: 3,
      numMinibatches: 2,
      learningRate: 0.03,
      clipCoef: 0.005,
      clipValue: 0.05,
      entropyCoef: 0.03,
      valueCoef: 0.7,
      maxGradNorm: 0.3,
      gamma: 0.9,
      gaeLambda: 0.8,
      weightDecay: 0.05,
    },
    [0.03, 0.02, 0.01],
    [0.005, 0.005, 0.005],
  ],
  [
    'by stochastic gradient descent, with advantages as they are and schedules of both kinds',
    {
      updateEpochs: 2,
      numMinibatches: 2,
      learningRate: 0.2,
      learningRateSchedule: 'cosine',
      warmupFraction: 1 / 3,
      clipCoef: 0.06,
      clipCoefSchedule: 'linear',
      normalizeAdvantage: false,
      optimizer: 'sgd',
      momentum: 0.5,
      weightDecay: 0.1,
      maxGradNorm: 1.5,
      targetKl: 3e-4,
    },
    [0.2, 0.2, 0.1],
    [0.06, 0.04, 0.02],
  ],
]

test.each(cases)(
  'an update is what its definition says %s: weights and every metric',
  async (_, settings, rates, clips) => {
    const seen = await holdToTwin(ppo, settings, ({ shuffle, ...inputs }) => {
      const { parameters, before, rollout, numLanes, moments } = inputs
      const { update } = shuffle
      const all = inputs.settings as unknown as TwinSettings
      const resolved = { ...all, learningRate: rates[update]!, clipCoef: clips[update]! }
      return ppoTwin(parameters, before, rollout, numLanes, resolved, moments, shuffle)
    })
    // The case is one that tells: clips are at work, and norms are above theirs.
    const { maxGradNorm } = settings
    expect(seen.some(({ metrics }) => metrics.clipFraction! > 0.01 && metrics.clipFraction! < 0.9)).toBe(true)
    expect(seen.some(({ twin }) => twin.norms.some((norm) => norm > Number(maxGradNorm)))).toBe(true)
    const passes = seen.map(({ twin }) => twin.epochs)
    if (settings.targetKl !== undefined) expect(new Set(passes).size).toBeGreaterThan(1)
  },
)
