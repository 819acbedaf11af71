import { expect, test } from 'vitest'
import { startDevice } from '../../src/entries/devices.ts'
import { cartPole, collect, dense } from '../../src/index.ts'
import { networkSuite, played } from './network-suite.ts'

networkSuite('wasm')
networkSuite('cpu')

test('a world that was made without createWorld says that the device was not started', async () => {
  const { World } = await import('../../src/world/world.ts')
  const policy = dense()
  const environment = cartPole()
  const model = policy.build(environment.observationSpace, environment.actionSpace)
  const options = { environment, policy, numLanes: 2 }
  const world = new World(
    [
      {
        kind: 'episodes',
        options,
        policy,
        sharesWith: null,
        name: 'dense',
        key: 0,
        firstLane: 0,
        isOpen: false,
        model,
        sets: { all: 1, learning: 1, selfPlay: null },
      },
    ],
    {
      seed: 0,
      kernels: 'simd',
    },
  )
  expect(() => world.cohorts).toThrow(
    'policy dense: got a world that was made without its device, expected createWorld',
  )
})

test('one device is active at a time: a policy on another one says so', async () => {
  const { world, cohort } = await played(dense({ device: 'cpu', hidden: [4] }))
  await startDevice('wasm')
  expect(() => collect(world, 1)).toThrow(/policy dense: got tfjs backend wasm, expected the policy's device, cpu/)
  await startDevice('cpu')
  world.close()
  expect(cohort.model.staysInThread).toBe(true)
})

test('unknown devices are refused by name', () => {
  expect(() => dense({ device: 'tpu' as never })).toThrow(/device: got "tpu"/)
})
