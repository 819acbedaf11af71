import { expect, test } from 'vitest'
import { a2c } from '../../src/index.ts'
import { type A2cTwinSettings, a2cTwin } from '../support/a2c-twin.ts'
import { holdToTwin } from '../support/beside-twin.ts'

type A2cSettings = NonNullable<Parameters<typeof a2c>[0]>

const cases: [string, A2cSettings, number[]][] = [
  [
    'by RMSprop, with the gradient clipped',
    { learningRate: 0.02, entropyCoef: 0.03, valueCoef: 0.7, maxGradNorm: 0.3, gamma: 0.9, gaeLambda: 0.8 },
    [0.02, 0.02, 0.02],
  ],
  [
    'with normalized advantages, momentum, weight decay and a schedule',
    {
      learningRate: 0.03,
      learningRateSchedule: 'linear',
      normalizeAdvantage: true,
      momentum: 0.5,
      weightDecay: 0.1,
      epsilon: 1e-3,
      entropyCoef: 0.2,
    },
    [0.03, 0.02, 0.01],
  ],
  ['by Adam', { learningRate: 0.03, optimizer: 'adam', weightDecay: 0.05, maxGradNorm: 0.4 }, [0.03, 0.03, 0.03]],
]

test.each(cases)('an update is what its definition says %s: weights and every metric', async (_, settings, rates) => {
  const seen = await holdToTwin(a2c, settings, ({ shuffle, ...inputs }) => {
    const { parameters, before, rollout, numLanes, moments } = inputs
    const all = inputs.settings as unknown as A2cTwinSettings
    const resolved = { ...all, learningRate: rates[shuffle.update]! }
    return a2cTwin(parameters, before, rollout, numLanes, resolved, moments)
  })
  expect(seen.some(({ twin }) => twin.norms[0]! > Number(settings.maxGradNorm ?? 0.5))).toBe(true)
})
