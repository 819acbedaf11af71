import { expect, test } from 'vitest'
import { configureRun, createTrainer, createWorld, evaluate } from '../../src/index.ts'

test('a convolutional policy returns six times what random play does in Breakout-MinAtar after 30,000 steps', async () => {
  const keys = { policy: 'convolutional', seed: '1', totalSteps: '30000' }
  const { environment, policy, algorithm, settings } = await configureRun('Breakout-MinAtar', keys)
  const world = await createWorld({ environment, policy, numLanes: settings.numLanes, seed: 1 })
  const trainer = createTrainer(world, algorithm)
  for await (const _ of trainer.updates({ totalSteps: settings.totalSteps }));
  const { weights } = world.cohorts[0]!
  const { episodeReturn } = await evaluate({ environment, policy, weights, episodes: 200, seed: 10_000 })
  trainer.close()
  console.log(`Breakout-MinAtar, convolutional, seed 1: ${episodeReturn.mean.toFixed(2)} after ${trainer.steps} steps`)
  expect(episodeReturn.mean).toBeGreaterThanOrEqual(6 * 0.38)
})
