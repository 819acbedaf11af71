/** Where the time and the memory of a training of a language model go. */
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
// Workers load compiled files, and what they share must be made by the same ones here.
import {
  configureRun,
  createTrainer,
  createWorld,
  languageModel,
  rl,
  sft,
  startRun,
  textEnvironmentFactory,
} from '../../../dist/src/index.js'
import { temporaryFolder } from '../../support/temporary.ts'

interface Event {
  readonly name: string
  readonly ph: string
  readonly tid: number
  readonly ts: number
  readonly dur: number
  readonly args: Readonly<Record<string, number>>
}

/** Two supervised steps and four updates. */
async function train(threads: number) {
  const algorithm = rl({ groupsPerUpdate: 8, groupSize: 4, updates: 4 })
  const { groupSize, temperature, topK, topP, minP } = algorithm.settings
  const world = await createWorld({
    environment: textEnvironmentFactory('text/reverse')({ maxLength: 6 } as never),
    policy: languageModel({ width: 64, layers: 2, heads: 2 }),
    ...{ numLanes: 16, groupSize, sampling: { temperature, topK, topP, minP }, seed: 1 },
  })
  const trainer = createTrainer(world, [sft({ updates: 2, batchSize: 40 }), algorithm], { threads, profile: true })
  const updates = []
  for await (const metrics of trainer.updates()) updates.push(metrics)
  const { traceEvents } = JSON.parse(trainer.trace()) as { traceEvents: Event[] }
  trainer.close()
  return { updates, events: traceEvents, beats: trainer.beats }
}

const sum = (values: readonly number[]) => values.reduce((total, value) => total + value, 0)

describe.each([1, 2])('with threads: %i', (threads) => {
  test('the kinds of work add up to the update, in the metrics and in the trace', async () => {
    const { updates, events } = await train(threads)
    const shares = updates.flatMap(({ rl, phaseSeconds }) =>
      rl === null ? [] : [sum(Object.values(phaseSeconds)) / (rl.rolloutSeconds + rl.updateSeconds)],
    )
    expect(shares.length).toBe(4)
    // Another program may have the core between two marks of an update, but hardly of all.
    expect(Math.max(...shares)).toBeGreaterThan(0.95)
    expect(Math.min(...shares)).toBeLessThan(1.05)
    const caller = sum(events.filter(({ ph, tid }) => ph === 'X' && tid === 0).map(({ dur }) => dur)) / 1e6
    const phases = sum(updates.map(({ phaseSeconds }) => sum(Object.values(phaseSeconds))))
    expect(caller / phases).toBeGreaterThan(0.95)
    expect(caller / phases).toBeLessThan(1.05)
  })

  test('each kind of work has its part: a supervised step collects nothing, an update does all', async () => {
    const { updates, events } = await train(threads)
    const shared = ['gather', 'forward', 'loss', 'backward'] as const // Whoever is free takes the next micro-batch.
    for (const { phase, phaseSeconds } of updates) {
      for (const name of threads === 1 ? shared : []) expect(phaseSeconds[name], `${phase}, ${name}`).toBeGreaterThan(0)
      expect(phaseSeconds.optimizer, phase).toBeGreaterThan(0)
      for (const name of ['reset', 'infer', 'step', 'store', 'advantage'] as const) {
        expect(phaseSeconds[name] > 0, `${phase}, ${name}`).toBe(phase === 'rl')
      }
    }
    const traced = events.filter(({ ph }) => ph === 'X')
    for (const name of shared) expect(traced.filter((event) => event.name === name).length, name).toBeGreaterThan(0)
    for (let tid = 0; tid < threads; tid++) {
      const names = new Set(traced.filter((event) => event.tid === tid).map(({ name }) => name))
      expect(names).toContain('infer')
      expect(names.has('optimizer')).toBe(tid === 0)
    }
    expect(new Set(events.map(({ tid }) => tid ?? 0)).size).toBe(threads)
  })

  test('the memory is told from the first update to the last', async () => {
    const { updates, events } = await train(threads)
    const samples = events.filter(({ ph }) => ph === 'C')
    expect(samples.length).toBeGreaterThanOrEqual(2)
    expect(samples.length).toBeLessThanOrEqual(updates.length + 1)
    const [last] = events.filter(({ ph, tid }) => ph === 'X' && tid === 0).slice(-1)
    expect(samples[0]!.ts).toBeLessThan(last!.ts)
    expect(samples.at(-1)!.ts).toBeGreaterThanOrEqual(last!.ts)
    for (const [i, { name, ts, args }] of samples.entries()) {
      expect(name).toBe('memory')
      expect(ts).toBeGreaterThanOrEqual(samples[i - 1]?.ts ?? 0)
      expect(args.resident).toBeGreaterThan(args.heap!)
      expect(args.heap).toBeGreaterThan(1 << 20)
      expect(args.arrayBuffers).toBeGreaterThanOrEqual(0)
    }
  })
})

test('a trainer keeps a trace only where it is asked for one', async () => {
  const environment = textEnvironmentFactory('text/reverse')()
  const world = await createWorld({
    environment,
    policy: languageModel({ width: 16, layers: 1 }),
    numLanes: 2,
    seed: 1,
  })
  const trainer = createTrainer(world, sft({ updates: 1, batchSize: 2 }))
  for await (const { phaseSeconds } of trainer.updates()) expect(phaseSeconds.forward).toBeGreaterThan(0)
  expect(() => trainer.trace()).toThrow(
    /trainer\.trace\(\): got a trainer without a profile, expected the option profile: true/,
  )
})

test('a run writes the trace where it is told to, and its metrics say what each kind of work took', async () => {
  const folder = join(await temporaryFolder(), 'run')
  const keys = { mode: 'sft', 'sft.updates': '2', 'sft.batchSize': '4', threads: '1', profile: 'true' }
  const shape = { 'languageModel.width': '16', 'languageModel.layers': '1' }
  const { files } = await (await startRun(await configureRun('text/copy', { ...keys, ...shape }), folder)).train()
  const { traceEvents } = JSON.parse(await readFile((files as Record<string, string>).trace!, 'utf8'))
  expect(traceEvents.filter(({ ph }: Event) => ph === 'C').length).toBeGreaterThanOrEqual(2)
  const [line] = (await readFile(join(folder, 'metrics.jsonl'), 'utf8')).split('\n')
  expect(JSON.parse(line!).phaseSeconds.backward).toBeGreaterThan(0)
})
