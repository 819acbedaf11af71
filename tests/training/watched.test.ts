/** The first rollouts of a training are watched: an environment that breaks its contract ends it, and says where. */
import { beforeAll, describe, expect, test } from 'vitest'
import { createTrainer, createWorld, type EnvironmentDefinition, mlp, ppo, restart } from '../../dist/src/index.js'

type Factory = (settings: { fault?: string; from?: number }) => EnvironmentDefinition

/** What goes wrong, and what the error says: the column, the lane, where it is and the tick. */
const faults: [fault: string, said: RegExp][] = [
  [
    'action',
    /^environment Faulty-v0: got \d in action of lane \d after step, in tick 3, expected \d, its value before the call$/,
  ],
  ['lane', /got 99 in lane of lane 0 after step, in tick 0, expected 0, its value before the call$/],
  ['episode', /got 1 in episode of lane \d after step, in tick 2, expected 0, its value before the call$/],
  ['step', /got 0 in step of lane \d after step, in tick 1, expected 1, its value before the call$/],
  [
    'short observation',
    /got nothing in observation\[\d\] of lane [1-9] \(episode 0, step 0\) from reset, in tick 0, expected 2 numbers a lane/,
  ],
  [
    'half observation',
    /got nothing in observation\[1\] of lane \d \(episode 0, step 5\) from step, in tick 5, expected 2 numbers a lane/,
  ],
  [
    'observation that is added to',
    /got nothing in observation\[0\] of lane \d \(episode 0, step 0\) from step, in tick 0/,
  ],
  ['a lane left out', /got nothing in observation\[0\] of lane 5 \(episode 0, step 0\) from step, in tick 0/],
  [
    'reward at the goal alone',
    /got nothing in reward of lane \d \(episode 0, step 0\) from step, in tick 0, expected a number$/,
  ],
  ['reset that does nothing', /got nothing in observation\[0\] of lane \d \(episode 0, step 0\) from reset, in tick 0/],
  [
    'earlier observation',
    /got another observation of lane \d \(episode 0, step 3\) from the step before, after step, in tick 3/,
  ],
  ['first observation', /got another observation of lane 0 in row block 1 of the rollout, changed after its step/],
]
/** Those that write a lane of the other thread, which has not begun while this one has its turn. */
const acrossThreads: [fault: string, said: RegExp][] = [
  [
    'other reward',
    /got 1 written to reward of lane 4 \(before its first episode\) by step, in tick 0, expected 0, unchanged: step was not/,
  ],
  [
    'other state',
    /got 1 written to state\.place of lane 4 \(before its first episode\) by step, in tick 0, expected 0, unchanged/,
  ],
  [
    'other observation',
    /got 3 written to observation of lane 4 \(before its first episode\) by step, in tick 0, expected 0, unchanged/,
  ],
]

let faulty: Factory
beforeAll(async () => {
  // @ts-expect-error It has no declarations.
  faulty = (await import('../support/faulty.mjs')).faulty
})

async function train(environment: ReturnType<Factory>, threads = 1, numSteps = 16, updates = 3) {
  const world = await createWorld({ environment, policy: mlp({ hidden: [8] }), numLanes: 8, seed: 1 })
  const trainer = createTrainer(world, ppo({ numSteps, numMinibatches: 1, updateEpochs: 1 }), { threads })
  try {
    for await (const _ of trainer.updates({ totalSteps: 8 * numSteps * updates }));
    return trainer.world.cohort().weights.slice()
  } finally {
    trainer.close()
  }
}

describe('with one thread', () => {
  test.each(faults)('%s', async (fault, said) => {
    await expect(train(faulty({ fault }))).rejects.toThrow(said)
  })

  test.each(['late observation', 'observation after return'])('%s', async (fault) => {
    await expect(train(faulty({ fault }))).rejects.toThrow(/got another observation of lane \d/)
  })

  test.each([
    ['reset of all', 'state.place'],
    ['reset of the reward', 'reward'],
  ])('%s', async (fault, column) => {
    // Lanes are set apart by one that begins anew on its own.
    const world = await createWorld({
      environment: faulty({ fault }),
      policy: mlp({ hidden: [8] }),
      numLanes: 8,
      seed: 1,
    })
    const trainer = createTrainer(world, ppo({ numSteps: 4, numMinibatches: 1 }))
    const updates = trainer.updates({ totalSteps: 1e4 })
    await updates.next()
    restart(world.cohort(), [3])
    await expect(updates.next()).rejects.toThrow(
      new RegExp(`written to ${column.replace('.', '\\.')} of lane \\d \\(episode 0, step 4\\) by reset, in tick 4`),
    )
  })
})

describe('with two threads', () => {
  test.each([...faults.slice(0, 4), ...acrossThreads])('%s', async (fault, said) => {
    await expect(train(faulty({ fault }), 2)).rejects.toThrow(said)
  })

  test('what only the second does is found there', async () => {
    await expect(train(faulty({ fault: 'action', from: 4 }), 2)).rejects.toThrow(
      /in action of lane 4 after step, in tick 3/,
    )
  })
})

test('the bits of a training are the same whether it is watched or not, with any number of threads', async () => {
  // What says that it comes with Colonnade is not watched.
  const module = new URL('../../dist/src/environments/faulty.js', import.meta.url).href
  const unwatched = (fault: string) => train(Object.freeze({ ...faulty({ fault }), module }))
  await unwatched('action') // Not told: so it is not watched indeed.
  const weights = await unwatched('none')
  expect(await train(faulty({}))).toEqual(weights)
  expect(await train(faulty({}), 2)).toEqual(weights)
})
