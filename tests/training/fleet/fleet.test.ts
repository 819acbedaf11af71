/** A learner and actors over a fleet's contracts, in one process: the bits of one process, and of threads. */
// Actors import the modules of what is built, and what they make must be made of the same ones here.
import { writeFile } from 'node:fs/promises'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { describe, expect, test } from 'vitest'
import { timeLimit, wrap } from '../../../dist/src/entries/environments.js'
import type { StoreAddress } from '../../../dist/src/fleet/address.js'
import type { Bus, Message } from '../../../dist/src/fleet/bus/bus.js'
import { MemoryBus } from '../../../dist/src/fleet/bus/memory-bus.js'
import { FolderStore } from '../../../dist/src/fleet/store/folder-store.js'
import {
  type AlgorithmDefinition,
  cartPole,
  createTrainer,
  createWorld,
  InputError,
  mlp,
  pendulum,
  ppo,
  recurrent,
  ticTacToe,
  type WorldOptions,
} from '../../../dist/src/index.js'
import type { FleetStatus } from '../../../dist/src/telemetry/fleet-record.js'
import { runActor } from '../../../dist/src/training/fleet/fleet-actor.js'
import { fleetCrew } from '../../../dist/src/training/fleet/fleet-crew.js'
import type { CrewDefinition } from '../../../dist/src/training/threads/crew.js'
import { temporaryFolder } from '../../support/temporary.ts'
import { rowsOf, thorough } from '../../support/tiers.ts'

/** An environment of a user, whose step fails. */
const BROKEN = `
import { cartPole, defineEnvironment } from '${new URL('../../../dist/src/index.js', import.meta.url).href}'
const { observationSpace, actionSpace, maxEpisodeSteps, returnThreshold, reset } = cartPole()
const step = () => {
  throw new Error('the cart is broken')
}
export const broken = defineEnvironment({
  ...{ id: 'Broken-v0', module: import.meta.url, settings: {}, state: () => cartPole().state },
  make: () => ({ observationSpace, actionSpace, maxEpisodeSteps, returnThreshold, reset, step }),
})`

const small = { numSteps: 16, numMinibatches: 2, updateEpochs: 2, learningRate: 2e-3 }
const cart = { environment: cartPole(), policy: mlp({ hidden: [8] }), numLanes: 7, seed: 3 }

const remembering = {
  ...cart,
  environment: wrap(pendulum(), timeLimit({ maxEpisodeSteps: 5 })),
  policy: recurrent({ units: 4, hidden: [4], sequenceLength: 4 }),
}

async function place() {
  const folder = await temporaryFolder()
  const [bus, store] = [new MemoryBus(), new FolderStore(folder)]
  const told: string[] = []
  const crew = (
    acknowledge: 'update' | 'checkpoint' = 'update',
    storeAddress: StoreAddress = { kind: 'folder', path: folder },
    onStatus?: (status: FleetStatus) => Promise<void>,
  ): CrewDefinition =>
    fleetCrew({
      ...(onStatus && { onStatus }),
      open: async () => ({ bus, store, storeAddress, close: async () => {} }),
      acknowledge,
      seconds: 30,
      tell: (message) => told.push(message),
    })
  return { bus, store, folder, told, crew }
}

function abortable(): { readonly signal: AbortSignal; abort(): void } {
  const controller = new AbortController()
  return { signal: controller.signal, abort: () => controller.abort() }
}

/** The same bus, which refuses some results. */
async function refusing(bus: Bus, isRefused: (result: Message) => boolean): Promise<Bus> {
  return {
    values: (name, options) => bus.values(name, options),
    queue: async (name, options) => {
      const queue = await bus.queue(name, options)
      if (name !== 'results') return queue
      return Object.assign(Object.create(queue) as typeof queue, {
        put: async (id: string, value: Message) => {
          if (isRefused(value)) throw new Error('a bus that takes no such result')
          return queue.put(id, value)
        },
      })
    },
    clear: () => bus.clear(),
    close: () => bus.close(),
  }
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
  const rows = rowsOf<[string, WorldOptions, number, number, number?]>(
    [
      ['CartPole-v1, three parts by one actor', cart, 0, 1, 3],
      ['CartPole-v1 ahead, by three', cart, 1, 3],
      ['CartPole-v1, by three', cart, 0, 3],
      ['Pendulum-v1 ahead', { ...cart, environment: pendulum() }, 1, 2],
      ['TicTacToe-v0, with masks, three parts by one actor', { ...cart, environment: ticTacToe() }, 0, 1, 3],
      ['episodes cut short, with a memory, three parts by one actor', remembering, 0, 1, 3],
    ],
    2,
  )
  test.each(rows)(
    '%s learns the same as one process, to the bit',
    async (_, world, maxStaleness, numActors, parts = numActors) => {
      const { bus, store, told, crew } = await place()
      const algorithm = ppo({ ...small, maxStaleness })
      const expected = await train(world, algorithm, 4, maxStaleness === 0 ? {} : { actors: 1 })
      const actors = Array.from({ length: numActors }, () => runActor(bus))
      const learned = await train(world, algorithm, 4, { actors: parts, crew: crew() })
      const ended = await Promise.all(actors)
      expect(learned).toEqual(expected)
      expect(ended.map(({ end, failures }) => [end, failures])).toEqual(actors.map(() => ['run', 0]))
      expect(ended.reduce((sum, { rollouts }) => sum + rollouts, 0)).toBeGreaterThanOrEqual(numActors)
      expect(told).toEqual([])
      expect((await store.list()).length).toBeLessThan(3 + 3 * parts)
    },
  )

  test.each(rowsOf([0, 1]))(
    'a signal ends the wait for actors with staleness %i; what is saved then, and the training itself, go on to the same bits',
    async (maxStaleness) => {
      const { bus, crew, folder } = await place()
      const steps = (updates: number) => updates * cart.numLanes * small.numSteps
      const algorithm = ppo({ ...small, maxStaleness })
      const trainerOf = async (threads: number) =>
        createTrainer(await createWorld(cart), algorithm, { actors: 2, threads, crew: crew('checkpoint') })
      const trainer = await trainerOf(3)
      const weights = () => [...(trainer.world.cohort() as { weights: Float32Array }).weights]
      const actors = [runActor(bus), runActor(bus)]
      for await (const _ of trainer.updates({ totalSteps: steps(1) }));
      trainer.close()
      await Promise.all(actors)
      await trainer.save(join(folder, 'saved'))
      // All permitted parts of one member come, and none of the other.
      const [{ signal, ...wait }, half] = [abortable(), abortable()]
      const arrived: unknown[] = []
      const refused = await refusing(bus, ({ member, rollout }) => {
        if (member === 0 && arrived.push(rollout) === 1 + maxStaleness) setTimeout(wait.abort, 300)
        return member === 1
      })
      const actor = runActor(refused, { stay: true, signal: half.signal })
      for await (const _ of trainer.updates({ totalSteps: steps(3), signal }));
      half.abort()
      await actor
      expect([signal.aborted, trainer.update, arrived]).toEqual([true, 1, [1, 2].slice(0, 1 + maxStaleness)])
      await trainer.save(join(folder, 'saved')) // The same checkpoint again.
      const stop = new AbortController()
      const later = [1, 2].map(() => runActor(bus, { stay: true, signal: stop.signal }))
      for await (const _ of trainer.updates({ totalSteps: steps(3) }));
      trainer.close()
      const { weights: expected } = await train(cart, algorithm, 3, { actors: 1 })
      expect(weights()).toEqual(expected)
      const restored = await trainerOf(4)
      await restored.restore(join(folder, 'saved'))
      for await (const _ of restored.updates({ totalSteps: steps(3) }));
      restored.close()
      stop.abort()
      await Promise.all(later)
      expect([...(restored.world.cohort() as { weights: Float32Array }).weights]).toEqual(expected)
    },
  )

  test('the state is told at once and at the end; one that cannot be told ends nothing and is reported once', async () => {
    const { bus, folder, told, crew } = await place()
    const states: FleetStatus[] = []
    const onStatus = async (status: FleetStatus) => {
      states.push(status)
      throw new Error('a full disk')
    }
    const actor = runActor(bus)
    const address = { kind: 'folder', path: folder } as const
    await train(cart, ppo(small), 4, { actors: 2, crew: crew('update', address, onStatus) })
    await actor
    await expect.poll(() => states.at(-1)?.learner.state).toBe('ended')
    expect(states[0]).toMatchObject({ environment: 'CartPole-v1', policy: 'mlp', helpers: [] })
    expect(states[0]!.learner).toEqual({ state: 'running', update: 0, steps: 0 })
    expect(states.at(-1)!.learner).toEqual({ state: 'ended', update: 4, steps: 4 * 16 * 7 })
    expect(states.at(-1)!.queue.tasks).toBe(0)
    expect(told).toEqual(['the state of the fleet cannot be shown: a full disk'])
  })

  test('results of another state, of other weights and of another version are dropped', async () => {
    const { bus, told, crew } = await place()
    const world = { ...cart, numLanes: 8 }
    const tasks = await bus.queue('tasks', { seconds: 30, isOwner: true })
    const results = await bus.queue('results', { seconds: 30, isOwner: true })
    const putTask = tasks.put.bind(tasks)
    const put = results.put.bind(results)
    let isAsked = (_: Message) => {}
    const asked = new Promise<Message>((resolve) => {
      isAsked = resolve
    })
    tasks.put = (id, task) => {
      if (task.member === 1 && task.from === 0) isAsked(task)
      return putTask(id, task)
    }
    let forged = 0
    // Before member 1 is collected, it has rows of member 0 with all that fits but one.
    results.put = async (id, result) => {
      if (result.member !== 0 || result.rollout !== 0) return put(id, result)
      const { before, weights, version } = await asked
      const fitting = { ...result, member: 1, before, weights, version }
      for (const wrong of [{ before: result.before }, { weights: before }, { version: 7 }]) {
        await put(`forged.${forged++}`, { ...fitting, ...wrong } as Message)
      }
      return put(id, result)
    }
    const actor = runActor(bus)
    const learned = await train(world, ppo(small), 2, { actors: 2, crew: crew() })
    expect(forged).toBe(3)
    expect(learned).toEqual(await train(world, ppo(small), 2, {}))
    expect(told).toEqual([])
    await actor // The learner has ended.
    expect(await results.size()).toBe(0)
  })

  thorough(
    'a task of two rollouts that fails after the first is collected again, when that one is learned from',
    async () => {
      const { bus, crew } = await place()
      const tasks = await bus.queue('tasks', { seconds: 30, isOwner: true })
      const results = await bus.queue('results', { seconds: 30, isOwner: true })
      const [putTask, put] = [tasks.put.bind(tasks), results.put.bind(results)]
      const first = new Map<unknown, unknown>()
      tasks.put = (id, task) => {
        first.set(id, task.from)
        return putTask(id, task)
      }
      const algorithm = ppo({ ...small, maxStaleness: 2 })
      const trainer = createTrainer(await createWorld(cart), algorithm, { actors: 2, crew: crew() })
      let failed = -1
      results.put = async (id, result) => {
        const rollout = result.rollout as number
        if (failed >= 0 || first.get(result.id) === rollout || rollout < 4) return put(id, result)
        failed = rollout
        await expect.poll(() => trainer.update).toBe(rollout)
        throw new Error('a lost connection')
      }
      const actors = [runActor(bus), runActor(bus)]
      for await (const _ of trainer.updates({ totalSteps: 9 * cart.numLanes * small.numSteps }));
      trainer.close()
      expect(failed).toBeGreaterThan(0)
      expect((await Promise.all(actors)).reduce((sum, { failures }) => sum + failures, 0)).toBe(1)
    },
  )

  thorough('an actor that stays collects for one learner after another', async () => {
    const { bus, crew } = await place()
    const stop = new AbortController()
    const actor = runActor(bus, { stay: true, signal: stop.signal })
    for (const seed of [1, 2]) {
      const world = { ...cart, seed }
      const learned = await train(world, ppo(small), 2, { actors: 1, crew: crew() })
      expect(learned).toEqual(await train(world, ppo(small), 2, {}))
    }
    stop.abort()
    expect(await actor).toMatchObject({ rollouts: 4, failures: 0, end: 'signal' })
    // One that waits ends when the fleet is drained, and so does one that comes too late.
    const waits = runActor(bus, { stay: true })
    await (await bus.values('run', { isOwner: false })).put('order', { order: 'drain' })
    expect(await waits).toMatchObject({ rollouts: 0, end: 'drain' })
    expect(await runActor(bus, { stay: true })).toMatchObject({ rollouts: 0, end: 'drain' })
  })

  test('an actor that is drained does not wait for a store that is away', async () => {
    const { bus, crew } = await place()
    let asked = 0
    const server = createServer((_, response) => {
      asked++
      response.writeHead(503).end()
    })
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
    const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
    const dead = { kind: 'http', url, key: 'a key of more than sixteen letters' } as const
    const trainer = createTrainer(await createWorld(cart), ppo(small), { actors: 1, crew: crew('update', dead) })
    const collecting = trainer.updates({ totalSteps: 1 }).next()
    const refused = expect(collecting).rejects.toThrow('closed during an update')
    const actor = runActor(bus)
    await expect.poll(() => asked, { timeout: 20_000 }).toBeGreaterThan(0)
    await (await bus.values('run', { isOwner: false })).put('order', { order: 'drain' })
    expect(await actor).toMatchObject({ rollouts: 0, end: 'drain' })
    trainer.close()
    await refused
    server.close()
  })

  thorough(
    'a store that is full holds the run up until there is room, and an environment that fails ends it',
    async () => {
      const { bus, store, crew, told, folder } = await place()
      const put = store.put.bind(store)
      let refusals = 0
      // The first blobs are the lanes' states, which the learner puts before it begins.
      store.put = async (bytes) => {
        if (bytes.length < 10_000 || refusals >= 2) return put(bytes)
        refusals++
        throw new InputError('store', 'a disk that is full', 'a writable path')
      }
      const wide = { ...cart, policy: mlp({ hidden: [64, 64] }) }
      const algorithm = ppo(small)
      const actor = runActor(bus)
      const learned = await train(wide, algorithm, 2, { actors: 2, crew: crew() })
      await actor
      expect(refusals).toBe(2)
      expect(told.join()).toContain('a disk that is full')
      expect(learned).toEqual(await train(wide, algorithm, 2, {}))

      const module = join(folder, 'broken.mjs')
      await writeFile(module, BROKEN)
      const { broken: environment } = await import(/* @vite-ignore */ pathToFileURL(module).href)
      const broken = { ...cart, environment: environment() }
      const failing = runActor(bus, { modules: [module] })
      await expect(train(broken, algorithm, 2, { actors: 1, crew: crew() })).rejects.toThrow('the cart is broken')
      await failing
    },
  )
})
