import { expect, test } from 'vitest'
import { defineWrapper, wrap } from '../../src/environments/wrapper.ts'
import { a2c, cartPole, defineSystem, mlp } from '../../src/index.ts'
import type { EpisodeRunDefinition } from '../../src/training/run/definition.ts'
import { threadsOf } from '../../src/training/run/episode-run.ts'
import { configureRun } from '../../src/training/run/run.ts'
import { chooseThreads, type Workload } from '../../src/training/threads/threads.ts'
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

test('a run has one where others could not make a part of it, and says which', async () => {
  const run = (await configureRun('CartPole-v1', { numLanes: '1024' })) as EpisodeRunDefinition
  const homeless = <D extends object>({ module: _, ...rest }: D & { module?: string }) => rest as unknown as D
  const half = defineWrapper({ id: 'half', settings: {}, make: () => ({}) })
  const slow = defineSystem({ id: 'slow', settings: {}, make: () => ({ after: 'step', run() {} }) })
  const without = {
    'environment CartPole-v1': { environment: homeless(cartPole()) },
    'wrapper half': { environment: wrap(cartPole(), half()) },
    'policy mlp': { policy: homeless(mlp()) },
    'algorithm a2c': { algorithm: homeless(a2c()) },
    'system slow': { systems: [slow()] },
  }
  for (const [part, changed] of Object.entries(without)) {
    const reason = `the ${part} has no module for other threads to import`
    expect(threadsOf({ ...run, ...changed })).toEqual({ threads: 1, reason })
  }
  expect(threadsOf(run).reason).not.toContain('module')
})
