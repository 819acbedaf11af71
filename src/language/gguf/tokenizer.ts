/**
 * The tokenizer in a GGUF file, as Hugging Face's files: byte-level pairs (`gpt2`) with the words of a named pattern, and SentencePiece's
 * pairs (`llama`), whose merges follow from the scores.
 */
import { InputError, show, unknownWord } from '../../base/errors.ts'
import type { Gguf } from './file.ts'

/** Kinds of tokens, by the format's numbers. */
const [UNKNOWN, CONTROL, USER_DEFINED] = [2, 3, 4]

const CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
const WORDS = '[^\\r\\n\\p{L}\\p{N}]?\\p{L}+'
const REST = ' ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+'
const UPPER = '[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]'
const LOWER = '[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]'
const SIGNS = ' ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+'
const cased = (end: string) =>
  `[^\\r\\n\\p{L}\\p{N}]?${UPPER}*${LOWER}+${end}|[^\\r\\n\\p{L}\\p{N}]?${UPPER}+${LOWER}*${end}`

interface Words {
  /** Null: GPT-2's pattern. */
  readonly pattern: string | null
  readonly digits?: true
  readonly composed?: true
  readonly ignoresMerges?: true
  readonly begins?: true
}
const GPT2: Words = { pattern: null }
const LLAMA3: Words = {
  pattern: `${CONTRACTIONS}|${WORDS}|\\p{N}{1,3}|${REST}`,
  ignoresMerges: true,
  begins: true,
}
const QWEN2: Words = { pattern: `${CONTRACTIONS}|${WORDS}|\\p{N}|${REST}`, composed: true }

/** The words of byte-level tokenizers, by `tokenizer.ggml.pre`. */
const PATTERNS: Readonly<Record<string, Words>> = {
  ...{ 'gpt-2': GPT2, olmo: GPT2, 'phi-2': GPT2, smollm: { pattern: null, digits: true } },
  ...{ 'llama-bpe': LLAMA3, llama3: LLAMA3, 'llama-v3': LLAMA3, qwen2: QWEN2, 'deepseek-r1-qwen': QWEN2 },
  'gpt-4o': { pattern: `${cased(`${CONTRACTIONS}?`)}|\\p{N}{1,3}|${SIGNS}`, ignoresMerges: true },
  tekken: { pattern: `${cased('')}|\\p{N}|${SIGNS}`, ignoresMerges: true, begins: true },
}

/** The files of a tokenizer's folder. @throws InputError for a kind or pattern that is not known, or lists that do not fit. */
export function tokenizerFiles(gguf: Gguf): Map<string, Uint8Array> {
  const { path, metadata } = gguf
  const take = (name: string) => metadata.get(`tokenizer.ggml.${name}`)
  const kind = take('model')
  if (kind !== 'gpt2' && kind !== 'llama')
    throw unknownWord(`${path}, tokenizer.ggml.model`, kind ?? 'nothing', ['gpt2', 'llama'])
  const tokens = listOf(gguf, 'tokens', 'string') as string[]
  const types = metadata.has('tokenizer.ggml.token_type') ? (listOf(gguf, 'token_type', 'number') as number[]) : []
  const vocab = Object.fromEntries(tokens.map((token, id) => [token, id]))
  const added = tokens.flatMap((content, id) => {
    const type = types[id] ?? 1
    if (type !== CONTROL && type !== USER_DEFINED && type !== UNKNOWN) return []
    const plain = { single_word: false, lstrip: false, rstrip: false, normalized: false }
    return [{ id, content, ...plain, special: type !== USER_DEFINED }]
  })
  const words = kind === 'gpt2' ? patternOf(path, take('pre')) : null
  const tokenizer =
    words === null ? sentencePieces(gguf, vocab, take('add_space_prefix') !== false) : byteLevel(gguf, vocab, words)
  const named = (name: string, key: string) => {
    const id = take(key)
    return typeof id === 'number' && tokens[id] !== undefined ? { [name]: tokens[id] } : {}
  }
  const begins = take('add_bos_token') ?? (words === null || words.begins === true)
  const template = metadata.get('tokenizer.chat_template')
  const config = {
    ...named('bos_token', 'bos_token_id'),
    ...named('eos_token', 'eos_token_id'),
    ...named('unk_token', 'unknown_token_id'),
    ...named('pad_token', 'padding_token_id'),
    add_bos_token: begins === true && take('bos_token_id') !== undefined,
    ...(typeof template === 'string' ? { chat_template: template } : {}),
  }
  const ends = ['eos_token_id', 'eot_token_id'].map(take).filter((id) => typeof id === 'number' && id < tokens.length)
  const files = {
    'tokenizer.json': { version: '1.0', added_tokens: added, post_processor: null, ...tokenizer },
    'tokenizer_config.json': config,
    'generation_config.json': ends.length === 0 ? {} : { eos_token_id: [...new Set(ends)] },
  }
  return new Map(
    Object.entries(files).map(([name, json]) => [name, new TextEncoder().encode(JSON.stringify(json, null, 2))]),
  )
}

function listOf({ path, metadata }: Gguf, name: string, type: 'string' | 'number'): unknown[] {
  const list = metadata.get(`tokenizer.ggml.${name}`)
  if (Array.isArray(list) && list.every((each) => typeof each === type)) return list
  const got = list === undefined ? 'nothing' : show(list)
  throw new InputError(`${path}, tokenizer.ggml.${name}`, got, `a list of ${type}s`)
}

function patternOf(path: string, name: unknown): Words {
  const found = typeof name === 'string' && Object.hasOwn(PATTERNS, name) ? PATTERNS[name] : undefined
  if (found !== undefined) return found
  throw unknownWord(`${path}, tokenizer.ggml.pre`, name ?? 'nothing', Object.keys(PATTERNS))
}

function byteLevel(gguf: Gguf, vocab: object, { pattern, digits, composed, ignoresMerges }: Words) {
  const plain = { type: 'ByteLevel', add_prefix_space: false, trim_offsets: true }
  const split = { type: 'Split', pattern: { Regex: pattern }, behavior: 'Isolated', invert: false }
  const first = pattern !== null ? [split] : digits ? [{ type: 'Digits', individual_digits: true }] : []
  return {
    normalizer: composed ? { type: 'NFC' } : null,
    pre_tokenizer: { type: 'Sequence', pretokenizers: [...first, { ...plain, use_regex: pattern === null }] },
    decoder: { ...plain, use_regex: true },
    model: {
      ...{ type: 'BPE', unk_token: null, fuse_unk: false, byte_fallback: false },
      ...{ ignore_merges: ignoresMerges === true, vocab, merges: listOf(gguf, 'merges', 'string') },
    },
  }
}

/**
 * SentencePiece merges the pair whose token has the highest score. As a list of merges: each token's splits into two tokens, by falling
 * score, then by falling length, as transformers converts such files.
 */
function sentencePieces(gguf: Gguf, vocab: Readonly<Record<string, number>>, hasPrefix: boolean) {
  const scores = listOf(gguf, 'scores', 'number') as number[]
  const merges: { readonly pair: readonly [string, string]; readonly score: number }[] = []
  for (const [id, token] of (gguf.metadata.get('tokenizer.ggml.tokens') as string[]).entries()) {
    const letters = [...token]
    const splits = letters.slice(1).flatMap((_, i) => {
      const pair = [letters.slice(0, i + 1).join(''), letters.slice(i + 1).join('')] as const
      return Object.hasOwn(vocab, pair[0]) && Object.hasOwn(vocab, pair[1]) ? [pair] : []
    })
    splits.sort((a, b) => vocab[a[0]]! - vocab[b[0]]! || vocab[a[1]]! - vocab[b[1]]!)
    for (const pair of splits) merges.push({ pair, score: scores[id]! })
  }
  const lengthOf = (text: string) => [...text].length
  merges.sort(
    ({ pair: [a, b], score }, { pair: [c, d], score: other }) =>
      other - score || lengthOf(c) - lengthOf(a) || lengthOf(d) - lengthOf(b),
  )
  const spaces = { type: 'Replace', pattern: { String: ' ' }, content: '▁' }
  const strip = hasPrefix ? [{ type: 'Strip', content: ' ', start: 1, stop: 0 }] : []
  const back = { type: 'Replace', pattern: { String: '▁' }, content: ' ' }
  return {
    normalizer: {
      type: 'Sequence',
      normalizers: [...(hasPrefix ? [{ type: 'Prepend', prepend: '▁' }] : []), spaces],
    },
    pre_tokenizer: null,
    decoder: { type: 'Sequence', decoders: [back, { type: 'ByteFallback' }, { type: 'Fuse' }, ...strip] },
    model: {
      ...{ type: 'BPE', unk_token: gguf.metadata.has('tokenizer.ggml.unknown_token_id') ? unknownOf(gguf) : null },
      ...{ fuse_unk: true, byte_fallback: true, vocab, merges: merges.map(({ pair }) => pair) },
    },
  }
}

function unknownOf({ metadata }: Gguf): unknown {
  const tokens = metadata.get('tokenizer.ggml.tokens') as string[]
  return tokens[metadata.get('tokenizer.ggml.unknown_token_id') as number] ?? null
}

/** The name by which llama.cpp splits texts as a byte-level tokenizer does. @throws InputError for one that it has no name for. */
export function wordsNamed({ normalizer, pre_tokenizer: given }: Readonly<Record<string, unknown>>): string {
  const steps = (given as { readonly pretokenizers?: readonly object[] } | null)?.pretokenizers ?? [given]
  const patterns = steps.flatMap((step) => {
    const { type, pattern, use_regex: hasPattern } = step as Readonly<Record<string, unknown>>
    if (type === 'Split') return [(pattern as { readonly Regex?: string }).Regex ?? show(pattern)]
    return type === 'Digits' ? ['digits'] : type === 'ByteLevel' && hasPattern !== false ? ['gpt2'] : []
  })
  const composed = (normalizer as { readonly type?: string } | null)?.type === 'NFC'
  const name = Object.keys(PATTERNS).find((each) => {
    const { pattern, digits, composed: composes = false } = PATTERNS[each]!
    const own = pattern !== null ? [pattern] : digits ? ['digits', 'gpt2'] : ['gpt2']
    return own.join() === patterns.join() && composes === composed
  })
  // A tokenizer of bytes alone has no pairs, so that any words do.
  if (name !== undefined || patterns.length === 0) return name ?? 'gpt-2'
  throw new InputError('tokenizer', show(patterns), `words that llama.cpp names: ${Object.keys(PATTERNS).join(', ')}`)
}
