/** Weights as what has changed of them. Node has zstd since 22.15; before that deltas are refused, and these tests are skipped. */
import { cp, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import * as zlib from 'node:zlib'
import { describe, expect, test } from 'vitest'
import { readSafetensors, tensorValues } from '../../src/base/files/safetensors.ts'
import { sglangEngine } from '../../src/engines/servers/sglang.ts'
import { adler32, pullWeights, WeightsSource } from '../../src/engines/weight-deltas.ts'
import { createTrainer, rl } from '../../src/index.ts'
import { transformer } from '../../src/language/transformer/model.ts'
import { talkWorld } from '../support/conversations.ts'
import { pair } from '../support/server-engines.ts'
import { temporaryFolder } from '../support/temporary.ts'

const hasZstd = 'zstdCompressSync' in zlib
if (!hasZstd) console.warn(`SKIPPED: weights as deltas (Node ${process.versions.node} has no zstd, 22.15 has)`)

test('Adler-32 is that of RFC 1950', () => {
  expect(adler32(new TextEncoder().encode('Wikipedia'))).toBe('11e60398')
  expect(adler32(new Uint8Array(0))).toBe('00000001')
  // So many that sums would pass 2^32: of n bytes b of 255 the sums are 1 + 255 n and n + 255 n (n + 1) / 2.
  const [n, modulus] = [1_000_000n, 65_521n]
  const [a, b] = [(1n + 255n * n) % modulus, (n + (255n * n * (n + 1n)) / 2n) % modulus]
  expect(adler32(new Uint8Array(Number(n)).fill(255))).toBe((b * 65_536n + a).toString(16).padStart(8, '0'))
})

test.skipIf(hasZstd)('deltas are refused where Node has no zstd', () => {
  expect(() => sglangEngine({ url: 'http://x', weights: '/w', deltas: '/d' })).toThrow(
    /^sglang.deltas: got Node [\d.]+, which has no zstd, expected Node 22.15 or newer, for deltas$/,
  )
})

describe.skipIf(!hasZstd)('weights as what has changed of them', () => {
  const { model, weights: first } = smallModel()

  function smallModel() {
    const model = transformer({
      ...{ model_type: 'llama', vocab_size: 40, hidden_size: 32, num_hidden_layers: 2, num_attention_heads: 2 },
      ...{ intermediate_size: 64, max_position_embeddings: 16, rms_norm_eps: 1e-5, rope_theta: 1e4 },
    })
    const weights = Float32Array.from({ length: model.numParameters }, (_, i) => Math.sin(i) / 3)
    return { model, weights }
  }
  /** Another tenth of the numbers, a little different. */
  const changed = (weights: Float32Array, step: number) =>
    weights.map((value, i) => (i % 10 === step % 10 ? value + 1e-4 * Math.cos(i + step) : value))
  const sizeOf = async (folder: string) => {
    const names = (await readdir(folder)).filter((name) => name.endsWith('.safetensors'))
    return (await Promise.all(names.map(async (name) => (await stat(join(folder, name))).size))).reduce(
      (a, b) => a + b,
      0,
    )
  }
  async function expectPulled(local: string, weights: Float32Array) {
    const { tensors } = await readSafetensors(join(local, 'model.safetensors'))
    let count = 0
    for (const { name, offset, shape } of model.parameters) {
      const values = tensorValues(tensors.get(name)!)
      expect(values, name).toEqual(weights.slice(offset, offset + shape.reduce((a, b) => a * b, 1)))
      count += values.length
    }
    expect(count).toBe(weights.length)
  }
  async function published(count: number) {
    const folder = await temporaryFolder()
    const source = new WeightsSource(folder, model)
    const [versions, numbers]: [Float32Array[], number[]] = [[first], [await source.publish(first)]]
    for (let i = 1; i < count; i++) {
      versions.push(changed(versions.at(-1)!, i))
      numbers.push(await source.publish(versions.at(-1)!))
    }
    return { folder, source, versions, numbers, path: (i: number) => join(folder, `weight_v${numbers[i]}`) }
  }

  test('come to the same bits step by step, all at once, and from a folder that is behind', async () => {
    const { folder, versions, numbers, path } = await published(4)
    expect(numbers).toEqual([0, 1, 2, 3].map((i) => numbers[0]! + i))
    const [steps, late] = [join(await temporaryFolder(), 'a'), join(await temporaryFolder(), 'b')]
    for (const [i, number] of numbers.entries()) {
      await pullWeights(steps, folder, number)
      await expectPulled(steps, versions[i]!)
    }
    await pullWeights(late, folder, numbers[3]!)
    await expectPulled(late, versions[3]!)
    // Back again: from the last whole model.
    await pullWeights(late, folder, numbers[1]!)
    await expectPulled(late, versions[1]!)
    expect(await readFile(join(late, 'config.json'))).toEqual(await readFile(join(path(0), 'config.json')))
    // A tenth of the numbers changed.
    expect(await sizeOf(path(2))).toBeLessThan(0.4 * (await sizeOf(path(0))))
    const index = JSON.parse(await readFile(join(path(2), 'model.safetensors.index.json'), 'utf8'))
    expect(index.metadata).toMatchObject({ version: String(numbers[2]), base_version: String(numbers[1]) })
  })

  test('leave out tensors that did not change', async () => {
    const folder = await temporaryFolder()
    const source = new WeightsSource(folder, model)
    await source.publish(first)
    const next = first.slice()
    next[0]! += 1
    const number = await source.publish(next)
    const index = await readFile(join(folder, `weight_v${number}`, 'model.safetensors.index.json'), 'utf8')
    expect(Object.keys(JSON.parse(index).weight_map)).toEqual([model.parameters[0]!.name])
    await pullWeights(join(folder, 'local'), folder, number)
    await expectPulled(join(folder, 'local'), next)
  })

  test('are put together anew where a folder is not what it was, and refused where a version is', async () => {
    const { folder, versions, numbers, path } = await published(3)
    const local = join(await temporaryFolder(), 'local')
    await pullWeights(local, folder, numbers[1]!)
    // Other weights under the name of this version.
    await cp(join(path(0), 'model.safetensors'), join(local, 'model.safetensors'))
    await pullWeights(local, folder, numbers[2]!)
    await expectPulled(local, versions[2]!)
    // A delta under the name of another: its base is not the one before.
    await rm(path(1), { recursive: true })
    await expect(pullWeights(join(folder, 'new'), folder, numbers[2]!)).rejects.toThrow(`no ${path(1)}`)
    await cp(path(2), path(1), { recursive: true })
    await expect(pullWeights(join(folder, 'new'), folder, numbers[2]!)).rejects.toThrow(/base_version: got "\d+"/)
    // What comes of it is not what it says.
    const index = join(path(1), 'model.safetensors.index.json')
    const text = (await readFile(index, 'utf8')).replace(
      `"base_version":"${numbers[1]}"`,
      `"base_version":"${numbers[0]}"`,
    )
    await writeFile(index, text)
    await expect(pullWeights(join(folder, 'new'), folder, numbers[1]!)).rejects.toThrow(
      /Adler-32 \w{8}, expected \w{8}/,
    )
  })

  test('come whole again after sixteen deltas, and what is older goes', async () => {
    const { folder, numbers, versions } = await published(18)
    expect((await readdir(folder)).sort()).toEqual([`weight_v${numbers[17]}`])
    await pullWeights(join(folder, 'local'), folder, numbers[17]!)
    await expectPulled(join(folder, 'local'), versions[17]!)
  })

  test('train by a server, which is proved after each delivery', async () => {
    const [folder, local] = [await temporaryFolder(), join(await temporaryFolder(), 'local')]
    const { engine, server } = await pair('sglang', { weights: folder, deltas: local })
    const world = await talkWorld({ engine, numLanes: 8, groupSize: 4 })
    const trainer = createTrainer(world, rl({ groupsPerUpdate: 2, groupSize: 4, updates: 3, learningRate: 0.02 }))
    for await (const { rl: metrics } of trainer.updates({})) expect(metrics!.kl.k2).toBeLessThan(1e-9)
    await trainer.close()
    expect(await (await fetch(`${server.url}/weight_info`)).json()).toEqual({ weight_version: '3' })
    const folders = await readdir(folder)
    const deltas = await Promise.all(
      folders.map(async (name) => (await readdir(join(folder, name))).includes('model.safetensors.index.json')),
    )
    // One whole model, and a delta for each version after it.
    expect(deltas.filter((isDelta) => !isDelta).length).toBe(1)
    expect(deltas.filter((isDelta) => isDelta).length).toBeGreaterThanOrEqual(2)
  })
})
