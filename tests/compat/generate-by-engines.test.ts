/** Training from what engines generate: several servers by their addresses, which are given the weights in between. */
import { readdir } from 'node:fs/promises'
import { join } from 'node:path'
import zlib from 'node:zlib'
import { expect, test } from 'vitest'
import { generateByEngines } from '../../src/compat/generate-by-engines.ts'
import { AsyncRolloutManager } from '../../src/compat/rollout-manager.ts'
import { runRlTraining } from '../../src/compat/training.ts'
import { openTrainingBackend } from '../../src/compat/training-backend.ts'
import { defineEngine } from '../../src/engines/define-engine.ts'
import { sglangEngine } from '../../src/engines/servers/sglang.ts'
import { vllmEngine } from '../../src/engines/servers/vllm.ts'
import { transformerLogprobs } from '../../src/entries/text.ts'
import { DataBuffer } from '../../src/language/datasets/data-buffer.ts'
import type { Sample } from '../../src/tables/trajectories/sample.ts'
import { get, served, smallModel } from '../support/serving.ts'
import { temporaryFolder } from '../support/temporary.ts'

/** Node has it since 22.15. */
const hasZstd = 'zstdCompressSync' in zlib

const buffer = () => new DataBuffer(['x', 'y', 'z'], 5)
const places = (count: number) =>
  Array.from({ length: count }, (_, member) => ({ epoch: 0, promptId: 0, group: 0, member }))

test('several servers generate what is learned from, and are given the weights every so many steps', async () => {
  const weights = await temporaryFolder()
  const servers = [await served({ control: true, slots: 8 }), await served({ control: true, slots: 8 })]
  const [one, two] = servers.map(({ url }) => url)
  // What has changed of the weights, where Node has zstd.
  const [source, local] = [await temporaryFolder(), await temporaryFolder()]
  const given = hasZstd ? { weights: source, deltas: local } : { weights }
  const engines = [vllmEngine({ url: one!, weights }), sglangEngine({ url: two!, ...given, logprobs: 'candidates' })]
  const backend = await openTrainingBackend({
    policy: smallModel(),
    engines,
    slots: 16,
    optimizer: { learningRate: 0.02 },
  })
  const samples: Sample[] = []
  const manager = new AsyncRolloutManager(buffer(), {
    ...{ batchSize: 4, nSamplesPerPrompt: 8, overSamplingFactor: 1.5 },
    generateFn: generateByEngines(backend, { maxTokens: 6 }),
    rewardFn(sample) {
      samples.push(sample)
      return [...sample.response].filter((each) => /[a-z]/.test(each)).length / 6
    },
  })
  /** The weights at each delivery, by version. */
  const delivered = new Map<number, Float32Array>()
  const { getWeights } = backend
  backend.getWeights = (version) => {
    const asked = getWeights.call(backend, version)
    void asked.then((delivery) => delivered.set(version, delivery.weights.slice()))
    return asked
  }
  const steps = await runRlTraining(backend, manager.buffer, manager, backend.engines, {
    ...{ numSteps: 12, syncEvery: 2, checkpointEvery: 0 },
  })
  await manager.close()
  expect([...delivered.keys()]).toEqual([0, 2, 4, 6, 8, 10, 12])
  const mean = (part: typeof steps) => part.reduce((sum, { reward }) => sum + reward!, 0) / part.length
  expect(mean(steps.slice(-3))).toBeGreaterThan(mean(steps.slice(0, 3)) + 0.2)
  const { model } = backend.world.cohort()
  const versionsOf = ({ weightVersions }: Sample) =>
    new Set(Array.from(weightVersions).filter((version) => version >= 0))
  let count = 0
  for (const [version, by] of delivered) {
    const whole = samples.filter((sample) => versionsOf(sample).size === 1 && versionsOf(sample).has(version))
    if (whole.length === 0) continue
    const expected = await transformerLogprobs({ model, weights: by }).logprobs(
      whole.map(({ tokens }) => [...(tokens as number[])]),
    )
    for (const [s, { lossMask, rolloutLogProbs }] of whole.entries()) {
      for (const [t, flag] of Array.from(lossMask).entries()) {
        if (flag === 1) expect(rolloutLogProbs[t]).toBeCloseTo(expected[s]![t - 1]!, 4)
      }
      count++
    }
  }
  expect(count).toBeGreaterThan(12 * 32 * 0.8)
  for (const { url } of servers) expect((await get(`${url}/weight_info`)).json).toMatchObject({ weight_version: '12' })
  const versions = (await readdir(source)).filter((name) => name.startsWith('weight_v')).toSorted()
  const files = await Promise.all(versions.map((name) => readdir(join(source, name))))
  const areWhole = files.map((names) => names.includes('model.safetensors'))
  expect(areWhole).toEqual(hasZstd ? [...delivered.keys()].map((version) => version === 0) : [])
}, 60_000)

test('a group of which some may be of other weights is generated again, and one that engines cannot give fails', async () => {
  let begun = 0
  const proofs = [false, true]
  const doubtful = defineEngine('doubtful', () => ({
    logprobs: 'candidates',
    async begin(turn) {
      begun++
      if (turn.request.maxTokens === 3) throw new Error('three are too many')
      while (turn.isOpen) turn.add(turn.ids.length % 5, -1)
    },
    prove: async () => proofs.shift() ?? true,
  }))
  const backend = await openTrainingBackend({ policy: smallModel(), engines: [doubtful] })
  const answer = await generateByEngines(backend, { maxTokens: 2 })(['a', 'a'], new AbortController().signal, places(2))
  expect([begun, proofs.length, answer.map(({ status }) => status)]).toEqual([4, 0, ['truncated', 'truncated']])
  const failing = generateByEngines(backend, { maxTokens: 3 })(['a'], new AbortController().signal, places(1))
  await expect(failing).rejects.toThrow('three are too many')
})

test('refuses what it cannot use', async () => {
  const without = await openTrainingBackend({ policy: smallModel() })
  expect(() => generateByEngines(without, { maxTokens: 2 })).toThrow(
    /backend, engines: got \[\], expected at least one/,
  )
  const engine = defineEngine('none', () => ({ logprobs: 'none', begin: () => {} }))
  const backend = await openTrainingBackend({ policy: smallModel(), engines: [engine] })
  expect(() => generateByEngines(backend, { maxTokens: 0 })).toThrow(/maxTokens: got 0/)
  expect(() => generateByEngines(backend, { max: 2 } as never)).toThrow(/"max"/)
  const long = generateByEngines(backend, { maxTokens: 2 })(['a'.repeat(99)], new AbortController().signal, places(1))
  await expect(long).rejects.toThrow(/prompt 0 of epoch 0: got \d+ tokens, expected at most 63/)
  await expect(openTrainingBackend({ policy: smallModel(), slots: 4 })).rejects.toThrow(/slots: got 4 without engines/)
  await expect(openTrainingBackend({ policy: smallModel(), engines: [] })).rejects.toThrow(
    /members of a pool: got \[\]/,
  )
})
