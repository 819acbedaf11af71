import { readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import { writeGguf } from '../../bench/peers/gguf.ts'
import { Random } from '../../src/base/random.ts'
import { type GgufValue, readGguf, readRows, withFile } from '../../src/language/gguf/file.ts'
import { configOf } from '../../src/language/gguf/names.ts'
import { saveGguf } from '../../src/language/gguf/write.ts'
import { loadLanguageModel } from '../../src/language/load-language-model.ts'
import { byteTokenizer } from '../../src/language/tokenizers/byte-tokenizer.ts'
import { transformerShape } from '../../src/language/transformer/config.ts'
import { transformer } from '../../src/language/transformer/model.ts'
import { temporaryFolder } from '../support/temporary.ts'
import { decoder, golden } from './transformer/golden.ts'

const model = transformer({
  ...{ model_type: 'llama', vocab_size: 300, hidden_size: 64, num_hidden_layers: 2, num_attention_heads: 4 },
  ...{ num_key_value_heads: 2, intermediate_size: 96, max_position_embeddings: 32, rms_norm_eps: 1e-5 },
  ...{ rope_theta: 10_000, tie_word_embeddings: true },
})
const weights = new Float32Array(model.numParameters)
model.initialize(weights, new Random(3), 0)

async function written(type: 'F32' | 'Q8_0' | 'Q4_0' = 'F32'): Promise<string> {
  const path = `${await temporaryFolder()}/tiny.gguf`
  await writeGguf(path, model, weights, { type })
  return path
}

test('a file gives the network, its weights and its tokenizer', async () => {
  const read = await loadLanguageModel(await written())
  expect(read.weights).toEqual(weights)
  expect({ ...read.model.shape, layout: {} }).toEqual({ ...model.shape, layout: {} })
  expect(read.tokenizer.decode(read.tokenizer.encode('a word, and 12'))).toBe('a word, and 12')
  expect(read.tokenizer.endIds).toEqual([257])
})

test.each([
  ['Q8_0', 1 / 254],
  ['Q4_0', 1 / 8],
] as const)('weights of %s become f32, each at most a step of its block away', async (type, step) => {
  const read = (await loadLanguageModel(await written(type))).weights
  const { offset } = model.parameters.find(({ name }) => name.endsWith('1.mlp.up_proj.weight'))!
  let apart = 0
  for (let i = offset; i < offset + 96 * 64; i += 32) {
    const most = Math.max(...weights.subarray(i, i + 32).map(Math.abs))
    for (let j = i; j < i + 32; j++) {
      expect(Math.abs(read[j]! - weights[j]!)).toBeLessThanOrEqual(1.15 * step * most)
      if (read[j] !== weights[j]) apart++
    }
  }
  expect(apart).toBeGreaterThan(3000)
})

test.each(['llama', 'qwen2', 'qwen3', 'mixtral', 'olmoe', 'llama3'])(
  'what is written is read again (%s)',
  async (family) => {
    const { model, weights } = await golden(family)
    const path = `${await temporaryFolder()}/${family}.gguf`
    const tokens = byteTokenizer()
    // The vocabularies of the recorded models are smaller than one of bytes.
    const wide = transformer({ ...model.config, vocab_size: 300, eos_token_id: null })
    const given = new Float32Array(wide.numParameters)
    wide.initialize(given, new Random(5), 0)
    for (const { name, offset, shape } of model.parameters) {
      const to = wide.parameters.find((each) => each.name === name)!
      given.set(weights.subarray(offset, offset + shape.reduce((all, side) => all * side, 1)), to.offset)
    }
    await saveGguf(path, wide, given, tokens)
    const read = await loadLanguageModel(path)
    expect(read.weights).toEqual(given)
    expect(read.tokenizer.encode('Ünïcödé, 12')).toEqual(tokens.encode('Ünïcödé, 12'))
    expect(read.tokenizer.beginIds).toEqual(tokens.beginIds)
    expect(read.tokenizer.endIds).toEqual(tokens.endIds)
    // llama3's factors come back as a list.
    const [cosine, expected] = [read.model, wide].map((each) => decoder(each, given, 'plain').columns.forward.cosine)
    expect(cosine!.every((value, i) => Math.abs(value - expected![i]!) < 1e-5)).toBe(true)
    await saveGguf(path, wide, given, tokens, 'F16')
    const half = (await loadLanguageModel(path)).weights
    expect(half.every((value, i) => Math.abs(value - given[i]!) <= Math.abs(given[i]!) * 2 ** -11 + 2 ** -25)).toBe(
      true,
    )
    expect(half).not.toEqual(given)
  },
)

test('matrices written in 8 bits are read again, each number within half a step of its block', async () => {
  const path = `${await temporaryFolder()}/eight.gguf`
  await saveGguf(path, model, weights, byteTokenizer(), 'Q8_0')
  for (const { shape, kind } of readGguf(path).tensors.values()) expect(kind).toBe(shape.length === 2 ? 8 : 0)
  const read = (await loadLanguageModel(path)).weights
  for (const { name, offset, shape } of model.parameters) {
    const length = shape.reduce((all, side) => all * side, 1)
    let [apart, steps] = [0, 0]
    for (let i = offset; i < offset + length; i += 32) {
      const step = Math.max(...weights.subarray(i, i + 32).map(Math.abs)) / 127
      for (let j = i; j < i + 32; j++) {
        if (read[j] !== weights[j]) apart++
        steps = Math.max(steps, Math.abs(read[j]! - weights[j]!) / step)
      }
    }
    if (shape.length === 1) expect(apart, name).toBe(0)
    else expect(apart, name).toBeGreaterThan(0.9 * length)
    // Of 127 steps, the scale's rounding to f16 moves the last by a sixteenth of one.
    expect(steps, name).toBeLessThan(0.5 + 127 * 2 ** -11 + 1e-4)
  }
})

test('a number that f16 does not have is refused, and leaves no file', async () => {
  const folder = await temporaryFolder()
  const large = weights.slice()
  large[model.parameters.find(({ name }) => name.endsWith('1.mlp.up_proj.weight'))!.offset + 3] = 70_000
  const written = saveGguf(`${folder}/large.gguf`, model, large, byteTokenizer(), 'F16')
  await expect(written).rejects.toThrow('blk.1.ffn_up.weight: got 70000, expected at most ±65504, or type F32')
  expect(readdirSync(folder)).toEqual([])
})

test('a byte order mark is a part of its token', async () => {
  const path = await written()
  const bytes = readFileSync(path)
  bytes.write('\ufeffab', bytes.indexOf('<200>'))
  writeFileSync(path, bytes)
  expect((readGguf(path).metadata.get('tokenizer.ggml.tokens') as string[])[200]).toBe('\ufeffab')
})

test.each([
  ...[['gemma2', 42, 3584, 16, 256, 256] as const, ['gemma2', 46, 4608, 32, 128, 144] as const],
  ...[['gemma3', 48, 3840, 16, 256, 256] as const, ['gemma3', 62, 5376, 32, 128, 168] as const],
])(
  '%s of %i layers divides scores by the root that its config.json has',
  (name, layers, width, heads, head, scalar) => {
    const metadata = new Map<string, GgufValue>([
      ['general.architecture', name],
      ...Object.entries({
        ...{ block_count: layers, embedding_length: width, 'attention.head_count': heads, context_length: 8192 },
        ...{ 'attention.head_count_kv': heads / 2, 'attention.key_length': head, feed_forward_length: 64 },
        ...{ 'attention.layer_norm_rms_epsilon': 1e-6, 'attention.sliding_window': 512 },
      }).map(([key, value]) => [`${name}.${key}`, value] as const),
    ])
    const embedding = { name: 'token_embd.weight', shape: [64, width], kind: 0, start: 0 }
    const gguf = { path: 'x.gguf', metadata, tensors: new Map([[embedding.name, embedding]]) }
    expect(transformerShape(configOf(gguf, null).config).queryScale).toBeCloseTo(Math.sqrt(head / scalar), 10)
    const windows = () => transformerShape(configOf(gguf, null).config).windows.slice(0, 7).map(Math.sign)
    expect(windows()).toEqual(name === 'gemma2' ? [1, 0, 1, 0, 1, 0, 1] : [1, 1, 1, 1, 1, 0, 1])
    metadata.set(`${name}.attention.sliding_window_pattern`, 3)
    expect(windows()).toEqual([1, 1, 0, 1, 1, 0, 1])
    metadata.set(
      `${name}.attention.sliding_window_pattern`,
      Array.from({ length: layers }, (_, i) => i === 1),
    )
    expect(windows()).toEqual([0, 1, 0, 0, 0, 0, 0])
    metadata.set(`${name}.attention.sliding_window_pattern`, 'x')
    expect(windows).toThrow('sliding_window_pattern: got "x", expected a whole number ≥ 1')
    metadata.set(`${name}.rope.dimension_count`, head / 2)
    expect(windows).toThrow(`rope.dimension_count: got ${head / 2}, expected ${head}, all of a head`)
  },
)

test('a model whose activation llama.cpp would not use is refused', async () => {
  const path = `${await temporaryFolder()}/gelu.gguf`
  const other = transformer({ ...model.config, hidden_act: 'gelu' })
  await expect(saveGguf(path, other, weights, byteTokenizer())).rejects.toThrow('got activation gelu, expected silu')
})

test('a file of another format, that ends early, or of what is not known is refused', async () => {
  const path = await written()
  const bytes = readFileSync(path)
  const refused = async (change: (bytes: Buffer) => Buffer, message: string) => {
    const wrong = `${await temporaryFolder()}/wrong.gguf`
    writeFileSync(wrong, change(Buffer.from(bytes)))
    await expect(loadLanguageModel(wrong)).rejects.toThrow(message)
  }
  const put = (given: Buffer, bits: number, at: number) => {
    given.writeUInt32LE(bits, at)
    return given
  }
  const replaced = (from: string, to: string) => (given: Buffer) => {
    given.write(to, given.indexOf(from))
    return given
  }
  await refused((given) => given.subarray(4), 'got another format, expected a GGUF file')
  await refused((given) => given.subarray(0, 500), 'bytes more, expected as many as the file has')
  await refused((given) => given.subarray(0, given.length - 4000), 'expected whole blocks inside the file')
  await refused((given) => put(given, 1, 4), 'version: got 1, expected 2 or 3')
  await refused(replaced('llama', 'xlstm'), 'general.architecture: got "xlstm"')
  await refused(replaced('gpt-2', 'gpt-9'), 'tokenizer.ggml.pre: got "gpt-9" (did you mean "gpt-2"?)')
  await refused(replaced('ffn_up', 'ffn_xp'), 'got no blk.0.ffn_up.weight')
  await refused((given) => put(given, 0x7fc00000, given.length - 64), 'expected finite weights')
  // A row of 64 numbers as 64 rows of one; a text that is 24 bytes longer keeps what follows in its place.
  await refused((given) => {
    const [text, sides] = [given.indexOf('<200>'), given.indexOf('output_norm.weight') + 'output_norm.weight'.length]
    const longer = Buffer.concat([Buffer.of(29, 0, 0, 0, 0, 0, 0, 0), Buffer.from('<200>'.padEnd(29))])
    const column = Buffer.from(Uint32Array.of(2, 1, 0, 64, 0).buffer)
    const parts = [given.subarray(0, text - 8), longer, given.subarray(text + 5, sides), column]
    return Buffer.concat([...parts, given.subarray(sides + 12)])
  }, 'got output_norm.weight of shape [64,1], expected output_norm.weight of shape [64]')
  const [cut, tensor] = [`${await temporaryFolder()}/cut.gguf`, readGguf(path).tensors.get('output_norm.weight')!]
  writeFileSync(cut, bytes.subarray(0, tensor.start + 8))
  expect(() => withFile(cut, (file) => readRows(file, tensor, 0, 1))).toThrow('expected a GGUF file')
  await expect(loadLanguageModel(`${path}x.gguf`)).rejects.toThrow('expected a GGUF file')
})
