/** A worker's whole life, in this process. */
import { Worker } from 'node:worker_threads'
import { describe, expect, test, vi } from 'vitest'
import { cartPole, createTrainer, createWorld, type EpisodeCohort, mlp, ppo, type World } from '../../src/index.ts'
import type { LanesOrder, WorkerFailure, WorkerOrder } from '../../src/training/threads/team.ts'
import { startTeamsInProcess } from '../support/in-process-team.ts'

let workerData: WorkerOrder
let posted: WorkerFailure[]
vi.mock('node:worker_threads', async (original) => ({
  ...(await original<typeof import('node:worker_threads')>()),
  get workerData() {
    return workerData
  },
  get parentPort() {
    return { postMessage: (message: WorkerFailure) => posted.push(message) }
  },
}))

/** A worker is told this, and lives until it ends or fails. */
async function live(order: WorkerOrder): Promise<void> {
  workerData = order
  posted = []
  vi.resetModules()
  await import('../../src/training/threads/worker.ts')
}

const saysSo = () => vi.waitFor(() => expect(posted).toHaveLength(1), 20_000)

/** The other thread of two, which comes to each meeting and does nothing else. */
function partner(control: Int32Array): Worker {
  const program = `
    const { workerData: control } = require('node:worker_threads')
    for (;;) {
      const generation = Atomics.load(control, 1)
      if (Atomics.add(control, 0, 1) === 0) Atomics.wait(control, 1, generation)
      else {
        Atomics.store(control, 0, 0)
        Atomics.add(control, 1, 1)
        Atomics.notify(control, 1)
      }
    }`
  return new Worker(program, { eval: true, workerData: control })
}

/** The order of the second of two threads of a trainer, and the trainer's world. */
async function order(): Promise<{ given: WorkerOrder; world: World<EpisodeCohort> }> {
  const teams = startTeamsInProcess()
  const world = await createWorld({ environment: cartPole(), policy: mlp({ hidden: [8] }), numLanes: 4, seed: 1 })
  const trainer = createTrainer(world, ppo({ numSteps: 4 }), { threads: 2 })
  for await (const _ of trainer.updates({ totalSteps: 16 })) break
  trainer.close()
  return { given: teams[0]!.orders[0]!, world }
}

describe('a worker', () => {
  test('ends quietly when the team does', async () => {
    const { given } = await order()
    given.control[2] = 1
    await live(given)
    await vi.waitFor(() => expect(given.control[0]).toBe(1), 20_000) // It came to the first meeting.
    await new Promise((resolve) => setTimeout(resolve, 5))
    expect(posted).toEqual([])
    const { refuseInWorker } = await import('../../src/training/threads/team.ts')
    expect(() => refuseInWorker('createTrainer')).toThrow('a module that a worker imports')
  })

  test('does its share of an update at each command, and says what its program throws', async () => {
    const { given, world } = await order()
    const { reward } = world.cohort().rollout
    reward.fill(-1)
    const other = partner(given.control)
    await live({ ...given, command: failingAfter(given.command, 2) })
    await saysSo()
    await other.terminate()
    expect(posted).toMatchObject([{ message: 'no command' }])
    expect([...reward.slice(0, 8)]).toEqual([-1, -1, 1, 1, -1, -1, 1, 1]) // Lanes 2 and 3 of 4.
  })

  test('says what it cannot be made of', async () => {
    const { given } = await order()
    const cohorts = (given as LanesOrder).cohorts.map((cohort) => ({
      ...cohort,
      environment: { id: 'CartPole-v1', parameters: {} },
    }))
    await live({ ...given, cohorts } as LanesOrder)
    await saysSo()
    expect(posted).toMatchObject([{ input: { got: 'a definition without a module' } }])
  })
})

/** A command that can be read so often. */
function failingAfter(command: Float64Array, times: number): Float64Array {
  let reads = 0
  return new Proxy(command, {
    get(target, key) {
      if (key !== Symbol.iterator) return Reflect.get(target, key, target)
      if (++reads > times) throw new Error('no command')
      return target[Symbol.iterator].bind(target)
    },
  })
}
