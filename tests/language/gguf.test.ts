import { readFileSync, writeFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import { writeGguf } from '../../bench/peers/gguf.ts'
import { Random } from '../../src/base/random.ts'
import { saveGguf } from '../../src/language/gguf/write.ts'
import { loadLanguageModel } from '../../src/language/load-language-model.ts'
import { byteTokenizer } from '../../src/language/tokenizers/byte-tokenizer.ts'
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
  await expect(loadLanguageModel(`${path}x.gguf`)).rejects.toThrow('expected a GGUF file')
})
