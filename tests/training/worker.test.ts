/** A worker's whole life, in this process. */
import { Worker } from 'node:worker_threads'
import { beforeAll, describe, expect, test, vi } from 'vitest'
import { cartPole, createTrainer, createWorld, type EpisodeCohort, mlp, ppo, type World } from '../../src/index.ts'
import type { LanesOrder, WorkerOrder } from '../../src/training/threads/orders.ts'
import { SharingWord } from '../../src/training/threads/sharing.ts'
import type { WorkerFailure } from '../../src/training/threads/team.ts'
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

/** The other thread of two. It comes to the first meeting, and publishes runs: the rollout's lanes, then work that nobody knows. */
function partner({ control, sharing }: LanesOrder): Worker {
  const program = `
    const { workerData: { control, sharing: { words, told }, Word } } = require('node:worker_threads')
    if (Atomics.add(control, 0, 1) === 0) Atomics.wait(control, 1, Atomics.load(control, 1))
    else {
      Atomics.store(control, 0, 0)
      Atomics.add(control, 1, 1)
      Atomics.notify(control, 1)
    }
    for (const work of [3, 99]) {
      const run = Atomics.load(words, Word.run) + 1
      told.set([1, 2, 0]) // Update 1, by two threads, not watched.
      for (const [name, value] of Object.entries({ work, from: 1, end: 2, dealt: 1, done: 0, claim: run << 12, run })) {
        Atomics.store(words, Word[name], value)
      }
      Atomics.notify(words, Word.run)
      Atomics.wait(words, Word.done, 0)
    }`
  return new Worker(program, { eval: true, workerData: { control, sharing, Word: SharingWord } })
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
  /** Made before a worker imports all modules anew: a trainer imports later what starts threads. */
  const orders: Awaited<ReturnType<typeof order>>[] = []
  beforeAll(async () => {
    while (orders.length < 3) orders.push(await order())
  })

  test('ends quietly when the team does', async () => {
    const { given } = orders.pop()!
    given.control[2] = 1
    await live(given)
    await vi.waitFor(() => expect(given.control[0]).toBe(1), 20_000) // It came to the first meeting.
    await new Promise((resolve) => setTimeout(resolve, 5))
    expect(posted).toEqual([])
    const { refuseInWorker } = await import('../../src/training/threads/orders.ts')
    expect(() => refuseInWorker('createTrainer')).toThrow('a module that a worker imports')
  })

  test('does its part of what is shared, and says what its work throws', async () => {
    const { given, world } = orders.pop()!
    const { reward } = world.cohort().rollout
    reward.fill(-1)
    Atomics.store((given as LanesOrder).sharing!.words, SharingWord.aborted, 0)
    const other = partner(given as LanesOrder)
    await live(given)
    await saysSo()
    await other.terminate()
    expect(posted).toMatchObject([{ message: expect.stringContaining('undefined') }])
    expect([...reward.slice(0, 8)]).toEqual([-1, -1, 1, 1, -1, -1, 1, 1]) // Lanes 2 and 3 of 4.
  })

  test('says what it cannot be made of', async () => {
    const { given } = orders.pop()!
    const cohorts = (given as LanesOrder).cohorts.map((cohort) => ({
      ...cohort,
      environment: { id: 'CartPole-v1', parameters: {} },
    }))
    await live({ ...given, cohorts } as LanesOrder)
    await saysSo()
    expect(posted).toMatchObject([{ input: { got: 'a definition without a module' } }])
  })
})
