/** Gradients that a learner computes together with helpers: the bits of a learner alone. */
// Helpers import the modules of what is built, and what they make must be made of the same ones here.
import { describe, expect, test, vi } from 'vitest'
import { dqn, qNetwork } from '../../../dist/src/entries/algorithms.js'
import { MemoryBus } from '../../../dist/src/fleet/bus/memory-bus.js'
import { FolderStore } from '../../../dist/src/fleet/store/folder-store.js'
import {
  type AlgorithmDefinition,
  cartPole,
  createTrainer,
  createWorld,
  mlp,
  ppo,
  type WorldOptions,
} from '../../../dist/src/index.js'
import { runActor } from '../../../dist/src/training/fleet/fleet-actor.js'
import { fleetCrew } from '../../../dist/src/training/fleet/fleet-crew.js'
import { runHelper } from '../../../dist/src/training/fleet/fleet-helper.js'
import type { CrewDefinition } from '../../../dist/src/training/threads/crew.js'
import { helpersOn } from '../../support/gradient-helpers.ts'
import { temporaryFolder } from '../../support/temporary.ts'
import { rowsOf, thorough } from '../../support/tiers.ts'

const cart = { environment: cartPole(), policy: mlp({ hidden: [8] }), numLanes: 30, seed: 3 }
/** Minibatches of 5 blocks, of which the last is cut: shares of four slots and of one. */
const settings = { numSteps: 80, numMinibatches: 2, updateEpochs: 2, learningRate: 2e-3 }

async function place(seconds = 30, tell = (_: string) => {}) {
  const folder = await temporaryFolder()
  const [bus, store] = [new MemoryBus(), new FolderStore(folder)]
  const told: string[] = []
  const crew = (learners: number): CrewDefinition =>
    fleetCrew({
      open: async () => ({ bus, store, storeAddress: { kind: 'folder', path: folder }, close: async () => {} }),
      ...{ acknowledge: 'update', seconds, learners },
      tell: (message) => {
        told.push(message)
        tell(message)
      },
    })
  return { bus, store, told, crew }
}

/** The weights after some updates, and each update's metrics of learning; `joined` is awaited after the first. */
async function train(
  world: WorldOptions,
  algorithm: AlgorithmDefinition,
  updates: number,
  options: object,
  joined: () => Promise<unknown> = async () => {},
) {
  const trainer = createTrainer(await createWorld(world), algorithm, options)
  const totalSteps = updates * cart.numLanes * settings.numSteps
  const metrics: object[] = []
  for await (const { update, policyLoss, gradNorm, entropy } of trainer.updates({ totalSteps }) as AsyncIterable<
    Record<string, number>
  >) {
    metrics.push({ policyLoss, gradNorm, entropy })
    if (update === 1) await joined()
  }
  const { weights } = trainer.world.cohort() as unknown as { weights: Float32Array }
  trainer.close()
  return { weights: [...weights], metrics }
}

describe('learners in several processes', () => {
  const rows = rowsOf<[number, number, number]>(
    [
      [2, 1, 0],
      [4, 2, 1],
      [16, 1, 0],
    ],
    1,
  )
  test.each(rows)('%i shares by a learner and %i helpers have the bits of one, at staleness %i', async (...row) => {
    const [learners, count, maxStaleness] = row
    const { bus, store, told, crew } = await place()
    const algorithm = ppo({ ...settings, maxStaleness })
    const expected = await train(cart, algorithm, 3, maxStaleness === 0 ? {} : { actors: 1 })
    const actor = runActor(bus)
    const helpers = helpersOn(bus, count)
    const learned = await train(cart, algorithm, 3, { actors: 1, crew: crew(learners) }, helpers.joined)
    const ended = await helpers.ended()
    expect(learned).toEqual(expected)
    // Two updates of four gradients; the learner computes its own shares.
    for (const { shares, failures, end } of ended) {
      expect([shares >= 8, failures, end]).toEqual([true, 0, 'run'])
    }
    await actor
    expect(told).toEqual([])
    expect((await store.list()).length).toBeLessThan(12)
  })

  test('a signal that comes during an update ends the training after it, to the same bits', async () => {
    const { bus, crew } = await place()
    const steps = (updates: number) => updates * cart.numLanes * settings.numSteps
    const trainer = createTrainer(await createWorld(cart), ppo(settings), { actors: 1, crew: crew(4) })
    const actor = runActor(bus, { stay: true })
    const helpers = helpersOn(bus, 1)
    for await (const _ of trainer.updates({ totalSteps: steps(1) }));
    await helpers.joined()
    const stop = new AbortController()
    let asked = 0
    const values = await bus.values('gradients', { isOwner: false })
    const unwatch = await values.watch((key) => {
      if (key === 'task' && ++asked === 2) stop.abort()
    })
    for await (const _ of trainer.updates({ totalSteps: steps(9), signal: stop.signal }));
    unwatch()
    const { update } = trainer
    expect([stop.signal.aborted, update < 9]).toEqual([true, true])
    const weights = [...(trainer.world.cohort() as unknown as { weights: Float32Array }).weights]
    trainer.close()
    await helpers.ended()
    await (await bus.values('run', { isOwner: false })).put('order', { order: 'drain' })
    await actor
    const alone = createTrainer(await createWorld(cart), ppo(settings))
    for await (const _ of alone.updates({ totalSteps: steps(1) }));
    for await (const _ of alone.updates({ totalSteps: steps(9) })) if (alone.update >= update) break
    expect(alone.update).toBe(update)
    expect(weights).toEqual([...(alone.world.cohort() as unknown as { weights: Float32Array }).weights])
  })

  test('what a helper owes that fell silent, or has answered otherwise, is computed by the learner', async () => {
    // No second passes until the lost blob is told of, however slow this machine is.
    let clock: { mockRestore(): void } | undefined
    const { bus, told, crew } = await place(1, (message) => message.startsWith('blob') && clock!.mockRestore())
    const expected = await train(cart, ppo(settings), 3, {})
    const actor = runActor(bus)
    let asked = 0
    const join = async () => {
      clock = vi.spyOn(performance, 'now').mockReturnValue(performance.now())
      const { session } = (await (await bus.values('run', { isOwner: false })).get('description'))!.value
      const values = await bus.values('gradients', { isOwner: false })
      const stale = { session, task: `${session}.0`, results: { 1: '0'.repeat(64) }, error: null }
      await values.put('helper.silent', stale)
      await values.put('helper.foreign', { ...stale, session: 'another' })
      await values.put('helper.lost', stale)
      await values.watch((key, value) => {
        if (key !== 'task') return
        asked++
        const { id, helpers } = value as unknown as { id: string; helpers: (string | null)[] }
        expect(helpers).not.toContain('helper.foreign')
        void values.put('helper.lost', {
          ...stale,
          task: id,
          results: { [helpers.indexOf('helper.lost')]: '1'.repeat(64) },
        })
      })
    }
    const learned = await train(cart, ppo(settings), 3, { actors: 1, crew: crew(4) }, join)
    expect(learned).toEqual(expected)
    expect(asked).toBeGreaterThan(0)
    expect(told.join('\n')).toMatch(/blob 1{64}: got none in the store.*share \d of the gradient is computed again/)
    expect(told.join('\n')).toContain('helper.silent is silent: its share is computed here')
    await actor
  })

  thorough('gradients wait neither for a store that is full nor for a bus that is away', async () => {
    const { bus, store, told, crew } = await place(1)
    const expected = await train(cart, ppo(settings), 3, {})
    const actor = runActor(bus)
    const helpers = helpersOn(bus, 1)
    const stall = async () => {
      await helpers.joined()
      const values = await bus.values('gradients', { isOwner: false })
      const [put, send] = [store.put.bind(store), values.put.bind(values)]
      let [refusals, isAway] = [0, false]
      store.put = async (bytes) => {
        // The inputs of gradients are safetensors, whose head is JSON.
        if (refusals > 0 || bytes[8] !== '{'.charCodeAt(0)) return put(bytes)
        refusals++
        throw new Error('a disk that is full')
      }
      // A bus that is away takes nothing, so the helper falls silent.
      values.put = async (key, value) => {
        isAway ||= key === 'task'
        return isAway ? new Promise<number>((resolve) => setTimeout(() => resolve(1), 3000)) : send(key, value)
      }
    }
    const learned = await train(cart, ppo(settings), 3, { actors: 1, crew: crew(4) }, stall)
    expect(learned).toEqual(expected)
    expect(told).toEqual([
      'a disk that is full: gradients are computed without helpers',
      'the helpers cannot be reached: gradients are computed here',
    ])
    await helpers.ended()
    await actor
  })

  test('algorithms without shares, devices, several threads and runs without helpers are refused', async () => {
    const { bus, crew } = await place()
    const make = async (algorithm: AlgorithmDefinition, options: object) =>
      createTrainer(await createWorld(cart), algorithm, options)
    await expect(make(ppo(settings), { actors: 1, threads: 3, crew: crew(2) })).rejects.toThrow(
      'learners: got 2, and 2 threads that learn, expected 1, or one thread',
    )
    const values = { ...cart, policy: qNetwork({ hidden: [8] }) }
    const refusedAlgorithm = async () => createTrainer(await createWorld(values), dqn(), { actors: 1, crew: crew(2) })
    await expect(refusedAlgorithm()).rejects.toThrow('learners: got 2, and dqn, whose gradients have no shares')
    const { build } = cart.policy
    const updateOnDevice = () => ({}) as never
    const onDevice = {
      ...cart.policy,
      build: (...spaces: Parameters<typeof build>) => ({ ...build(...spaces), updateOnDevice }),
    }
    const refusedDevice = async () =>
      createTrainer(await createWorld({ ...cart, policy: onDevice }), ppo(settings), { actors: 1, crew: crew(2) })
    await expect(refusedDevice()).rejects.toThrow(
      'learners: got 2, and a policy that updates on a device, expected 1, or device none',
    )
    const refused = expect(runHelper(bus)).rejects.toThrow(
      'role: got learn, in a run whose learner computes gradients alone, expected a run with learners=2 or more',
    )
    const actor = runActor(bus)
    await train(cart, ppo(settings), 2, { actors: 1, crew: crew(1) }, () => refused)
    await actor
    await refused
  })
})
