/** Writes a language model as a GGUF file, as llama.cpp reads it. */
import { InputError } from '../../base/errors.ts'
import { parseJsonObject, writeWhole } from '../../base/files/files.ts'
import { narrowF16 } from '../../base/half.ts'
import type { Parameter } from '../../policies/policy.ts'
import { checkWeights } from '../../policies/weights.ts'
import type { Tokenizer } from '../tokenizers/tokenizer.ts'
import { isOfCritic } from '../transformer/folder.ts'
import type { TransformerModel } from '../transformer/model.ts'
import { sizeOf } from '../transformer/parameters.ts'
import { BLOCK_TYPES } from './blocks.ts'
import { architectureOf, ggufKeys, ggufName, headsOf, inPairs, ropeFactors, turned } from './names.ts'
import { wordsNamed } from './tokenizer.ts'

/** How matrices lie in a file; norms, biases and routers are f32. */
export const ggufTypes = ['F32', 'F16', 'Q8_0'] as const
export type GgufType = (typeof ggufTypes)[number]

/** The format's numbers. */
const NUMBERS: Readonly<Record<GgufType, number>> = { F32: 0, F16: 1, Q8_0: 8 }
const [U32, I32, F32, BOOL, TEXT, LIST] = [4, 5, 6, 7, 8, 9]
const [NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE] = [1, 2, 3, 4, 5, 6]
const ALIGNMENT = 32
const BLOCK = 32
const LARGEST_F16 = 65_504

/** A value of the metadata. A list has values of `type`. */
type Entry = readonly [key: string, type: number, value: unknown]

/** A tensor that is encoded when it is written. */
interface Written {
  readonly stored: string
  /** Rows first. */
  readonly shape: readonly number[]
  /** The format's number of its type. */
  readonly kind: number
  encode(): Uint8Array
}

const u32 = (value: number) => Buffer.from(Uint32Array.of(value).buffer)
const u64 = (value: number) => Buffer.from(BigUint64Array.of(BigInt(value)).buffer)
const words = (text: string) => Buffer.concat([u64(Buffer.byteLength(text)), Buffer.from(text)])
const padding = (length: number) => Buffer.alloc((ALIGNMENT - (length % ALIGNMENT)) % ALIGNMENT)

function bytesOf(type: number, value: unknown): Buffer {
  if (type === TEXT) return words(value as string)
  if (type === BOOL) return Buffer.of(value === true ? 1 : 0)
  return Buffer.from((type === F32 ? Float32Array : type === I32 ? Int32Array : Uint32Array).of(value as number).buffer)
}

function entryOf([key, type, value]: Entry): Buffer {
  if (!Array.isArray(value)) return Buffer.concat([words(key), u32(type), bytesOf(type, value)])
  const each = value.map((item) => bytesOf(type, item))
  return Buffer.concat([words(key), u32(LIST), u32(type), u64(value.length), ...each])
}

/**
 * Writes network, weights and tokenizer, one tensor after another. `type` is that of matrices; Q8_0 leaves those whose rows are no whole
 * blocks in F16. Norms, biases and routers are F32, and a value head is left out.
 * @throws InputError for a family or tokenizer that llama.cpp does not have, weights that are not finite or too large for f16, and a file
 * that cannot be written.
 */
export async function saveGguf(
  path: string,
  model: TransformerModel,
  weights: Float32Array,
  tokenizer: Tokenizer,
  type: GgufType = 'F32',
): Promise<void> {
  checkWeights(model, weights)
  const { name, paired } = architectureOf(model)
  const keys = ggufKeys(model)
  const entries: Entry[] = [
    ['general.architecture', TEXT, name],
    ...Object.entries(keys).map(([key, value]): Entry => {
      const kind = typeof value === 'string' ? TEXT : /epsilon|freq_base|factor|softcapping/.test(key) ? F32 : U32
      return [`${name}.${key}`, kind, value]
    }),
    ...tokenizerEntries(tokenizer, model.shape.vocabularySize),
  ]
  const tensors = tensorsOf(model, weights, type, paired === true)
  const infos: Buffer[] = []
  let offset = 0
  for (const { stored, shape, kind } of tensors) {
    const sides = [...shape].reverse().map(u64) // The side that lies together comes first.
    infos.push(words(stored), u32(shape.length), ...sides, u32(kind), u64(offset))
    const { elements, bytes } = BLOCK_TYPES[kind]!
    const length = (sizeOf({ shape }) / elements) * bytes
    offset += length + padding(length).length
  }
  const head = Buffer.concat([
    ...[Buffer.from('GGUF'), u32(3), u64(tensors.length), u64(entries.length)],
    ...[...entries.map(entryOf), ...infos],
  ])
  const parts = function* () {
    yield* [head, padding(head.length)]
    for (const { encode } of tensors) {
      const bytes = encode()
      yield* [bytes, padding(bytes.byteLength)]
    }
  }
  await writeWhole(path, parts())
}

function tensorsOf(model: TransformerModel, weights: Float32Array, type: GgufType, isPaired: boolean): Written[] {
  const { headWidth, experts } = model.shape
  const together = new Map<string, Parameter[]>()
  for (const parameter of model.parameters) {
    if (isOfCritic(parameter)) continue
    const { stored } = ggufName(parameter.name)
    together.set(stored, [...(together.get(stored) ?? []), parameter])
  }
  const tensors = [...together].map(([stored, parts]): Written => {
    const [first] = parts as [Parameter]
    const isOne = first.shape.length === 2 && first.shape[0] === 1
    const shape = isOne ? first.shape.slice(1) : first.shape
    const isMatrix = shape.length === 2 && !stored.includes('ffn_gate_inp')
    const fits = type !== 'Q8_0' || shape.at(-1)! % BLOCK === 0
    const kind = !isMatrix ? 'F32' : fits ? type : 'F16'
    const isStack = experts !== null && stored.includes('_exps.')
    const values = () => {
      const all = new Float32Array(parts.length * sizeOf(first))
      parts.forEach((part, i) => {
        const own = weights.subarray(part.offset, part.offset + sizeOf(part))
        const numHeads = isPaired ? headsOf(part, model.shape) : null
        all.set(numHeads === null ? own : turned(own, numHeads, headWidth, inPairs), i * own.length)
      })
      return all
    }
    return {
      ...{ stored, shape: isStack ? [experts.count, ...shape] : shape, kind: NUMBERS[kind] },
      encode: () => encode(stored, values(), kind),
    }
  })
  const factors = ropeFactors(model.shape)
  if (factors === null) return tensors
  const encoded = () => encode('rope_freqs.weight', factors, 'F32')
  return [...tensors, { stored: 'rope_freqs.weight', shape: [factors.length], kind: NUMBERS.F32, encode: encoded }]
}

function encode(name: string, values: Float32Array, kind: GgufType): Uint8Array {
  if (kind === 'F32') return new Uint8Array(values.buffer, values.byteOffset, values.byteLength)
  const large = values.find((value) => Math.abs(value) > LARGEST_F16)
  if (large !== undefined) throw new InputError(name, String(large), `at most ±${LARGEST_F16}, or type F32`)
  if (kind === 'F16') return new Uint8Array(narrowF16(values).buffer)
  // A scale in f16, the largest / 127, and the nearest multiples of the scale as it was before it was rounded.
  const numBlocks = values.length / BLOCK
  const scales = new Float32Array(numBlocks)
  const bytes = Buffer.alloc(numBlocks * (2 + BLOCK))
  for (let block = 0; block < numBlocks; block++) {
    let most = 0
    for (let i = 0; i < BLOCK; i++) most = Math.max(most, Math.abs(values[block * BLOCK + i]!))
    scales[block] = most / 127
    const inverse = most === 0 ? 0 : Math.fround(127 / most)
    for (let i = 0; i < BLOCK; i++) {
      const whole = Math.round(values[block * BLOCK + i]! * inverse)
      bytes.writeInt8(Math.max(-127, Math.min(127, whole)), block * (2 + BLOCK) + 2 + i)
    }
  }
  for (const [block, bits] of narrowF16(scales).entries()) bytes.writeUInt16LE(bits, block * (2 + BLOCK))
  return bytes
}

interface Added {
  readonly id: number
  readonly content: string
  readonly special?: boolean
}

function tokenizerEntries(tokenizer: Tokenizer, vocabularySize: number): Entry[] {
  const read = (name: string) => {
    const bytes = tokenizer.files.get(name)
    return bytes === undefined ? {} : parseJsonObject(name, bytes)
  }
  const json = read('tokenizer.json')
  const config = read('tokenizer_config.json')
  const {
    vocab,
    merges = [],
    byte_fallback: hasBytes,
  } = json.model as {
    readonly vocab: Readonly<Record<string, number>>
    readonly merges?: readonly (string | readonly [string, string])[]
    readonly byte_fallback?: boolean
  }
  const isByteLevel = JSON.stringify(json.decoder ?? null).includes('"ByteLevel"')
  if (!isByteLevel && hasBytes !== true) {
    throw new InputError(
      'tokenizer',
      'one of another kind',
      'byte-level pairs, or pairs with bytes in place of unknown text',
    )
  }
  const texts = Array.from({ length: vocabularySize }, (_, id) => `[UNUSED${id}]`)
  const types = new Array<number>(vocabularySize).fill(UNUSED)
  for (const [text, id] of Object.entries(vocab)) {
    texts[id] = text
    types[id] = !isByteLevel && /^<0x[0-9A-F]{2}>$/.test(text) ? BYTE : NORMAL
  }
  const { unk_token: unknown } = json.model as { readonly unk_token?: string | null }
  for (const { id, content, special } of (json.added_tokens ?? []) as readonly Added[]) {
    texts[id] = content
    types[id] = content === unknown ? UNKNOWN : special ? CONTROL : USER_DEFINED
  }
  const pairs = merges.map((merge) => (typeof merge === 'string' ? merge.split(' ') : merge) as [string, string])
  const kind: Entry[] = isByteLevel
    ? [
        ['tokenizer.ggml.model', TEXT, 'gpt2'],
        ['tokenizer.ggml.pre', TEXT, wordsNamed(json)],
        // llama.cpp requires some merges: of letters that represent no byte.
        ['tokenizer.ggml.merges', TEXT, pairs.length === 0 ? ['\u0001 \u0001'] : pairs.map((pair) => pair.join(' '))],
      ]
    : [
        ['tokenizer.ggml.model', TEXT, 'llama'],
        ['tokenizer.ggml.scores', F32, scoresOf(texts, pairs)],
        ['tokenizer.ggml.add_space_prefix', BOOL, /"Prepend"|"Metaspace"/.test(JSON.stringify(json))],
      ]
  const idOf = (name: string): number | undefined => {
    const token = config[name]
    const content = typeof token === 'object' && token !== null ? (token as Added).content : token
    const id = texts.indexOf(String(content))
    return content === undefined || id < 0 ? undefined : id
  }
  const ids: Entry[] = (
    [
      ['bos_token_id', tokenizer.beginIds[0] ?? idOf('bos_token')],
      ['eos_token_id', tokenizer.endIds[0]],
      ['unknown_token_id', types.indexOf(UNKNOWN) < 0 ? undefined : types.indexOf(UNKNOWN)],
      ['padding_token_id', idOf('pad_token')],
    ] as const
  ).flatMap(([key, id]) => (id === undefined ? [] : [[`tokenizer.ggml.${key}`, U32, id] as const]))
  const own = tokenizer.files.get('chat_template.jinja')
  const template = own === undefined ? config.chat_template : new TextDecoder().decode(own)
  return [
    ...kind,
    ['tokenizer.ggml.tokens', TEXT, texts],
    ['tokenizer.ggml.token_type', I32, types],
    ...ids,
    ['tokenizer.ggml.add_bos_token', BOOL, tokenizer.beginIds.length > 0],
    ...(typeof template === 'string' ? [['tokenizer.chat_template', TEXT, template] as const] : []),
  ]
}

/** SentencePiece's scores, by which the earlier of two merges has the higher one. */
function scoresOf(texts: readonly string[], pairs: readonly (readonly [string, string])[]): number[] {
  const rank = new Map<string, number>()
  for (const [i, [left, right]] of pairs.entries()) if (!rank.has(left + right)) rank.set(left + right, i)
  return texts.map((text) => -(rank.get(text) ?? pairs.length))
}
