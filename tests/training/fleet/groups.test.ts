/** A learner of a language model and actors over a fleet's contracts, in one process: the bits of one process. */
// Actors import the modules of what is built, and what they make must be made of the same ones here.
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { pathToFileURL } from 'node:url'
import { describe, expect, test } from 'vitest'
import { InputError } from '../../../dist/src/base/errors.js'
import { MemoryBus } from '../../../dist/src/fleet/bus/memory-bus.js'
import { FolderStore } from '../../../dist/src/fleet/store/folder-store.js'
import {
  configureRun,
  createTrainer,
  createWorld,
  languageModel,
  rl,
  startRun,
  type TextEnvironmentDefinition,
  type TrainerOptions,
  textEnvironmentFactory,
} from '../../../dist/src/index.js'
import { Trajectories } from '../../../dist/src/tables/trajectories/trajectories.js'
import type { Trajectory } from '../../../dist/src/tables/trajectories/trajectory.js'
import { joinRun } from '../../../dist/src/training/fleet/description.js'
import { runActor } from '../../../dist/src/training/fleet/fleet-actor.js'
import { fleetCollector } from '../../../dist/src/training/fleet/fleet-groups.js'
import { groupsFromBytes, groupsToBytes } from '../../../dist/src/training/fleet/group-parts.js'
import { GroupWork } from '../../../dist/src/training/fleet/group-work.js'
import type { CollectorDefinition } from '../../../dist/src/training/loop/collector.js'
import { temporaryFolder } from '../../support/temporary.ts'
import { rowsOf, thorough } from '../../support/tiers.ts'

/** An environment of a user, whose example fails. */
const BROKEN = `
import { defineTextEnvironment } from '${new URL('../../../dist/src/index.js', import.meta.url).href}'
export const broken = defineTextEnvironment({
  ...{ id: 'broken', module: import.meta.url, settings: {} },
  make: () => ({
    ...{ numExamples: 8, alphabet: 'ab', maxTokens: 4, maxTurns: 1 },
    example() {
      if (globalThis.isBroken) throw new Error('the example is broken')
      return { prompt: 'ab' }
    },
    respond: () => ({ reward: 1 }),
  }),
})`

const sampling = { temperature: 1.2, topK: 8 }

/** `delay`: milliseconds before the learner's store begins to keep what is put. */
async function place(delay = 0) {
  const folder = await temporaryFolder()
  const [bus, store] = [new MemoryBus(), new FolderStore(folder)]
  const put = store.put.bind(store)
  if (delay > 0) store.put = (bytes) => sleep(delay).then(() => put(bytes))
  const told: string[] = []
  const collector = (actors: number, acknowledge: 'update' | 'checkpoint' = 'update'): CollectorDefinition =>
    fleetCollector(actors, {
      open: async () => ({ bus, store, storeAddress: { kind: 'folder', path: folder }, close: async () => {} }),
      acknowledge,
      seconds: 30,
      tell: (message) => told.push(message),
    })
  return { bus, store, folder, told, collector }
}

interface Text {
  readonly environment?: TextEnvironmentDefinition
  readonly lora?: number
  readonly maxStaleness?: number
  readonly updates?: number
}

async function trainerOf(
  { environment = textEnvironmentFactory('text/reverse')(), lora = 0, maxStaleness = 0, updates = 3 }: Text,
  options: TrainerOptions,
) {
  const world = await createWorld({
    environment,
    policy: languageModel({ width: 16, layers: 1, heads: 2, context: 40, loraRank: lora }),
    ...{ numLanes: 8, seed: 5, groupSize: 4, sampling },
  })
  const correction = maxStaleness === 0 ? {} : { lossSettings: { correction: 'token-truncate' } }
  const learning = rl({ updates, groupsPerUpdate: 5, groupSize: 4, maxStaleness, ...sampling, ...correction } as never)
  return createTrainer(world, learning, options)
}

async function learn(text: Text, options: TrainerOptions = {}) {
  const trainer = await trainerOf(text, options)
  const rewards: (number | null)[] = []
  const staleness: unknown[] = []
  for await (const { rl } of trainer.updates()) {
    rewards.push(rl!.reward)
    staleness.push(rl!.staleness)
  }
  const { weights, adapter, trajectories } = trainer.world.cohort()
  const rows = trajectories.order().map((i) => {
    const { token, logprob, version, ...row } = trajectories.row(i)
    return { ...row, token: Array.from(token), logprob: Array.from(logprob), version: Array.from(version) }
  })
  const made = { weights: [...(adapter?.weights ?? weights)], rows, rewards, staleness }
  trainer.close()
  return made
}

describe('groups of conversations by a fleet in one process', () => {
  const texts = rowsOf<[string, Text, number]>(
    [
      ['text/reverse by three', {}, 3],
      ['text/reverse by one, with an adapter', { lora: 2 }, 1],
      ['turns of text/guess-number by two', { environment: textEnvironmentFactory('text/guess-number')() }, 2],
    ],
    1,
  )
  test.each(texts)('%s learn the same as one process, to the bit', async (_, text, numActors) => {
    const { bus, store, told, collector } = await place()
    const expected = await learn(text)
    const actors = Array.from({ length: numActors }, () => runActor(bus))
    const learned = await learn(text, { collector: collector(numActors) })
    const ended = await Promise.all(actors)
    expect(learned).toEqual(expected)
    expect(ended.map(({ end, failures }) => [end, failures])).toEqual(actors.map(() => ['run', 0]))
    expect(told).toEqual([])
    expect((await store.list()).length).toBeLessThan(3)
  })

  thorough(
    'one update ahead: the same bits with any number of actors, and where the learner goes on from a checkpoint',
    async () => {
      const text = { maxStaleness: 1, updates: 4 }
      const alone = async (numActors: number) => {
        const { bus, collector } = await place()
        const actors = Array.from({ length: numActors }, () => runActor(bus))
        const learned = await learn(text, { collector: collector(numActors) })
        await Promise.all(actors)
        return learned
      }
      const expected = await alone(1)
      expect(await alone(3)).toEqual(expected)
      expect(expected.staleness).toMatchObject([0, 1, 1, 1].map((age) => ({ mean: age, max: age })))

      // So slow that weights are still on their way when the state is saved.
      const { bus, store, folder, told, collector } = await place(500)
      const stop = new AbortController()
      const actors = [1, 2].map(() => runActor(bus, { stay: true, signal: stop.signal }))
      const first = await trainerOf(text, { collector: collector(2, 'checkpoint') })
      for await (const _ of first.updates()) {
        if (first.update === 1) await sleep(2000) // All groups of the second update come.
        if (first.update === 2) await first.save(join(folder, 'saved'))
        if (first.update === 3) break // What it learned after the checkpoint is lost.
      }
      first.close()
      const second = await trainerOf(text, { collector: collector(2, 'checkpoint') })
      await second.restore(join(folder, 'saved'))
      for await (const _ of second.updates());
      await second.save(join(folder, 'saved'))
      expect([...second.world.cohort().weights]).toEqual(expected.weights)
      second.close()
      stop.abort()
      await Promise.all(actors)
      expect(told).toEqual([])
      expect((await store.list()).length).toBeLessThan(5)
    },
  )

  thorough('a restored state publishes its own weights, whatever had been on its way before', async () => {
    const { bus, store, folder, told, collector } = await place()
    const text = { updates: 2 }
    const trainer = await trainerOf(text, { collector: collector(1, 'checkpoint') })
    const stop = new AbortController()
    const actor = runActor(bus, { stay: true, signal: stop.signal })
    await trainer.updates().next()
    await trainer.save(join(folder, 'saved'))
    const { weights } = trainer.world.cohort()
    weights.fill(0.01)
    const put = store.put.bind(store)
    store.put = async (bytes) => {
      if (bytes.length < weights.byteLength) return put(bytes)
      throw new InputError('store', 'a disk that is full', 'a writable path')
    }
    const signal = new AbortController()
    const cut = trainer.updates({ signal: signal.signal }).next()
    await expect.poll(() => told.join()).toContain('the training waits for it')
    signal.abort()
    await cut
    await trainer.restore(join(folder, 'saved'))
    store.put = put
    for await (const _ of trainer.updates());
    expect([...weights]).toEqual((await learn(text)).weights)
    trainer.close()
    stop.abort()
    await actor
  })

  test('a learner that goes on from a checkpoint tells its updates and conversations, though it ends before the next one', async () => {
    const { bus, folder, collector } = await place()
    const first = await trainerOf({}, { collector: collector(1) })
    const actor = runActor(bus)
    await first.updates().next()
    await first.save(join(folder, 'saved'))
    first.close()
    await actor
    const second = await trainerOf({}, { collector: collector(1) })
    await second.restore(join(folder, 'saved'))
    const stop = new AbortController()
    const cut = second.updates({ signal: stop.signal }).next()
    const run = await bus.values('run', { isOwner: false })
    const told = async () => (await run.get('learner'))!.value
    await expect.poll(told).toMatchObject({ state: 'running' })
    stop.abort()
    await cut
    second.close()
    await expect.poll(told).toMatchObject({ state: 'ended', update: 1, steps: 5 * 4 })
  })

  test('another model, other examples, and rows that are not whole groups by the right weights are refused', async () => {
    const { bus, collector } = await place()
    const trainer = await trainerOf({ updates: 1 }, { collector: collector(1) })
    const cohort = trainer.world.cohort()
    const actor = runActor(bus)
    await trainer.updates().next()
    const run = await bus.values('run', { isOwner: false })
    const description = (await run.get('description'))!.value
    trainer.close()
    await actor
    const joined = await joinRun(description, [])
    const wider = { ...joined, policy: languageModel({ width: 32, layers: 1, heads: 2, context: 40 }) }
    const other = { ...joined, environment: textEnvironmentFactory('text/copy')() }
    for (const each of [wider, other] as unknown as (typeof joined)[]) {
      await expect(GroupWork.open(each)).rejects.toThrow(
        /model of the actor: got [\da-f]{16}, expected [\da-f]{16}, as the learner's: the same model, frozen weights and examples/,
      )
    }

    const task = { id: '', from: 0, until: 2, version: 0, weights: '' }
    const first = (cohort.trajectories as Trajectories).take(cohort.trajectories.order().slice(0, 8))
    const expectRefused = async (change: (row: Trajectory) => object | null, got: string) => {
      const changed = new Trajectories()
      for (let i = 0; i < first.count; i++) {
        const row = first.row(i)
        const made = change(row)
        if (made !== null) changed.append({ ...row, ...made })
      }
      await expect(groupsFromBytes(cohort, task, await groupsToBytes(changed))).rejects.toThrow(
        `groups 0 to 1: got ${got}`,
      )
    }
    const whole = await groupsFromBytes(cohort, task, await groupsToBytes(first))
    expect([...whole].map(([group, members]) => [group, members.map(({ length }) => length)])).toEqual([
      [0, [1, 1, 1, 1]],
      [1, [1, 1, 1, 1]],
    ])
    const isLast = ({ group, member }: Trajectory) => group === 1 && member === 3
    await expectRefused((row) => (isLast(row) ? null : {}), 'no row of member 3 of group 1, expected whole groups')
    await expectRefused(
      (row) => (isLast(row) ? { group: 2 } : {}),
      'member 3 of group 2, expected rows of 4 members each',
    )
    await expectRefused((row) => (isLast(row) ? { member: 4 } : {}), 'member 4 of group 1')
    await expectRefused((row) => (isLast(row) ? { source: 'elsewhere' } : {}), 'source "elsewhere"')
    await expectRefused(
      (row) => ({ version: Array.from(row.version, (each) => (each === 0 ? 1 : each)) }),
      'tokens of other weights, expected rows of 4 members each, by weights 0',
    )
    await expectRefused(({ token }) => ({ token: Array.from(token, () => 300) }), 'a token beyond the vocabulary')
  })

  thorough('the error of an environment reaches the learner', async () => {
    const { bus, collector, folder } = await place()
    const path = join(folder, 'broken.mjs')
    await writeFile(path, BROKEN)
    const { broken } = await import(pathToFileURL(path).href)
    const trainer = await trainerOf({ environment: broken() }, { collector: collector(1) })
    const tell = (message: string) => {
      if (message.startsWith('collects')) Object.assign(globalThis, { isBroken: true })
    }
    const actor = runActor(bus, { modules: [path], tell })
    await expect(trainer.updates().next()).rejects.toThrow(/^actor .*: the example is broken$/)
    trainer.close()
    expect(await actor).toMatchObject({ failures: 3, end: 'run' })
    Object.assign(globalThis, { isBroken: false })
  })

  test.each([
    [{ mode: 'sft' }, 'mode: got sft, expected rl or sft+rl, whose conversations actors collect'],
    [
      { engine: 'vllm:http://127.0.0.1:1', engineSettings: 'weights=/tmp' },
      'engine: got vllm:http://127.0.0.1:1, expected local with a fleet',
    ],
    [{ backend: 'tinker:http://127.0.0.1:1' }, 'backend: got tinker:http://127.0.0.1:1, expected local with a fleet'],
    [{ fleet: '' }, 'store: got "/nowhere", expected none, since fleet is \'\''],
  ])('a run with %o is refused', async (settings, message) => {
    const given = { fleet: 'nats://127.0.0.1:1/name', store: '/nowhere', ...settings } as unknown as Record<
      string,
      string
    >
    await expect(startRun(await configureRun('text/reverse', given))).rejects.toThrow(message)
  })
})
