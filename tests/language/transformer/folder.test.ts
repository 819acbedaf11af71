import { cp, readFile, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { beforeEach, describe, expect, test } from 'vitest'
import { readSafetensors, type Tensor, tensorOf, writeSafetensors } from '../../../src/base/files/safetensors.ts'
import { Random } from '../../../src/base/random.ts'
import { takeArena } from '../../../src/components/arena.ts'
import { transformerShape } from '../../../src/language/transformer/config.ts'
import { loadTransformer, openTransformer, saveTransformer } from '../../../src/language/transformer/folder.ts'
import { type TransformerModel, transformer } from '../../../src/language/transformer/model.ts'
import {
  type QuantizedColumns,
  quantizedPlan,
  quantizeTransformer,
  rowTaker,
} from '../../../src/language/transformer/quantized.ts'
import { temporaryFolder } from '../../support/temporary.ts'
import { isThorough } from '../../support/tiers.ts'
import { families, golden, goldenFolder } from './golden.ts'

let folder: string
beforeEach(async () => {
  folder = join(await temporaryFolder(), 'model')
})

/** A copy of a recorded model, its configuration changed. */
async function copy(family: string, change: Record<string, unknown> = {}): Promise<void> {
  await cp(goldenFolder(family), folder, { recursive: true })
  const path = join(folder, 'config.json')
  await writeFile(path, JSON.stringify({ ...JSON.parse(await readFile(path, 'utf8')), ...change }))
}

/** Rewrites a file of tensors, changed one by one: what is undefined is left out. */
async function rewrite(file: string, change: (tensor: Tensor) => Tensor | undefined, ...more: Tensor[]): Promise<void> {
  const { tensors } = await readSafetensors(await readFile(join(folder, file)))
  const changed = [...tensors.values()].map(change).filter((tensor) => tensor !== undefined)
  await writeSafetensors(join(folder, file), [...changed, ...more])
}

const FILE = 'model.safetensors'
const SHARD = 'model-00003-of-00005.safetensors'
const NORM = 'model.layers.1.input_layernorm.weight'

describe('a model in a folder', () => {
  test.each(families)('comes back as it went (%s)', async (family) => {
    const { model, weights } = await loadTransformer(goldenFolder(family))
    await saveTransformer(folder, model, weights)
    const again = await loadTransformer(folder)
    expect(again.weights).toEqual(weights)
    expect(again.model.shape).toEqual(model.shape)
    expect(again.model.config).toEqual({ ...model.config, dtype: 'float32' })
  })

  test('has whole soft caps, and the range of initial weights, with a decimal point, without which transformers refuses them', async () => {
    const { model, weights } = await loadTransformer(goldenFolder('gemma2'))
    const config = { ...model.config, attn_logit_softcapping: 50, final_logit_softcapping: 30, initializer_range: 1 }
    await saveTransformer(folder, { ...model, config }, weights)
    const text = await readFile(join(folder, 'config.json'), 'utf8')
    expect(text).toContain('"attn_logit_softcapping": 50.0,\n')
    expect(text).toContain('"final_logit_softcapping": 30.0,\n')
    expect(text).toContain('"initializer_range": 1.0,\n')
    expect(JSON.parse(text)).toMatchObject({ attn_logit_softcapping: 50, final_logit_softcapping: 30 })
  })

  test('may be narrowed to bf16, and its configuration says so', async () => {
    const { model, weights } = await loadTransformer(goldenFolder('smollm'))
    await saveTransformer(folder, model, weights, 'BF16')
    const again = await loadTransformer(folder)
    expect(again.weights).toEqual(weights) // They were bf16 before.
    expect(again.model.config.dtype).toBe('bfloat16')
    const { tensors, metadata } = await readSafetensors(join(folder, FILE))
    expect(tensors.get(NORM)!.type).toBe('BF16')
    expect(metadata).toEqual({ format: 'pt' })
  })

  test('a file in one piece goes before shards that lie beside it', async () => {
    await copy('qwen3')
    const { model, weights } = await loadTransformer(folder)
    await saveTransformer(folder, model, weights.fill(0.5))
    expect((await loadTransformer(folder)).weights.every((value) => value === 0.5)).toBe(true)
  })

  test('a missing shard is named', async () => {
    await copy('qwen3')
    await rm(join(folder, SHARD))
    await expect(loadTransformer(folder)).rejects.toThrow(/model-00003-of-00005.safetensors: got ENOENT/)
  })

  test('a folder without weights is told what it lacks', async () => {
    await copy('llama')
    await rm(join(folder, FILE))
    await expect(loadTransformer(folder)).rejects.toThrow(
      /model.safetensors.index.json: got ENOENT.* or .*model.safetensors/,
    )
    await rm(join(folder, 'config.json'))
    await expect(loadTransformer(folder)).rejects.toThrow(/config.json: got ENOENT/)
  })

  test('a tensor that is missing, of another shape or type, not finite or too many is named', async () => {
    const at = (change: (tensor: Tensor) => Tensor | undefined) => (tensor: Tensor) =>
      tensor.name === NORM ? change(tensor) : tensor
    for (const [change, message] of [
      [() => undefined, `got no ${NORM}`],
      [
        () => tensorOf(NORM, new Float32Array(23)),
        `got ${NORM}: F32 of shape [23], expected ${NORM}: F32, F16, BF16 of`,
      ],
      [() => tensorOf(NORM, new Float64Array(24)), `got ${NORM}: F64 of shape [24]`],
      [() => tensorOf(NORM, new Float32Array(24).fill(1).fill(Number.NaN, 5, 6)), `${NORM}: got NaN in element 5`],
    ] as [(tensor: Tensor) => Tensor | undefined, string][]) {
      await copy('llama')
      await rewrite(FILE, at(change))
      await expect(loadTransformer(folder)).rejects.toThrow(message)
    }
    await copy('llama')
    await rewrite(FILE, (tensor) => tensor, tensorOf('score.weight', new Float32Array(24)))
    await expect(loadTransformer(folder)).rejects.toThrow('got tensor score.weight, expected only those of the model')
  })

  test('an index that lacks a tensor, has one too many or leads out of the folder is refused', async () => {
    for (const [change, message] of [
      [{ [NORM]: undefined }, `${NORM}: got undefined, expected the name of a file beside it`],
      [{ [NORM]: '../../elsewhere.safetensors' }, `${NORM}: got "../../elsewhere.safetensors", expected the name of`],
      [{ 'score.weight': SHARD }, 'got tensor score.weight, expected only those of the model'],
    ] as const) {
      await copy('qwen3')
      const path = join(folder, 'model.safetensors.index.json')
      const index = JSON.parse(await readFile(path, 'utf8'))
      Object.assign(index.weight_map, change)
      await writeFile(path, JSON.stringify(index))
      await expect(loadTransformer(folder)).rejects.toThrow(message)
    }
    await writeFile(join(folder, 'model.safetensors.index.json'), '{}')
    await expect(loadTransformer(folder)).rejects.toThrow('weight_map: got undefined, expected a file for each tensor')
  })

  test.each([
    ['llama', { rope_theta: 1e4, num_key_value_heads: 4, head_dim: 6 }],
    ['qwen2', { rope_theta: 1e4, num_key_value_heads: 32, head_dim: 2 }],
    ['qwen3', { rope_theta: 1e4, num_key_value_heads: 32, head_dim: 128 }],
    ['smollm3', { rope_theta: 2e6, num_key_value_heads: 4, head_dim: 6 }],
  ])('a configuration that lacks keys has what transformers has for them (%s)', async (family, expected) => {
    // python -c "import transformers as t; print([(c().rope_parameters, c().num_key_value_heads, getattr(c(), 'head_dim', None),
    //   c().rms_norm_eps) for c in (t.LlamaConfig, t.Qwen2Config, t.Qwen3Config, t.SmolLM3Config)])", transformers 5.23.0;
    // a head is hidden_size / num_attention_heads wide where it says nothing.
    const { config } = (await golden(family)).model
    const { rope_parameters: _, num_key_value_heads: __, head_dim: ___, rms_norm_eps: ____, ...rest } = config
    const numHeads = family === 'qwen2' || family === 'qwen3' ? 32 : 4
    const shape = transformerShape({
      ...rest,
      num_attention_heads: numHeads,
      hidden_size: expected.head_dim * numHeads,
    })
    expect(shape.rope.theta).toBe(expected.rope_theta)
    expect(shape.numKeyHeads).toBe(expected.num_key_value_heads)
    expect(shape.headWidth).toBe(expected.head_dim)
    expect(shape.normEpsilon).toBe(1e-6)
  })

  test('a tied model that also stores its head is read where the two are equal, in one file or in shards, and that is said', async () => {
    await copy('smollm')
    const { tensors } = await readSafetensors(join(folder, FILE))
    const head = { ...tensors.get('model.embed_tokens.weight')!, name: 'lm_head.weight' }
    await rewrite(FILE, (tensor) => tensor, head)
    const plain = await loadTransformer(goldenFolder('smollm'))
    expect(plain.notes).toEqual([])
    const read = await loadTransformer(folder)
    expect(read.weights).toEqual(plain.weights)
    expect(read.notes).toEqual([`${folder}: left out lm_head.weight, which equals the tied model.embed_tokens.weight`])

    const others = [...tensors.values()]
    await writeSafetensors(join(folder, 'a.safetensors'), others)
    await writeSafetensors(join(folder, 'b.safetensors'), [head])
    await rm(join(folder, FILE))
    const weight_map = Object.fromEntries(others.map(({ name }) => [name, 'a.safetensors']))
    const index = { weight_map: { ...weight_map, 'lm_head.weight': 'b.safetensors' } }
    await writeFile(join(folder, 'model.safetensors.index.json'), JSON.stringify(index))
    const sharded = await loadTransformer(folder)
    expect(sharded.weights).toEqual(plain.weights)
    expect(sharded.notes).toEqual(read.notes)
  })

  test('a tied model whose stored head says other than its embedding is refused, with the way to untie it', async () => {
    await copy('smollm')
    const { model, weights } = await loadTransformer(folder)
    const [embedding] = model.parameters
    const [numRows, width] = embedding!.shape as [number, number]
    const head = weights.slice(0, numRows * width)
    head[3 * width + 2] = 7.5
    await rewrite(FILE, (tensor) => tensor, tensorOf('lm_head.weight', head, [numRows, width], 'BF16'))
    const is = weights[3 * width + 2]
    await expect(loadTransformer(folder)).rejects.toThrow(
      `lm_head.weight: got 7.5 at row 3, column 2, where model.embed_tokens.weight has ${is}, expected ` +
        'the numbers of the tied embedding, or "tie_word_embeddings": false in config.json',
    )
    await writeFile(join(folder, 'config.json'), JSON.stringify({ ...model.config, tie_word_embeddings: false }))
    const untied = await loadTransformer(folder)
    expect(untied.weights.slice(-head.length)).toEqual(head)
    await copy('smollm')
    await rewrite(FILE, (tensor) => tensor, tensorOf('lm_head.weight', head.subarray(width), [numRows - 1, width]))
    await expect(loadTransformer(folder)).rejects.toThrow(`got lm_head.weight: F32 of shape [${numRows - 1},${width}]`)
  })

  test('buffers of RoPE that old versions stored are left out, and that is said', async () => {
    const names = [0, 1].map((layer) => `model.layers.${layer}.self_attn.rotary_emb.inv_freq`)
    await copy('llama')
    const buffers = names.map((name) => tensorOf(name, Float32Array.of(1, 0.1, 0.01)))
    await rewrite(FILE, (tensor) => tensor, ...buffers)
    const { weights, notes } = await loadTransformer(folder)
    expect(weights).toEqual((await loadTransformer(goldenFolder('llama'))).weights)
    expect(notes).toEqual([`${folder}: left out ${names[0]} and 1 more, which follow from config.json`])
    await rewrite(FILE, (tensor) => tensor, tensorOf('model.inv_freq', new Float32Array(3)))
    await expect(loadTransformer(folder)).rejects.toThrow('got tensor model.inv_freq, expected only those of the model')
  })

  test('weights that are not finite are not saved', async () => {
    const { model, weights } = await loadTransformer(goldenFolder('llama'))
    weights[3] = Number.POSITIVE_INFINITY
    await expect(saveTransformer(folder, model, weights)).rejects.toThrow('got Infinity in element 3')
  })
})

describe('a configuration', () => {
  test('of another network is refused by the name of what is not built', async () => {
    const llama3 = { factor: 8, low_freq_factor: 1, high_freq_factor: 4, original_max_position_embeddings: 48 }
    const scaled = (parameters: object) => ({
      rope_parameters: { rope_type: 'llama3', rope_theta: 1e4, ...llama3, ...parameters },
    })
    const rope = (parameters: object) => ({ rope_parameters: { rope_theta: 1e4, rope_type: 'default', ...parameters } })
    for (const [family, change, message] of [
      [
        'llama',
        { model_type: 'lama' },
        'model_type: got "lama" (did you mean "llama"?), expected one of 19, like llama,',
      ],
      ['llama', { model_type: 'bloom' }, 'model_type: got "bloom"'],
      ['llama', { architectures: ['LlamaForTokenClassification'] }, 'expected LlamaForCausalLM'],
      ['llama', rope({ rope_type: 'proportional' }), 'rope_parameters, rope_type: got "proportional"'],
      ['llama', rope({ rope_type: 'longrope', short_factor: [1] }), 'rope_parameters, long_factor: got undefined'],
      [
        'phi3',
        rope({ rope_type: 'longrope', short_factor: [1], long_factor: [2] }),
        'short_factor: got 1, expected 6 numbers, one for each pair',
      ],
      ['llama', rope({ rope_type: 'linear' }), 'rope_parameters, factor: got undefined, expected a number above 0'],
      ['llama', rope({ factor: 2 }), 'rope_parameters, factor: got 2, expected rope_type, rope_theta alone'],
      ['llama3', scaled({ original_max_position_embeddings: null }), 'original_max_position_embeddings: got null'],
      ['llama3', scaled({ high_freq_factor: 1 }), 'high_freq_factor: got 1, expected more than 1'],
      ['smollm3', { no_rope_layers: [1] }, 'no_rope_layers: got [1], expected 0 or 1 for each of 2 layers'],
      ['smollm3', { no_rope_layers: [1, 2] }, 'no_rope_layers: got [1,2]'],
      ['smollm3', { no_rope_layers: null, no_rope_layer_interval: 0 }, 'no_rope_layer_interval: got 0'],
      ['llama', rope({ partial_rotary_factor: 0.5 }), 'rope_parameters, partial_rotary_factor: got 0.5'],
      [
        'llama',
        { rope_parameters: null, rope_scaling: { type: 'yarn', factor: 4 } },
        'rope_scaling, original_max_position_embeddings: got undefined',
      ],
      ['llama', { rope_theta: 0, rope_parameters: null }, 'rope_theta: got 0, expected a number above 0'],
      ['llama', { hidden_act: 'gelu_fast' }, 'hidden_act: got "gelu_fast", expected "silu" or'],
      ['mistral', { mlp_bias: true }, 'mlp_bias: got true, expected false'],
      ['mistral', { attention_bias: true }, 'attention_bias: got true, expected false'],
      ['llama', { mlp_bias: 1 }, 'mlp_bias: got 1, expected true or false'],
      ['llama', { use_sliding_window: true }, 'use_sliding_window: got true'],
      ['mistral', { sliding_window: 0 }, 'sliding_window: got 0, expected a whole number ≥ 1'],
      ['stablelm', { qk_layernorm: true }, 'qk_layernorm: got true, expected false'],
      ['gemma2', { final_logit_softcapping: -1 }, 'final_logit_softcapping: got -1, expected a number above 0'],
      [
        'qwen2',
        { layer_types: ['full_attention', 'sliding_attention'] },
        'sliding_window: got null, expected a whole number ≥ 1, since layer 1 has sliding_attention',
      ],
      [
        'llama',
        { layer_types: ['full_attention', 'sliding_attention'] },
        'layer_types: got ["full_attention","sliding',
      ],
      ['qwen2', { quantization_config: { bits: 4 } }, 'quantization_config: got {"bits":4}'],
      ['qwen3', { head_dim: null }, 'head_dim: got undefined'],
      ['qwen3', { head_dim: 7 }, 'head_dim: got 7, expected an even number'],
      [
        'llama',
        { num_key_value_heads: 3 },
        'num_key_value_heads: got 3, expected a divisor of num_attention_heads = 4',
      ],
      ['llama', { hidden_size: -8 }, 'hidden_size: got -8, expected a whole number ≥ 1'],
      ['llama', { rms_norm_eps: '1e-5' }, 'rms_norm_eps: got "1e-5", expected a number above 0'],
      ['llama', { initializer_range: -1 }, 'initializer_range: got -1, expected a number ≥ 0'],
    ] as [string, Record<string, unknown>, string][]) {
      await copy(family, change)
      await expect(loadTransformer(folder), message).rejects.toThrow(message)
    }
    await writeFile(join(folder, 'config.json'), '{"model_type": ')
    await expect(loadTransformer(folder)).rejects.toThrow('config.json: got a file that is not JSON')
  })

  test('of a family that is not known is read by its keys, and that is said; a key that is not known is refused', async () => {
    const unknown = { model_type: 'novel', architectures: ['NovelForCausalLM'] }
    for (const family of ['llama', 'llama3', 'mistral', 'granite']) {
      await copy(family, unknown)
      const { model, weights, notes } = await loadTransformer(folder)
      const wanted = await loadTransformer(goldenFolder(family))
      expect(model.shape).toEqual(wanted.model.shape)
      expect(weights).toEqual(wanted.weights)
      expect(notes).toEqual([`${folder}: read by its keys, since model_type "novel" is not known`])
    }
    await copy('llama', { ...unknown, router_jitter: 0.1 })
    await expect(loadTransformer(folder)).rejects.toThrow(
      'router_jitter: got 0.1, expected no such key: "novel" is not',
    )
    // What the keys do not say, the tensors do.
    await copy('qwen2', unknown)
    await expect(loadTransformer(folder)).rejects.toThrow(
      /got tensor model.layers.0.self_attn.._proj.bias, expected only/,
    )
  })

  test('as transformers 4 wrote it says the same', async () => {
    const { model } = await loadTransformer(goldenFolder('qwen2'))
    const { rope_parameters: _, layer_types: __, ...config } = model.config
    const older = { ...config, rope_theta: 1e6, rope_scaling: null, sliding_window: 32_768, torch_dtype: 'bfloat16' }
    expect(transformer(older).shape).toEqual(model.shape)
  })

  test('as transformers 4 wrote it scales RoPE the same', async () => {
    const { model } = await loadTransformer(goldenFolder('llama3'))
    const { rope_parameters: rope, ...config } = model.config
    const { rope_theta, ...scaling } = rope as Record<string, unknown>
    expect(transformer({ ...config, rope_theta, rope_scaling: scaling }).shape).toEqual(model.shape)
    const { rope_type: type, ...others } = scaling
    expect(transformer({ ...config, rope_theta, rope_scaling: { type, ...others } }).shape).toEqual(model.shape)
  })

  test('of smollm3 that does not say otherwise turns all layers but each fourth, and ties its embeddings', async () => {
    const { config } = (await golden('smollm3')).model
    const {
      no_rope_layers: _,
      no_rope_layer_interval: __,
      tie_word_embeddings: ___,
      layer_types: ____,
      ...bare
    } = config
    const { turned, tiedEmbeddings } = transformer({ ...bare, num_hidden_layers: 9 }).shape
    expect(turned.map(Number)).toEqual([1, 1, 1, 0, 1, 1, 1, 0, 1])
    expect(tiedEmbeddings).toBe(true)
  })
})

test('a value head lies in a file of its own, is read again, and begins at 0 where there is none', async () => {
  const { config } = (await golden('llama')).model
  const model = transformer(config, { valueHead: true })
  const weights = new Float32Array(model.numParameters)
  model.initialize(weights, new Random(1), 0)
  weights.fill(0.25, -9)
  await saveTransformer(folder, model, weights)
  expect((await loadTransformer(folder, { valueHead: true })).weights).toEqual(weights)
  const bare = await loadTransformer(folder)
  expect(bare.weights).toEqual(weights.slice(0, bare.model.numParameters))
  await saveTransformer(`${folder}/bare`, bare.model, bare.weights)
  const begun = await loadTransformer(`${folder}/bare`, { valueHead: true })
  expect(begun.weights.slice(bare.model.numParameters).every((weight) => weight === 0)).toBe(true)
})

const WAYS = [
  [8, 32],
  [4, 32],
  [16, 16],
  [4, 4],
] as const
describe.each(WAYS)('weights that are read into %d bits, and the embedding into %d', (bits, embeddingBits) => {
  /** The columns that `fill` writes, beside those of the whole weights. */
  async function expectAlike(path: string, given: TransformerModel, weights: Float32Array): Promise<void> {
    const model = { ...given, embeddingBits }
    const [read, wanted] = [0, 1].map(() => columnsOf(quantizedPlan(model, bits)) as unknown as QuantizedColumns)
    const { fill } = await (await openTransformer(path)).openWeights()
    fill(rowTaker(model, read!))
    quantizeTransformer(wanted!, model, weights)
    const bytesOf = (columns: QuantizedColumns | undefined) =>
      Object.values(columns!).map((each: Float32Array | Uint8Array) =>
        Buffer.from(new Uint8Array(each.buffer, each.byteOffset, each.byteLength)),
      )
    expect(bytesOf(read).map((each, i) => each.equals(bytesOf(wanted)[i]!))).toEqual([true, true, true])
    expect(wanted!.values.some((value) => value > 0)).toBe(true)
  }
  const columnsOf = (plan: ReturnType<typeof quantizedPlan>) => takeArena(plan).columns

  test.each(['llama', 'qwen3', 'gpt2', 'phi3'])('are those of the whole weights (%s)', async (family) => {
    const { model, weights } = await loadTransformer(goldenFolder(family))
    await expectAlike(goldenFolder(family), model, weights)
  })

  // The pieces of 8 bits are read by the same body; the fast tier reads those of 4, which pack two rows in one.
  test.runIf(isThorough || bits === 4)('are the same where a matrix is read in several pieces', async () => {
    const { config } = (await golden('llama')).model
    const model = transformer({ ...config, hidden_size: 24, intermediate_size: 2 ** 17 + 40, num_hidden_layers: 1 })
    const weights = new Float32Array(model.numParameters)
    for (let i = 0; i < weights.length; i++) weights[i] = ((i * 7919) % 251) / 128 - 1
    await saveTransformer(folder, model, weights, 'BF16')
    const { weights: read } = await loadTransformer(folder)
    expect(read.findIndex((value, i) => value !== weights[i])).toBe(-1) // They need no more than the 8 bits of bf16.
    await expectAlike(folder, model, read)
  })
})
