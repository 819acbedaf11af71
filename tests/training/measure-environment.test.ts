import { expect, test } from 'vitest'
import { measureEnvironment, recommendedNumLanes } from '../../src/entries/environments.ts'
import { box, cartPole, defineEnvironment, discrete, mlp } from '../../src/index.ts'
import { type EnvironmentSpeed, fewestLanes, stepSeconds } from '../../src/training/evaluate/measure-environment.ts'

const pair = defineEnvironment({
  id: 'Pair-v0',
  settings: {},
  state: () => ({}),
  make: () => ({
    observationSpace: box({ low: 0, high: 1 }),
    actionSpace: discrete(2),
    numPlayers: 2,
    maxEpisodeSteps: 5,
    returnThreshold: null,
    reset: ({ observation }) => void observation.fill(0),
    step({ observation, reward }, from, to) {
      observation.fill(0, from, to)
      reward.fill(1, from, to)
    },
  }),
})

test('an environment alone steps more often than with a policy, and that more often than it trains', async () => {
  const options = { numLanes: [3, 8], threads: [1], policy: mlp({ hidden: [8] }), seconds: 0.01 }
  const { environment, measured, recommendedNumLanes: best } = await measureEnvironment(cartPole(), options)
  expect(environment).toBe('CartPole-v1')
  expect(measured.map(({ numLanes, threads }) => [numLanes, threads])).toEqual([
    [3, 1],
    [8, 1],
  ])
  for (const { environmentStepsPerSecond, rolloutStepsPerSecond, trainingStepsPerSecond, shares } of measured) {
    expect(environmentStepsPerSecond).toBeGreaterThan(rolloutStepsPerSecond)
    expect(rolloutStepsPerSecond).toBeGreaterThan(trainingStepsPerSecond)
    expect(trainingStepsPerSecond).toBeGreaterThan(0)
    expect(Object.values(shares).reduce((sum, share) => sum + share, 0)).toBeCloseTo(1)
    expect(shares.backward).toBeGreaterThan(0)
  }
  expect([3, 8]).toContain(best)
})

test('with several threads, environment steps have their part of the rollout, however many of them the measuring thread took', () => {
  const phases = { reset: 0.1, infer: 0.6, step: 0.2, store: 0.1 }
  expect(stepSeconds(phases, 1.2, 1)).toBeCloseTo(0.4)
  expect(stepSeconds(phases, 1.2, 2)).toBeCloseTo(0.48)
  const fewer = { reset: 0.01, infer: 0.06, step: 0.02, store: 0.01 }
  expect(stepSeconds(fewer, 1.2, 2)).toBeCloseTo(0.48)
})

test('lanes are whole games', async () => {
  expect(await recommendedNumLanes(pair(), { numLanes: [3], policy: mlp({ hidden: [8] }), seconds: 0.01 })).toBe(4)
})

test('the fewest lanes within a tenth of the fastest are enough', () => {
  const speed = (numLanes: number, rolloutStepsPerSecond: number) => ({ numLanes, rolloutStepsPerSecond })
  const measured = [speed(1024, 100), speed(16, 50), speed(64, 89), speed(256, 91)] as EnvironmentSpeed[]
  expect(fewestLanes(measured)).toBe(256)
})

test.each([
  [{ numLanes: [] }, 'numLanes: got []'],
  [{ threads: [0] }, 'threads: got [0]'],
  [{ seconds: 0 }, 'seconds: got 0, expected more than 0'],
  [{ lanes: [1] }, 'option of measureEnvironment: got "lanes"'],
])('%j is refused', async (options, message) => {
  await expect(measureEnvironment(cartPole(), options as never)).rejects.toThrow(message)
})
