/** PPO on observations and actions of several choices: what it learns needs both, and its bits depend neither on threads nor on a resume. */
import { describe, expect, test } from 'vitest'
import {
  createTrainer,
  createWorld,
  type EnvironmentFactory,
  evaluate,
  mlp,
  ppo,
  recurrent,
} from '../../dist/src/index.js'
import { temporaryFolder } from '../support/temporary.ts'
import { isThorough, rowsOf } from '../support/tiers.ts'

/** In a module that threads load, too. */
const { dials } = (await import(new URL('../support/dials.mjs', import.meta.url).href)) as { dials: EnvironmentFactory }
const algorithm = ppo({ numSteps: 16, learningRate: 0.01, gamma: 0.1 })
const NUM_LANES = 32
const policies = {
  'with layer norms over embeddings': mlp({ hidden: [16], layerNorm: true, embedding: 3 }),
  plain: mlp({ hidden: [16] }),
  'with a memory and layer norms': recurrent({ hidden: [16], units: 8, sequenceLength: 8, layerNorm: true }),
}

describe.each(rowsOf(Object.keys(policies) as (keyof typeof policies)[]))('a network %s', (name) => {
  const policy = policies[name]

  /** The weights after `updates` updates by so many threads, from the folder's checkpoint if `resumes`. */
  async function trained(updates: number, threads: number, folder?: string, resumes = false): Promise<Float32Array> {
    const world = await createWorld({ environment: dials(), policy, numLanes: NUM_LANES, seed: 2 })
    const trainer = createTrainer(world, algorithm, { threads, ...(folder !== undefined && { folder }) })
    try {
      if (resumes) await trainer.restore()
      for await (const { update } of trainer.updates({ totalSteps: 200 * NUM_LANES * 16 }))
        if (update === updates) break
      if (folder !== undefined) await trainer.save()
      return world.cohorts[0]!.weights.slice()
    } finally {
      trainer.close()
      world.close()
    }
  }

  test('learns a task that needs both heads', async () => {
    const weights = await trained(80, 1)
    const { episodeReturn } = await evaluate({ environment: dials(), policy, weights, episodes: 50, seed: 9 })
    expect(episodeReturn.mean).toBeGreaterThan(9.5) // Chance is 10 / 12; one head alone gets at most 10 / 3.
  })

  test('has the same bits after threads and a resume', async () => {
    const whole = await trained(4, 1)
    expect(await trained(3, 1)).not.toEqual(whole)
    for (const threads of rowsOf([2, 3, 4])) expect(await trained(4, threads), `${threads} threads`).toEqual(whole)
    const folder = await temporaryFolder()
    await trained(2, isThorough ? 2 : 1, folder)
    expect(await trained(4, 1, folder, true)).toEqual(whole)
  })
})
