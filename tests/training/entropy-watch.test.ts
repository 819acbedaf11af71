import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { cartPole } from '../../src/environments/classic/cart-pole.ts'
import { createTrainer, createWorld, mlp, pendulum, ppo } from '../../src/index.ts'
import type { EpisodeCohort } from '../../src/world/episodes/cohort.ts'

let said: string[]
beforeEach(() => {
  said = []
  vi.spyOn(process.stderr, 'write').mockImplementation((text) => said.push(String(text)) > 0)
})
afterEach(() => void vi.restoreAllMocks())

/** The mean entropy of choices of two with these log-probabilities, in nats: each row has p of one choice, 1 − p of the other. */
function entropyOf({ logprob }: EpisodeCohort['rollout']): number {
  const plogp = (p: number) => (p <= 0 ? 0 : p * Math.log(p))
  return logprob.reduce((sum, each) => sum - plogp(Math.exp(each)) - plogp(1 - Math.exp(each)), 0) / logprob.length
}

async function train(environment: ReturnType<typeof cartPole>, learningRate: number, updates: number) {
  const world = await createWorld({ environment, policy: mlp({ hidden: [16] }), numLanes: 8, seed: 3 })
  const trainer = createTrainer(world, ppo({ numSteps: 64, learningRate, learningRateSchedule: 'constant' }))
  const entropies: number[] = []
  for await (const _ of trainer.updates({ totalSteps: 8 * 64 * updates })) {
    if (environment.actionSpace.kind === 'discrete') entropies.push(entropyOf(world.cohort().rollout))
  }
  return entropies
}

describe('a policy that explores no more', () => {
  test('is told once, where its learning rate is too high', async () => {
    const entropies = await train(cartPole(), 1, 8)
    expect(said).toHaveLength(1)
    expect(said[0]).toMatch(
      /^colonnade: warning: ppo of cohort mlp: the entropy of its choices fell from 0\.\d+ to \S+ nats \(at random: 0\.69\)/,
    )
    expect(said[0]).toContain('try a learningRate below 1, or more entropyCoef')
    // The rows themselves say so: what chose them had hardly any choice left, by the log-probabilities that they record.
    expect(entropies[0]).toBeGreaterThan(0.5 * Math.log(2))
    const [, update] = /at update (\d+)/.exec(said[0]!)!
    expect(entropies[Number(update)]).toBeLessThan(0.01 * Math.log(2))
  })

  test('is not told where it learns as it should', async () => {
    const entropies = await train(cartPole(), 1e-3, 8)
    expect(said).toEqual([])
    expect(Math.min(...entropies)).toBeGreaterThan(0.3)
  })

  test('is not told where the return is good, nor where actions are no choices', async () => {
    await train({ ...cartPole(), returnThreshold: 1 }, 1, 8)
    await train(pendulum() as never, 0.3, 8)
    expect(said).toEqual([])
  })

  test('is not told of a table in whose rows nobody acted', async () => {
    const world = await createWorld({ environment: cartPole(), policy: mlp({ hidden: [4] }), numLanes: 8, seed: 3 })
    const trainer = createTrainer(world, ppo({ numSteps: 16 }))
    for await (const _ of trainer.updates({ totalSteps: 1 }));
    const rows = structuredClone({ ...trainer.rollout.table })
    rows.fields.find(({ name }) => name === 'valid')!.column.fill(0)
    for await (const { cohorts } of trainer.learn(rows)) expect(cohorts).toMatchObject({ mlp: { entropy: Number.NaN } })
    expect(said).toEqual([expect.stringContaining('nobody acted')])
    expect(world.cohort().weights.every(Number.isFinite)).toBe(true)
  })
})
