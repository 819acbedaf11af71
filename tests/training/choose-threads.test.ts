import { expect, test } from 'vitest'
import { chooseThreads, type Workload } from '../../src/training/threads.ts'
import * as fc from '../support/properties.ts'

/** Two tanh networks of 64-64 for CartPole, as `mlp()` makes them, in blocks of 256 rows. */
const cart = { numMinibatches: 4, numParameters: 9155, blockRows: 256, cores: 8 }

test.each<[Partial<Workload>, number, string]>([
  [{ numLanes: 4, numSteps: 128 }, 1, 'a minibatch of 128 rows has 1 block of at most 256'],
  [{ numLanes: 16, numSteps: 96 }, 1, 'a minibatch of 384 rows for 9,155 parameters is too little work for 2'],
  [{ numLanes: 16, numSteps: 128 }, 2, 'a minibatch of 512 rows has 2 blocks of at most 256'],
  [
    { numLanes: 256, numSteps: 32, numMinibatches: 8 },
    3,
    'a minibatch of 1,024 rows for 9,155 parameters is too little work for 4',
  ],
  [{ numLanes: 256, numSteps: 32, numMinibatches: 8, cores: 2 }, 2, 'the machine runs 2 at once'],
  [{ numLanes: 1024, numSteps: 128 }, 8, 'the machine runs 8 at once'],
  [{ numLanes: 16, numSteps: 128, numParameters: 134_915 }, 2, 'a minibatch of 512 rows has 2 blocks of at most 256'],
  [{ numLanes: 3, numSteps: 5, numMinibatches: 4 }, 1, 'a minibatch of 4 rows has 1 block of at most 256'],
  [
    { numLanes: 4096, numSteps: 128, numParameters: 10 },
    1,
    'a minibatch of 131,072 rows for 10 parameters is too little work for 2',
  ],
])('%j: %i, since %s', (given, threads, reason) => {
  expect(chooseThreads({ ...cart, ...given } as Workload)).toEqual({ threads, reason })
})

test('more lanes, steps, parameters or cores never make it fewer; there is always one, and no more than cores and blocks', () => {
  const count = (max: number) => fc.integer({ min: 1, max })
  const workloads = fc.record({
    ...{ numLanes: count(5000), numSteps: count(300), numMinibatches: count(16) },
    ...{ numParameters: count(10_000_000), blockRows: count(1000), cores: count(64) },
  })
  fc.assert(
    fc.property(workloads, fc.constantFrom('numLanes', 'numSteps', 'numParameters', 'cores'), (workload, name) => {
      const { threads } = chooseThreads(workload)
      expect(threads).toBeGreaterThanOrEqual(1)
      expect(threads).toBeLessThanOrEqual(workload.cores)
      const rows = (workload.numLanes * workload.numSteps) / workload.numMinibatches
      expect((threads - 1) * workload.blockRows).toBeLessThan(rows)
      expect(chooseThreads({ ...workload, [name]: workload[name] * 2 }).threads).toBeGreaterThanOrEqual(threads)
    }),
  )
})
