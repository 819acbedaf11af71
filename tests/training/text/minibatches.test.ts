import { describe, expect, test } from 'vitest'
import { rl } from '../../../src/algorithms/tokens/rl.ts'
import { createTrainer } from '../../../src/training/loop/trainer.ts'
import { digits, talkWorld } from '../../support/conversations.ts'

/** Answers of different lengths, whose rewards differ within each group. */
const environment = digits({
  respond: ({ completion }) => ({ reward: completion.length + Number(completion[0] ?? 0) }),
})

/** What one update moves the weights by, and its figures. */
async function moved(settings: Record<string, unknown>) {
  const world = await talkWorld({ environment, groupSize: 4 })
  const lossSettings = { rewardKlCoef: 0, klCoef: 0 }
  const shape = { updates: 1, groupsPerUpdate: 4, groupSize: 4, maxGradNorm: 1e6, lossSettings }
  const trainer = createTrainer(world, rl({ ...shape, ...settings } as never))
  const before = trainer.world.cohort().weights.slice()
  const all = []
  for await (const metrics of trainer.updates()) all.push(metrics)
  const after = trainer.world.cohort().weights.slice()
  trainer.close()
  return { by: after.map((weight, i) => weight - before[i]!), after, metrics: all[0]! }
}

const norm = (values: Float32Array) => Math.hypot(...values)

describe('minibatches of an update', () => {
  test('share its conversations: each makes a step of its own loss, and steps that are small add up', async () => {
    const small = { optimizer: 'sgd', learningRate: 1e-3 }
    const whole = await moved(small)
    const cut = await moved({ ...small, numMinibatches: 4 })
    expect(norm(whole.by)).toBeGreaterThan(1e-5)
    // Four equal parts of one mean: their means add up to four times it.
    expect(norm(cut.by.map((value, i) => value - 4 * whole.by[i]!)) / norm(whole.by)).toBeLessThan(0.05)
    const [one, four] = [whole.metrics.rl!, cut.metrics.rl!]
    expect(four.trainedTokens).toBe(one.trainedTokens)
    expect(cut.metrics.tokens).toBe(whole.metrics.tokens)
    expect(Math.abs(cut.metrics.loss - whole.metrics.loss)).toBeLessThan(0.02)
    expect(Math.abs(four.entropy - one.entropy)).toBeLessThan(0.02)
    expect(one.kl.k3).toBe(0)
    expect(four.kl.k3).toBeGreaterThan(0) // The later ones are learned after steps.
  })

  test('make as many optimizer steps as there are, in every pass, dealt alike for one seed', async () => {
    const adam = { learningRate: 1e-3 }
    const one = await moved({ ...adam, updateEpochs: 2 })
    const cut = await moved({ ...adam, updateEpochs: 2, numMinibatches: 3 })
    expect(norm(cut.by) / norm(one.by)).toBeGreaterThan(1.5) // Six steps of Adam for two.
    expect((await moved({ ...adam, updateEpochs: 2, numMinibatches: 3 })).after).toEqual(cut.after)
  })

  test('are no more than the conversations', () => {
    expect(() => rl({ groupsPerUpdate: 2, groupSize: 2, numMinibatches: 5 })).toThrow(
      'rl.numMinibatches: got 5, expected at most 4, the conversations of an update',
    )
  })
})
