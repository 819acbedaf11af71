import { describe, expect, test } from 'vitest'
import { learn } from '../support/learn.ts'

/** `npm run test:tiers` trains with the first seeds of each environment; `npm run learn` with all of them. */
const isLong = import.meta.env.MODE === 'learn'

describe('ppo, as its presets have it', () => {
  test.each(isLong ? [1, 2, 3, 4, 5] : [1, 2])('solves CartPole-v1 within 150,000 steps with seed %i', async (seed) => {
    const { steps, progress, evaluation } = await learn('CartPole-v1', { seed: String(seed) })
    const { solvedAtStep, episodeReturnLast100 } = progress
    console.log(
      `CartPole-v1 seed ${seed}: solved at ${solvedAtStep}, last 100 ${episodeReturnLast100.mean.toFixed(1)}, evaluation ${evaluation.toFixed(1)}`,
    )
    expect(steps).toBeLessThanOrEqual(150_000)
    expect(solvedAtStep).not.toBeNull()
    expect(episodeReturnLast100.mean).toBeGreaterThanOrEqual(475)
    expect(evaluation).toBeGreaterThanOrEqual(475)
  })

  test.each(isLong ? [1, 2, 3] : [1])('swings Pendulum-v1 up within 205,000 steps with seed %i', async (seed) => {
    const { steps, evaluation } = await learn('Pendulum-v1', { seed: String(seed) })
    console.log(`Pendulum-v1 seed ${seed}: evaluation ${evaluation.toFixed(1)} after ${steps} steps`)
    expect(steps).toBeLessThanOrEqual(205_000)
    expect(evaluation).toBeGreaterThanOrEqual(-200)
  })

  test.each(isLong ? [1, 2, 3] : [1])(
    'plays TicTacToe-v0 within 0.04 of the best within 502,000 steps with seed %i',
    async (seed) => {
      const { steps, evaluation } = await learn('TicTacToe-v0', { seed: String(seed) }, 4000)
      console.log(`TicTacToe-v0 seed ${seed}: evaluation ${evaluation.toFixed(3)} after ${steps} steps`)
      expect(steps).toBeLessThanOrEqual(502_000)
      expect(evaluation).toBeGreaterThanOrEqual(0.92) // The best play returns 0.960.
    },
  )
})
