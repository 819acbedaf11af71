import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { readSafetensors, tensorOf, writeSafetensors } from '../../../src/base/files/safetensors.ts'
import { Random } from '../../../src/base/random.ts'
import { spansOf } from '../../../src/kernels/bind.ts'
import { type LoraSettings, lora, mergeLora, unmergeLora } from '../../../src/language/transformer/lora.ts'
import { loadLora, saveLora } from '../../../src/language/transformer/lora-folder.ts'
import { type TransformerModel, transformer } from '../../../src/language/transformer/model.ts'
import { Numbers } from '../../kernels/calls.ts'
import { temporaryFolder } from '../../support/temporary.ts'
import { rowsOf } from '../../support/tiers.ts'
import { builds, decoder, families, golden, packed, smoothFamilies } from './golden.ts'

/** An adapter that is no longer at its start. */
function adapted(base: TransformerModel, settings: Partial<LoraSettings> & { rank: number }) {
  const model = lora(base, settings)
  return { model, weights: new Numbers(3).floats(model.numParameters, -0.3, 0.3) }
}

/** logprob and entropy of packed sequences. */
function said(work: ReturnType<typeof packed>, tokens: Int32Array, offsets: readonly number[]) {
  const count = work.network.pack(tokens, spansOf(offsets), 0, offsets.length - 1)
  const { logprob, entropy } = work.network.evaluate(count, 0.8)
  return [...logprob.slice(0, count), ...entropy.slice(0, count)]
}

const farthest = (a: ArrayLike<number>, b: ArrayLike<number>): number =>
  Array.from(a).reduce((most, value, i) => Math.max(most, Math.abs(value - b[i]!)), 0)

describe('an adapter', () => {
  test('has just the parameters that are trained, in shapes and numbers as PEFT has them', async () => {
    const { model } = await golden('qwen3')
    const { parameters, numParameters, scale } = lora(model, { rank: 4, alpha: 6, targets: ['down_proj', 'q_proj'] })
    expect(parameters.map(({ name, shape }) => [name, shape]).slice(0, 4)).toEqual([
      ['model.layers.0.self_attn.q_proj.lora_A.weight', [4, 16]],
      ['model.layers.0.self_attn.q_proj.lora_B.weight', [24, 4]],
      ['model.layers.0.mlp.down_proj.lora_A.weight', [4, 28]],
      ['model.layers.0.mlp.down_proj.lora_B.weight', [16, 4]],
    ])
    expect(numParameters).toBe(2 * (4 * (16 + 24) + 4 * (28 + 16)))
    expect(parameters.length).toBe(8)
    expect(scale).toBe(1.5)
    const all = lora(model, { rank: 2 })
    expect(all.settings.targets.length).toBe(7)
    expect(all.scale).toBe(2)
  })

  test('of some layers, rank-stabilized, has their parameters and the products of its merged weights', async () => {
    const { model, weights, tokens, offsets } = await golden('qwen3')
    const some = adapted(model, {
      rank: 4,
      alpha: 6,
      targets: ['q_proj', 'up_proj'],
      layers: [1],
      rankStabilized: true,
    })
    expect(some.model.scale).toBe(3)
    expect(new Set(some.model.parameters.map(({ name }) => name.split('.')[2]))).toEqual(new Set(['1']))
    const merged = weights.slice()
    mergeLora(merged, some.model, some.weights)
    const ours = said(packed(model, weights, 'simd', 64, 40, some), tokens, offsets)
    expect(farthest(ours, said(packed(model, merged, 'simd'), tokens, offsets))).toBeLessThan(1e-4)
    expect(farthest(ours, said(packed(model, weights, 'simd'), tokens, offsets))).toBeGreaterThan(0.01)
    const folder = await temporaryFolder()
    await saveLora(folder, some.model, some.weights)
    expect((await loadLora(folder, model)).model.settings).toEqual(some.model.settings)
    expect(() => lora(model, { rank: 2, layers: [1, 0] })).toThrow('layers: got [1,0], expected some of 0 to 1')
    expect(() => lora(model, { rank: 2, layers: [] })).toThrow('layers: got [], expected some of')
  })

  test.each(builds)('says at its start what the model says, bit for bit (%s)', async (build) => {
    const { model, weights, tokens, offsets } = await golden('qwen2')
    const fresh = lora(model, { rank: 3, dropout: 0.5 })
    const start = new Float32Array(fresh.numParameters).fill(7)
    fresh.initialize(start, new Random(4), 0)
    const a = fresh.parameters.filter(({ name }) => name.includes('lora_A'))
    for (const { offset, shape } of a) {
      const view = start.subarray(offset, offset + shape[0]! * shape[1]!)
      const bound = 1 / Math.sqrt(shape[1]!)
      expect(view.every((value) => Math.abs(value) <= bound)).toBe(true)
      expect(Math.max(...view)).toBeGreaterThan(0.8 * bound)
      expect(Math.min(...view)).toBeLessThan(-0.8 * bound)
    }
    expect(start.filter((value) => value !== 0).length).toBe(
      a.reduce((sum, { shape }) => sum + shape[0]! * shape[1]!, 0),
    )
    const plain = said(packed(model, weights, build), tokens, offsets)
    expect(said(packed(model, weights, build, 64, 40, { model: fresh, weights: start }), tokens, offsets)).toEqual(
      plain,
    )
    expect(said(packed(model, weights, build, 64, 40, adapted(model, { rank: 3 })), tokens, offsets)).not.toEqual(plain)
  })

  const cases = smoothFamilies.flatMap((family) => [0.3, 0].map((dropout) => [family, dropout] as const))

  test.each(rowsOf(cases, 2))(
    'has the gradient that finite differences give, and the model has none (%s, dropout %d)',
    async (family, dropout) => {
      const { model, weights, tokens, offsets } = await golden(family)
      const adapter = adapted(model, { rank: 3, dropout })
      const work = packed(model, weights, 'plain', 64, 40, adapter)
      const { network, gradient } = work
      const count = network.pack(tokens, spansOf(offsets), 0, 3)
      const [byLogprob, byEntropy] = [new Numbers(1).floats(count), new Numbers(2).floats(count)]
      const step = 11
      const loss = (): number => {
        let sum = 0
        network.differentiate(
          count,
          ({ logprob, entropy }, { dLogprob, dEntropy }) => {
            for (let i = 0; i < count; i++) sum += byLogprob[i]! * logprob[i]! + byEntropy[i]! * entropy[i]!
            dLogprob.set(byLogprob)
            dEntropy.set(byEntropy)
          },
          network.view(gradient.fill(0)),
          0.8,
          step,
        )
        return sum
      }
      loss()
      const made = gradient.slice()
      expect(network.view(gradient).length).toBe(adapter.model.parameters.length)
      const numbers = new Numbers(7)
      for (const { name, offset, shape } of adapter.model.parameters) {
        const length = shape[0]! * shape[1]!
        const direction = numbers.floats(length)
        const at = (far: number): number => {
          for (let i = 0; i < length; i++) work.adapter[offset + i] = adapter.weights[offset + i]! + far * direction[i]!
          return loss()
        }
        const far = 4e-3
        const slope = (8 * (at(far) - at(-far)) - (at(2 * far) - at(-2 * far))) / (12 * far)
        at(0)
        const wanted = direction.reduce((sum, value, i) => sum + value * made[offset + i]!, 0)
        expect(Math.abs(slope - wanted), `${name}: ${slope}, ${wanted}`).toBeLessThan(
          0.01 * Math.max(1, Math.abs(wanted)),
        )
      }
      expect(work.weights).toEqual(weights)
    },
  )

  test.each(builds.slice(1))('has the plain gradient in compiled builds (%s)', async (build) => {
    const { model, weights, tokens, offsets } = await golden('llama')
    const gradients = (['plain', build] as const).map((each) => {
      const { network, gradient } = packed(model, weights, each, 64, 40, adapted(model, { rank: 5, dropout: 0.1 }))
      const count = network.pack(tokens, spansOf(offsets), 0, 3)
      const lossOf = (_: unknown, derivatives: { dLogprob: Float32Array; dEntropy: Float32Array }) => {
        derivatives.dLogprob.fill(0.4)
        derivatives.dEntropy.fill(-0.1)
      }
      network.differentiate(count, lossOf, network.view(gradient), 1, 3)
      return gradient
    })
    expect(farthest(gradients[0]!, gradients[1]!)).toBeLessThan(1e-4)
    expect(Math.max(...gradients[0]!.map(Math.abs))).toBeGreaterThan(0.1)
  })

  test('trains a value head beside, which begins at 0', () => {
    const config = { model_type: 'llama', vocab_size: 11, hidden_size: 8, num_hidden_layers: 1, num_attention_heads: 2 }
    const sizes = { intermediate_size: 16, max_position_embeddings: 16, rms_norm_eps: 1e-5, rope_theta: 1e4 }
    const base = transformer({ ...config, ...sizes }, { valueHead: true })
    const weights = new Numbers(5).floats(base.numParameters)
    const adapter = adapted(base, { rank: 2 })
    expect(adapter.model.parameters.slice(-2).map(({ name }) => name)).toEqual([
      'v_head.summary.weight',
      'v_head.summary.bias',
    ])
    const work = packed(base, weights, 'plain', 64, 40, adapter)
    const count = work.network.pack([3, 1, 4, 1, 5], spansOf([0, 5]), 0, 1)
    const loss = (): number => {
      let sum = 0
      const lossOf = (
        { value }: { value: Float32Array },
        { dValue, dLogprob, dEntropy }: Record<string, Float32Array>,
      ) => {
        for (let i = 0; i < count; i++) sum += (i + 1) * value[i]!
        dLogprob!.fill(0)
        dEntropy!.fill(0)
        for (let i = 0; i < count; i++) dValue![i] = i + 1
      }
      work.network.differentiate(count, lossOf as never, work.network.view(work.gradient.fill(0)))
      return sum
    }
    loss()
    const made = work.gradient.slice()
    const direction = new Numbers(6).floats(made.length)
    const at = (far: number): number => {
      work.adapter.set(adapter.weights.map((weight, i) => weight + far * direction[i]!))
      return loss()
    }
    const slope = (at(1e-3) - at(-1e-3)) / 2e-3
    const wanted = direction.reduce((sum, value, i) => sum + value * made[i]!, 0)
    expect(Math.abs(slope - wanted), `${slope}, ${wanted}`).toBeLessThan(0.01 * Math.abs(wanted))
    const start = new Float32Array(adapter.model.numParameters).fill(1)
    adapter.model.initialize(start, new Random(1), 0)
    expect([...start.slice(-9)]).toEqual(new Array(9).fill(0))
  })

  test.each(builds)('records while it samples what evaluating gives, bit for bit (%s)', async (build) => {
    const { model, weights } = await golden('qwen3')
    const adapter = adapted(model, { rank: 4, dropout: 0.2 })
    const network = decoder(model, weights, build, 1, 40, adapter)
    const { columns } = network
    const tokens = [3, 1, 4]
    const recorded: number[] = []
    network.feed(0, tokens.slice(0, -1))
    network.flush()
    for (let i = 0; i < 12; i++) {
      columns.forward.token[0] = tokens.at(-1)!
      columns.forward.position[0] = tokens.length - 1
      network.advance(1, { temperature: 1.3 }, true)
      tokens.push(columns.chosen[0]!)
      recorded.push(columns.forward.logprob[0]!)
    }
    const work = packed(model, weights, build, 64, 40, adapter)
    const { logprob } = work.network.evaluate(work.network.pack(tokens, spansOf([0, 15]), 0, 1), 1.3)
    expect([...logprob.slice(2, 14)]).toEqual(recorded)
  })

  test('drops the same of a sequence alone and among others, something else at each step, and nothing in evaluation', async () => {
    const { model, weights, tokens, offsets } = await golden('llama')
    const adapter = adapted(model, { rank: 4, dropout: 0.5 })
    const { network, gradient } = packed(model, weights, 'simd', 64, 40, adapter)
    const seen = (from: number, to: number, step: number): number[] => {
      const count = network.pack(tokens, spansOf(offsets), from, to)
      let found: number[] = []
      const lossOf = ({ logprob }: { logprob: Float32Array }) => {
        found = [...logprob.slice(0, count)]
      }
      network.differentiate(count, lossOf, network.view(gradient), 1, step)
      return found
    }
    const together = seen(0, 3, 5)
    expect(seen(2, 3, 5)).toEqual(together.slice(8))
    expect(seen(0, 3, 5)).toEqual(together)
    expect(farthest(seen(0, 3, 6), together)).toBeGreaterThan(0.01)
    expect(farthest(seen(0, 3, 5 + 2 ** 32), together)).toBeGreaterThan(0.01)
    const evaluated = [...network.evaluate(network.pack(tokens, spansOf(offsets), 0, 3)).logprob.slice(0, 37)]
    expect(farthest(evaluated, together)).toBeGreaterThan(0.01)
    const without = packed(model, weights, 'simd', 64, 40, adapted(model, { rank: 4 }))
    expect([
      ...without.network.evaluate(without.network.pack(tokens, spansOf(offsets), 0, 3)).logprob.slice(0, 37),
    ]).toEqual(evaluated)
  })

  test('merged into the weights says the same, and taken off again leaves them as they were, both within rounding', async () => {
    for (const family of smoothFamilies) {
      const { model, weights, tokens, offsets } = await golden(family)
      const adapter = adapted(model, { rank: 4, targets: ['q_proj', 'v_proj', 'o_proj', 'up_proj', 'down_proj'] })
      const added = said(packed(model, weights, 'simd', 64, 40, adapter), tokens, offsets)
      const merged = weights.slice()
      mergeLora(merged, adapter.model, adapter.weights)
      const changed = merged.reduce((sum, weight, i) => sum + (weight === weights[i] ? 0 : 1), 0)
      expect(changed).toBeGreaterThan(0.3 * weights.length)
      expect(farthest(said(packed(model, merged, 'simd'), tokens, offsets), added)).toBeLessThan(1e-4)
      unmergeLora(merged, adapter.model, adapter.weights)
      // Numbers up to 4: half a unit in the last place each way.
      expect(farthest(merged, weights)).toBeLessThanOrEqual(2 ** -22)
    }
  })

  test('that cannot be is refused', async () => {
    const { model, weights } = await golden('llama')
    for (const [settings, message] of [
      [{ rank: 0 }, 'rank: got 0, expected a whole number from 1 to 12, the smallest side of a target'],
      [{ rank: 2.5 }, 'rank: got 2.5'],
      [{ rank: 13 }, 'rank: got 13'],
      [{ rank: 2, alpha: 0 }, 'alpha: got 0, expected a number above 0'],
      [{ rank: 2, dropout: 1 }, 'dropout: got 1, expected a number from 0 to below 1'],
      [
        { rank: 2, targets: ['q_prj'] },
        'targets: got "q_prj" (did you mean "q_proj"?), expected one of q_proj, k_proj',
      ],
      [{ rank: 2, targets: [] }, 'targets: got [], expected some of q_proj'],
      [{ rank: 2, targets: ['q_proj', 'q_proj'] }, 'each of them once'],
    ] as [never, string][]) {
      expect(() => lora(model, settings)).toThrow(message)
    }
    const adapter = adapted(model, { rank: 2 })
    expect(() => mergeLora(weights.slice(1), adapter.model, adapter.weights)).toThrow('weights: got')
    expect(() => mergeLora(weights, adapter.model, adapter.weights.slice(1))).toThrow('weights: got')
    const other = transformer(model.config)
    expect(() => packed(other, weights, 'plain', 64, 40, adapter)).toThrow('an adapter of another model')
  })
})

describe('a folder with an adapter', () => {
  test.each(families)('gives back what was saved (%s)', async (family) => {
    const { model } = await golden(family)
    // The feed-forward layers of models with experts are not adapted.
    const [target, module] = model.shape.experts
      ? (['o_proj', 'self_attn.k_proj'] as const)
      : (['down_proj', 'mlp.down_proj'] as const)
    const adapter = adapted(model, { rank: 2, alpha: 3, dropout: 0.25, targets: ['k_proj', target] })
    const folder = await temporaryFolder()
    await saveLora(folder, adapter.model, adapter.weights)
    const again = await loadLora(folder, model)
    expect(again.weights).toEqual(adapter.weights)
    expect(again.model.settings).toEqual(adapter.model.settings)
    const { tensors } = await readSafetensors(join(folder, 'adapter_model.safetensors'))
    expect([...tensors.keys()].sort()[0]).toBe(`base_model.model.model.layers.0.${module}.lora_A.weight`)
  })

  test('keeps a value head beside', async () => {
    const { model } = await golden('llama')
    const base = transformer(model.config, { valueHead: true })
    const adapter = adapted(base, { rank: 2 })
    const folder = await temporaryFolder()
    await saveLora(folder, adapter.model, adapter.weights)
    expect((await loadLora(folder, base)).weights).toEqual(adapter.weights)
    const without = await loadLora(folder, model)
    expect(without.weights).toEqual(adapter.weights.slice(0, -25))
  })

  test('of another kind, or of another model, is refused', async () => {
    const { model } = await golden('llama')
    const adapter = adapted(model, { rank: 2, targets: ['q_proj'] })
    const folder = await temporaryFolder()
    await saveLora(folder, adapter.model, adapter.weights)
    const path = join(folder, 'adapter_config.json')
    const config = JSON.parse(await readFile(path, 'utf8'))
    for (const [change, message] of [
      [{ peft_type: 'IA3' }, 'peft_type: got "IA3", expected "LORA"'],
      [{ use_dora: true }, 'lora_magnitude_vector, expected'],
      [{ layers_to_transform: 'all' }, 'layers_to_transform: got "all", expected a list of layers'],
      [{ layers_to_transform: [5] }, 'layers: got [5], expected some of 0 to 1, in ascending order'],
      [{ bias: 'all' }, 'bias: got "all"'],
      [{ modules_to_save: ['lm_head'] }, 'modules_to_save: got ["lm_head"]'],
      [{ rank_pattern: { q_proj: 4 } }, 'rank_pattern: got {"q_proj":4}, expected one rank'],
      [{ target_modules: 'all-linear' }, 'target_modules: got "all-linear", expected a list of projections'],
      [{ target_modules: ['c_attn'] }, 'targets: got "c_attn", expected one of q_proj'],
      [{ target_modules: ['q_proj', 'v_proj'] }, 'got no model.layers.0.self_attn.v_proj.lora_A.weight'],
      [{ r: 0 }, 'rank: got 0'],
      [{ r: 3 }, 'of shape [2,24], expected model.layers.0.self_attn.q_proj.lora_A.weight'],
    ] as const) {
      await writeFile(path, JSON.stringify({ ...config, ...change }))
      await expect(loadLora(folder, model), message).rejects.toThrow(message)
    }
    await writeFile(path, JSON.stringify(config))
    const other = await golden('qwen3')
    await expect(loadLora(folder, other.model)).rejects.toThrow('of shape [2,24]')
    const file = join(folder, 'adapter_model.safetensors')
    const { tensors } = await readSafetensors(await readFile(file))
    await writeSafetensors(file, [...tensors.values(), tensorOf('lm_head.weight', new Float32Array(1))])
    await expect(loadLora(folder, model)).rejects.toThrow(
      'got tensor lm_head.weight, expected only names that begin with',
    )
  })
})
