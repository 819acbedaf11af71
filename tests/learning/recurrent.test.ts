import { describe, expect, test } from 'vitest'
import {
  createTrainer,
  createWorld,
  evaluate,
  mlp,
  type PolicyDefinition,
  ppo,
  recall,
  recurrent,
} from '../../src/index.ts'

const isLong = import.meta.env.MODE === 'learn'
const environment = recall({ delay: 4 })

/** Trains on Recall with a short delay, and says what the policy returns over 200 fresh episodes. */
async function learn(policy: PolicyDefinition, seed: number): Promise<number> {
  const world = await createWorld({ environment, policy, numLanes: 32, seed })
  const algorithm = ppo({ numSteps: 24, numMinibatches: 4, learningRate: 5e-3 })
  const trainer = createTrainer(world, algorithm)
  for await (const _ of trainer.updates({ totalSteps: 32 * 24 * 40 }));
  const { weights } = world.cohorts[0]!
  const { episodeReturn } = await evaluate({ environment, policy, weights, episodes: 200, seed: 10_000 })
  trainer.close()
  console.log(`Recall, delay 4, ${policy.id}, seed ${seed}: ${episodeReturn.mean.toFixed(3)}`)
  return episodeReturn.mean
}

describe('a policy with a memory', () => {
  test.each([
    ['gru', 1],
    ['lstm', 1],
    ...(isLong
      ? ([
          ['gru', 2],
          ['gru', 3],
        ] as const)
      : []),
  ] as const)('recalls what it was shown: %s, seed %i', async (cell, seed) => {
    const policy = recurrent({ cell, units: 16, hidden: [16], sequenceLength: 24 })
    expect(await learn(policy, seed)).toBeGreaterThanOrEqual(0.95)
  })

  test('a perceptron does no better than chance, 0.25', async () => {
    expect(await learn(mlp({ hidden: [16] }), 1)).toBeLessThan(0.4)
  })
})
