import { expect, test } from 'vitest'
import { learn } from '../support/learn.ts'

/** `npm run test:tiers` trains with the first seeds; `npm run learn` with all of them. */
const isLong = import.meta.env.MODE === 'learn'

test.each(isLong ? [1, 2, 3, 4, 5] : [1, 2])(
  'a2c solves CartPole-v1 within 200,000 steps with seed %i',
  async (seed) => {
    const { steps, progress, evaluation } = await learn('CartPole-v1', { algorithm: 'a2c', seed: String(seed) })
    console.log(
      `CartPole-v1 by a2c, seed ${seed}: solved at ${progress.solvedAtStep}, evaluation ${evaluation.toFixed(1)}`,
    )
    expect(steps).toBeLessThanOrEqual(200_000)
    expect(progress.solvedAtStep).not.toBeNull()
    expect(evaluation).toBeGreaterThanOrEqual(475)
  },
)

test.runIf(isLong).each([1, 2, 3, 4, 5])(
  'a2c swings Pendulum-v1 up within 3,001,000 steps with seed %i',
  async (seed) => {
    const { steps, evaluation } = await learn('Pendulum-v1', { algorithm: 'a2c', seed: String(seed) })
    console.log(`Pendulum-v1 by a2c, seed ${seed}: evaluation ${evaluation.toFixed(1)} after ${steps} steps`)
    expect(steps).toBeLessThanOrEqual(3_001_000)
    expect(evaluation).toBeGreaterThanOrEqual(-200)
  },
)
