/** A model of ours as a GGUF file, by the format's description of version 3: what llama.cpp reads. */
import { open } from 'node:fs/promises'
import { narrowBf16, narrowF16 } from '../../src/base/half.ts'
import type { TransformerModel } from '../../src/entries/text.ts'

const ALIGNMENT = 32
/** What values are, by the format's numbers. */
const [U32, I32, F32, TEXT, LIST] = [4, 5, 6, 8, 9]
/** Kinds of tokens. */
const [NORMAL, CONTROL] = [1, 3]
/** How a tensor's elements lie, by the format's numbers. */
const TENSORS = { F32: 0, Q4_0: 2, Q8_0: 8, BF16: 30 } as const
/** Elements of a block, and its bytes: in fewer than 16 bits a scale in f16, then a byte for each, or half of one. */
const BLOCK = 32
const BLOCK_BYTES = { F32: 128, BF16: 64, Q4_0: 18, Q8_0: 34 } as const
type Entry = readonly [name: string, type: number, value: number | string | readonly string[] | readonly number[]]

const u32 = (value: number) => Buffer.from(Uint32Array.of(value).buffer)
const u64 = (value: number) => Buffer.from(BigUint64Array.of(BigInt(value)).buffer)
const words = (text: string) => Buffer.concat([u64(Buffer.byteLength(text)), Buffer.from(text)])
const padding = (length: number) => Buffer.alloc((ALIGNMENT - (length % ALIGNMENT)) % ALIGNMENT)

function bytesOf(type: number, value: Entry[2]): Buffer {
  if (Array.isArray(value)) {
    const of = typeof value[0] === 'string' ? TEXT : I32
    const parts = (value as (string | number)[]).map((each) => bytesOf(of, each))
    return Buffer.concat([u32(of), u64(value.length), ...parts])
  }
  if (type === TEXT) return words(value as string)
  return Buffer.from((type === F32 ? Float32Array : type === I32 ? Int32Array : Uint32Array).of(value as number).buffer)
}

/** Rows of queries and keys in the order in which llama.cpp turns them: pairs beside one another, not halves. */
function paired(values: Float32Array<ArrayBuffer>, numHeads: number, width: number) {
  const half = values.length / width / numHeads / 2
  const made = new Float32Array(values.length)
  for (let h = 0; h < numHeads; h++) {
    for (let part = 0; part < 2; part++) {
      for (let i = 0; i < half; i++) {
        const from = (2 * h * half + part * half + i) * width
        made.set(values.subarray(from, from + width), (2 * h * half + 2 * i + part) * width)
      }
    }
  }
  return made
}

/** What a parameter is called there. */
function nameOf(name: string): string {
  const parts: Readonly<Record<string, string>> = {
    ...{ 'model.embed_tokens': 'token_embd', 'model.norm': 'output_norm', lm_head: 'output' },
    ...{ input_layernorm: 'attn_norm', post_attention_layernorm: 'ffn_norm' },
    ...{ 'self_attn.q_proj': 'attn_q', 'self_attn.k_proj': 'attn_k', 'self_attn.v_proj': 'attn_v' },
    ...{ 'self_attn.o_proj': 'attn_output' },
    ...{ 'mlp.gate_proj': 'ffn_gate', 'mlp.up_proj': 'ffn_up', 'mlp.down_proj': 'ffn_down' },
  }
  const [, layer, part, end] = /^(?:model\.layers\.(\d+)\.)?(.*)\.(weight)$/.exec(name) ?? []
  const known = parts[part ?? '']
  if (known === undefined) throw new Error(`got parameter ${name}, expected one of a Llama without biases`)
  return `${layer === undefined ? '' : `blk.${layer}.`}${known}.${end}`
}

/** How vocabularies of bytes write those of ASCII, after GPT-2: as the letter that it is, or else as one that no byte is. */
function asciiLetters(): string[] {
  let others = 0
  return Array.from({ length: 128 }, (_, byte) => {
    return String.fromCodePoint(byte > 32 && byte < 127 ? byte : 256 + others++)
  })
}

/** Blocks of Q4_0: the largest element in size is −8 times the scale, each other the nearest of its multiples by −8 … 7. */
function inNibbles(values: Float32Array): Buffer {
  const bytes = Buffer.alloc((values.length / BLOCK) * BLOCK_BYTES.Q4_0)
  for (let block = 0; block < values.length / BLOCK; block++) {
    const some = values.subarray(block * BLOCK, (block + 1) * BLOCK)
    const largest = some.reduce((most, value) => (Math.abs(value) > Math.abs(most) ? value : most), 0)
    const scale = largest / -8
    const at = block * BLOCK_BYTES.Q4_0
    bytes.writeUInt16LE(narrowF16(Float32Array.of(scale))[0]!, at)
    const nibble = (value: number) => (scale === 0 ? 8 : Math.min(15, Math.floor(value / scale + 8.5)))
    for (let i = 0; i < BLOCK / 2; i++) bytes[at + 2 + i] = nibble(some[i]!) | (nibble(some[i + BLOCK / 2]!) << 4)
  }
  return bytes
}

/** Blocks of Q8_0: each element the nearest multiple of its block's scale, max / 127. */
function inBytes(values: Float32Array): Buffer {
  const bytes = Buffer.alloc((values.length / BLOCK) * BLOCK_BYTES.Q8_0)
  const scales = new Float32Array(values.length / BLOCK)
  for (const [i, value] of values.entries()) {
    const block = Math.floor(i / BLOCK)
    scales[block] = Math.max(scales[block]!, Math.abs(value) / 127)
  }
  for (const [block, scale] of narrowF16(scales).entries()) bytes.writeUInt16LE(scale, block * BLOCK_BYTES.Q8_0)
  for (const [i, value] of values.entries()) {
    const block = Math.floor(i / BLOCK)
    const whole = value === 0 ? 0 : Math.round(value / scales[block]!)
    bytes.writeInt8(whole, block * BLOCK_BYTES.Q8_0 + 2 + (i % BLOCK))
  }
  return bytes
}

const WRITTEN = {
  F32: (values: Float32Array<ArrayBuffer>) => Buffer.from(values.buffer),
  BF16: (values: Float32Array) => Buffer.from(narrowBf16(values).buffer),
  Q8_0: inBytes,
  Q4_0: inNibbles,
}

/**
 * Writes a model of the family `llama`, whose vocabulary is the letters of ASCII, each its own id. Of the ids behind them each is a
 * text of its own, not part of a character: the server tells no log-probabilities of those. `type`: how matrices lie, of which
 * `embedding` says whether the embedding is one; all else is f32.
 */
export async function writeGguf(
  path: string,
  { shape, parameters }: TransformerModel,
  weights: Float32Array,
  { type = 'F32', embedding = true }: { readonly type?: keyof typeof TENSORS; readonly embedding?: boolean } = {},
) {
  const { vocabularySize, width, numLayers, numHeads, numKeyHeads, headWidth, normEpsilon } = shape
  const letters = asciiLetters()
  const texts = Array.from({ length: vocabularySize }, (_, id) => letters[id] ?? `<${id}>`)
  const entries: Entry[] = [
    ['general.architecture', TEXT, 'llama'],
    ['llama.context_length', U32, shape.contextLength],
    ['llama.embedding_length', U32, width],
    ['llama.block_count', U32, numLayers],
    ['llama.feed_forward_length', U32, shape.feedForwardWidth],
    ['llama.attention.head_count', U32, numHeads],
    ['llama.attention.head_count_kv', U32, numKeyHeads],
    ['llama.rope.dimension_count', U32, headWidth],
    ['llama.rope.freq_base', F32, shape.rope.theta],
    ['llama.attention.layer_norm_rms_epsilon', F32, normEpsilon],
    ['llama.vocab_size', U32, vocabularySize],
    ['tokenizer.ggml.model', TEXT, 'gpt2'],
    ['tokenizer.ggml.pre', TEXT, 'gpt-2'],
    ['tokenizer.ggml.tokens', LIST, texts],
    ['tokenizer.ggml.token_type', LIST, texts.map((_, id) => (id < 256 ? NORMAL : CONTROL))],
    ['tokenizer.ggml.merges', LIST, ['\u0001 \u0001']], // There have to be some: of letters that no byte is written by.
    ['tokenizer.ggml.bos_token_id', U32, 256],
    ['tokenizer.ggml.eos_token_id', U32, 257],
  ]
  const typeOf = (name: string) => {
    return name.includes('_proj.') || (embedding && name.includes('embed_tokens')) ? type : 'F32'
  }
  let offset = 0
  const infos: Buffer[] = []
  for (const { name, shape: sizes } of parameters) {
    const dimensions = [...sizes].reverse().map(u64) // The one that lies together comes first.
    const as = typeOf(name)
    infos.push(words(nameOf(name)), u32(sizes.length), ...dimensions, u32(TENSORS[as]), u64(offset))
    const length = sizes.reduce((product, size) => product * size, 1)
    const bytes = (length / BLOCK) * BLOCK_BYTES[as]
    offset += bytes + padding(bytes).length
  }
  const head = Buffer.concat([
    ...[Buffer.from('GGUF'), u32(3), u64(parameters.length), u64(entries.length)],
    ...entries.flatMap(([name, type, value]) => [words(name), u32(type), bytesOf(type, value)]),
    ...infos,
  ])
  const file = await open(path, 'w')
  try {
    await file.writeFile(Buffer.concat([head, padding(head.length)]))
    for (const { name, offset: from, shape: sizes } of parameters) {
      const length = sizes.reduce((product, size) => product * size, 1)
      let values = Float32Array.from(weights.subarray(from, from + length))
      if (name.endsWith('q_proj.weight')) values = paired(values, numHeads, width)
      if (name.endsWith('k_proj.weight')) values = paired(values, numKeyHeads, width)
      const bytes = WRITTEN[typeOf(name)](values)
      await file.writeFile(Buffer.concat([bytes, padding(bytes.length)]))
    }
  } finally {
    await file.close()
  }
}
