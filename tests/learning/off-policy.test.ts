import { expect, test } from 'vitest'
import { learn } from '../support/learn.ts'

/** `npm run learn` trains; a test of what these do in an update is in `tests/algorithms`. */
const isLong = import.meta.env.MODE === 'learn'

test.runIf(isLong).each([
  ['CartPole-v1', 'dqn', 50_000, 475, 100, 3],
  ['Pendulum-v1', 'sac', 30_000, -150, 10_000, 3], // Means of 100 are up to 15 off.
  ['Pendulum-v1', 'td3', 30_000, -155, 10_000, 5],
  ['BitFlip-v0', 'dqn', 150_016, -7.5, 1000, 3], // Its budget, in whole updates; without hindsight (HER) the return stays at −15.
] as const)(
  '%s is learned by %s within %i steps, to a return of %i over all seeds',
  async (environment, algorithm, most, least, episodes, seeds) => {
    for (const seed of Array.from({ length: seeds }, (_, i) => String(i + 1))) {
      const { steps, evaluation } = await learn(environment, { algorithm, seed, threads: '1' }, episodes)
      console.log(`${environment} by ${algorithm}, seed ${seed}: ${evaluation.toFixed(1)} after ${steps} steps`)
      expect(steps).toBeLessThanOrEqual(most)
      expect(evaluation).toBeGreaterThanOrEqual(least)
    }
  },
)
