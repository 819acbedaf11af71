/** A learner and actors over a fleet's contracts, in one process: the bits of one process, and of threads. */
// Actors import the modules of what is built, and what they make must be made of the same ones here.
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { MemoryBus } from '../../../dist/src/fleet/bus/memory-bus.js'
import { FolderStore } from '../../../dist/src/fleet/store/folder-store.js'
import {
  type AlgorithmDefinition,
  cartPole,
  createTrainer,
  createWorld,
  mlp,
  pendulum,
  ppo,
  ticTacToe,
  type WorldOptions,
} from '../../../dist/src/index.js'
import { runActor } from '../../../dist/src/training/fleet/fleet-actor.js'
import { fleetCrew } from '../../../dist/src/training/fleet/fleet-crew.js'
import type { CrewDefinition } from '../../../dist/src/training/threads/crew.js'
import { rowsOf } from '../../support/tiers.ts'

const small = { numSteps: 16, numMinibatches: 2, updateEpochs: 2, learningRate: 2e-3 }
const cart = { environment: cartPole(), policy: mlp({ hidden: [8] }), numLanes: 7, seed: 3 }

async function place() {
  const folder = await mkdtemp(join(tmpdir(), 'colonnade-fleet-'))
  const [bus, store] = [new MemoryBus(), new FolderStore(folder)]
  const told: string[] = []
  const crew = (acknowledge: 'update' | 'checkpoint' = 'update'): CrewDefinition =>
    fleetCrew({
      open: async () => ({ bus, store, storeAddress: { kind: 'folder', path: folder }, close: async () => {} }),
      acknowledge,
      seconds: 30,
      tell: (message) => told.push(message),
    })
  return { bus, store, folder, told, crew, end: () => rm(folder, { recursive: true }) }
}

/** The weights and episodes after some updates, and what the last rollout has. */
async function train(world: WorldOptions, algorithm: AlgorithmDefinition, updates: number, options: object) {
  const trainer = createTrainer(await createWorld(world), algorithm, options)
  const { numLanes, numSteps } = trainer.world.cohort() as unknown as { numLanes: number; numSteps: number }
  for await (const _ of trainer.updates({ totalSteps: updates * numLanes * numSteps }));
  const columns = trainer.rollout.table.fields.map(({ name, column, rows }) => [name, [...column], rows && [...rows]])
  const made = { weights: [...(trainer.world.cohort() as { weights: Float32Array }).weights], columns }
  trainer.close()
  return made
}

describe('a fleet in one process', () => {
  const rows = rowsOf<[string, WorldOptions, number, number]>(
    [
      ['CartPole-v1, by one actor', cart, 0, 1],
      ['CartPole-v1 ahead, by three', cart, 1, 3],
      ['CartPole-v1, by three', cart, 0, 3],
      ['Pendulum-v1 ahead', { ...cart, environment: pendulum() }, 1, 2],
      ['TicTacToe-v0, with masks', { ...cart, environment: ticTacToe() }, 0, 2],
    ],
    2,
  )
  test.each(rows)('%s learns the same as one process, to the bit', async (_, world, maxStaleness, numActors) => {
    const { bus, store, told, crew, end } = await place()
    const algorithm = ppo({ ...small, maxStaleness })
    // Only threads collect ahead, and they are made of what is built: the first updates learn from the first weights.
    const expected = await train(world, algorithm, maxStaleness === 0 ? 4 : 1, maxStaleness === 0 ? {} : { actors: 1 })
    const actors = Array.from({ length: numActors }, () => runActor(bus))
    const learned = await train(world, algorithm, maxStaleness === 0 ? 4 : 1, { actors: numActors, crew: crew() })
    const ended = await Promise.all(actors)
    expect(learned).toEqual(expected)
    expect(ended.map(({ end, failures }) => [end, failures])).toEqual(actors.map(() => ['run', 0]))
    expect(ended.reduce((sum, { rollouts }) => sum + rollouts, 0)).toBeGreaterThanOrEqual(numActors)
    expect(told).toEqual([])
    expect((await store.list()).length).toBeLessThan(3 + 3 * numActors)
    await end()
  })
})
