import { describe, expect, test } from 'vitest'
// Workers load compiled files, and what they make must be made of the same ones here.
import { configureRun, createTrainer, createWorld, evaluate } from '../../dist/src/index.js'

const isLong = import.meta.env.MODE === 'learn'

describe('ppo, from rollouts that are collected while it learns from others', () => {
  test.each([
    ...(isLong ? [1, 2, 3, 4, 5] : [1]).map((seed) => ['vtrace', seed] as const),
    ...(isLong ? [1, 2, 3] : []).map((seed) => ['decoupled', seed] as const),
  ])('solves CartPole-v1 within 100,352 steps by its preset, with %s and seed %i', async (correction, seed) => {
    const keys = { 'ppo.maxStaleness': '1', 'ppo.correction': correction, seed: String(seed) }
    const { settings, environment, policy, algorithm } = await configureRun('CartPole-v1', keys)
    const world = await createWorld({ environment, policy, numLanes: settings.numLanes, seed })
    const trainer = createTrainer(world, algorithm)
    for await (const { staleness } of trainer.updates({ totalSteps: settings.totalSteps }))
      expect(staleness).toBe(trainer.update === 1 ? 0 : 1)
    trainer.close()
    const { weights } = world.cohorts[0]!
    const { episodeReturn } = await evaluate({ environment, policy, weights, episodes: 100, seed: 10_000 })
    const { solvedAtStep } = trainer.progress()
    console.log(`${correction}, seed ${seed}: solved at ${solvedAtStep}, evaluation ${episodeReturn.mean.toFixed(1)}`)
    expect(trainer.steps).toBe(100_352)
    expect(episodeReturn.mean).toBeGreaterThanOrEqual(475)
  })
})
