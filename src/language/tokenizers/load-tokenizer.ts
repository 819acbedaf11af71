/**
 * Loads a tokenizer's folder in Hugging Face's format, with `@huggingface/tokenizers`. `tokenizer.json` is the
 * tokenizer; other files name the begin and end tokens and hold chat templates. The library's model makes ids of
 * words. Some of its other steps give other words than the Rust library: `reference-steps.ts` replaces those steps, and
 * separates added tokens from text.
 *
 * The file is untrusted and has regular expressions and replacements, so all work of the library has a time limit. Only
 * short texts skip it if all steps are known to be quick (`quick-steps.ts`): the limit would take ten times as long as
 * the text. Between steps a text's length is limited, since a step that replaces one character by two doubles the text
 * each time.
 */
import type { Tokenizer as Engine } from '@huggingface/tokenizers'
import { InputError, show } from '../../base/errors.ts'
import { sha256 } from '../../base/files/digest.ts'
import { isThere, parseJsonObject, readWhole } from '../../base/files/files.ts'
import { type ChatTemplate, checkArguments, jinjaTemplate, type TemplateArguments } from '../templates/chat-template.ts'
import { isQuick, QUICK_LENGTH } from './quick-steps.ts'
import { type AddedToken, foldedAsReference, splitAdded, stepAsReference } from './reference-steps.ts'
import { TimeLimitError, withinTime } from './time-limit.ts'
import { checkUnicode, REPLACEMENT, type Tokenizer } from './tokenizer.ts'

type Json = Readonly<Record<string, unknown>>
/** The steps that a text takes before the model. */
type Steps = Pick<Engine, 'normalizer' | 'pre_tokenizer'>
/** Added tokens that are searched in the unchanged text, or in the normalized text. */
interface Sought {
  readonly tokens: ReadonlyMap<string, AddedToken>
  readonly split: (text: string) => readonly string[]
}
interface Reader {
  readonly engine: Engine
  /** The steps of a text that continues another. */
  readonly continued: Steps
  readonly raw: Sought
  readonly normalized: Sought
}

/** The files in a model's folder that make up its tokenizer. */
export const TOKENIZER_FILES = [
  ...['tokenizer.json', 'tokenizer_config.json', 'special_tokens_map.json'],
  ...['generation_config.json', 'chat_template.jinja'],
]

export interface TokenizerOptions {
  /** Arguments of the chat template besides the messages, like `{ enable_thinking: false }`; default none. */
  readonly templateArguments?: TemplateArguments
  /** Limit of loading, or of one text, in ms; default 30,000, plus 10,000 per MiB or 2²⁰ characters or ids. */
  readonly timeoutMs?: number
}

/** The tokens that templates can name. */
const NAMED_TOKENS = ['bos_token', 'eos_token', 'unk_token', 'sep_token', 'pad_token', 'cls_token', 'mask_token']
/** Characters that a text may have between two steps of a normalizer, pre-tokenizer or decoder. */
const MAX_CHARACTERS = 2 ** 22
/** Upper bound of ids in a tokenizer's file, far above any vocabulary. */
const MAX_IDS = 2 ** 24
const NO_MODEL = { type: 'BPE', vocab: {}, merges: [] }

/**
 * Loads a tokenizer's folder: `tokenizer.json`, and, if present, `tokenizer_config.json`, `special_tokens_map.json`,
 * `generation_config.json` and `chat_template.jinja`. The first end id is that of `eos_token`. Decoding never cleans up
 * spaces, whatever the folder says: that would change the model's text.
 * @throws InputError for a file that is missing, damaged or of an unknown kind, a named token that is not in the
 * vocabulary, an id that is not a whole number below 2²⁴, a chat template that cannot be parsed, an argument that the
 * template does not read, and work that exceeds `timeoutMs`. The tokenizer's methods throw it for a text that exceeds
 * the limit or that the library cannot process.
 * @example const tokenizer = await loadTokenizer('models/SmolLM2-135M-Instruct')
 */
export async function loadTokenizer(folder: string, options: TokenizerOptions = {}): Promise<Tokenizer> {
  const path = `${folder}/tokenizer.json`
  const bytes = await readWhole(path, "a tokenizer in Hugging Face's format")
  const files = new Map([['tokenizer.json', bytes]])
  for (const name of TOKENIZER_FILES) {
    if (files.has(name) || !(await isThere(`${folder}/${name}`))) continue
    files.set(name, await readWhole(`${folder}/${name}`, 'a file of a tokenizer'))
  }
  return tokenizerOf(folder, files, options)
}

/** The tokenizer of a folder's files, by their names; see `loadTokenizer`. */
export async function tokenizerOf(
  folder: string,
  files: ReadonlyMap<string, Uint8Array>,
  { templateArguments = {}, timeoutMs }: TokenizerOptions = {},
): Promise<Tokenizer> {
  if (timeoutMs !== undefined && !(Number.isFinite(timeoutMs) && timeoutMs > 0)) {
    throw new InputError('timeoutMs', String(timeoutMs), 'a number above 0')
  }
  const path = `${folder}/tokenizer.json`
  const bytes = files.get('tokenizer.json')!
  const json = parseJsonObject(path, bytes)
  const readIfThere = (name: string): Json =>
    files.has(name) ? parseJsonObject(`${folder}/${name}`, files.get(name)!) : {}
  const config = readIfThere('tokenizer_config.json')
  const named = namedTokens({ ...readIfThere('special_tokens_map.json'), ...config })
  const generation = readIfThere('generation_config.json')

  const added = (json.added_tokens ?? []) as AddedToken[]
  checkIds(path, json, added)
  const limit = (size: number): number => timeoutMs ?? 30_000 + (10_000 * size) / 2 ** 20
  const allQuick = [json.normalizer, json.pre_tokenizer, json.decoder].every(isQuick)
  const limitOfText = (length: number): number | null => (allQuick && length <= QUICK_LENGTH ? null : limit(length))
  const { Tokenizer: Library } = await import('@huggingface/tokenizers')
  const start = () => {
    const reader = startReader(Library, json, config, added)
    return { reader, leading: config.add_bos_token === undefined ? leadingIds(reader.engine) : null }
  }
  const { reader, leading } = bounded(path, 'a tokenizer of a known kind', limit(bytes.length), start)
  const { engine } = reader
  let vocabularySize = 0
  for (const id of engine.get_vocab().values()) vocabularySize = Math.max(vocabularySize, id + 1)
  const idOf = (name: string): number[] => {
    const token = named[name]
    if (token === undefined) return []
    const id = engine.token_to_id(token)
    if (id === undefined) throw new InputError(`${folder}, ${name}`, show(token), 'a token of its vocabulary')
    return [id]
  }
  const ends = [generation.eos_token_id ?? []].flat()
  for (const id of ends) {
    if (!(Number.isSafeInteger(id) && (id as number) >= 0 && (id as number) < vocabularySize)) {
      throw new InputError(`${folder}/generation_config.json, eos_token_id`, show(id), `ids below ${vocabularySize}`)
    }
  }
  const special = added.filter((token) => token.special)
  const specialIds = new Set(special.map(({ id }) => id))
  return {
    id: sha256().update(bytes).hex(),
    files,
    vocabularySize,
    beginIds: leading ?? (config.add_bos_token ? idOf('bos_token') : []),
    endIds: [...new Set([...idOf('eos_token'), ...(ends as number[])])],
    specialTokens: special.map(({ content }) => content),
    chatTemplate: await readTemplate(folder, files, config, named, templateArguments),
    encode(text, { special: asSpecial = false, continues = false } = {}) {
      checkUnicode(text)
      return bounded(`text ${show(text)}`, `a text that ${path} can encode`, limitOfText(text.length), () =>
        encodeText(reader, text, asSpecial, continues),
      )
    },
    decode(ids, { skipSpecial = false } = {}) {
      return bounded(`${ids.length} ids`, `ids that ${path} can decode`, limitOfText(ids.length), () => {
        // The library would invent an unknown token for such an id.
        let text = ''
        let run: number[] = []
        for (let i = 0; i <= ids.length; i++) {
          const id = ids[i]
          if (skipSpecial && id !== undefined && specialIds.has(id)) continue
          if (id !== undefined && engine.id_to_token(id) !== undefined) run.push(id)
          else {
            if (run.length > 0) text += engine.decode(run, { clean_up_tokenization_spaces: false })
            if (id !== undefined) text += REPLACEMENT
            run = []
          }
        }
        return text
      })
    },
  }
}

/** Checks ids, since the library ignores those beyond its list, and merges JSON numbers above 2⁵³. */
function checkIds(path: string, { model }: Json, added: readonly AddedToken[]): void {
  const { vocab } = (model ?? {}) as Json
  const ids = typeof vocab === 'object' && vocab !== null && !Array.isArray(vocab) ? Object.entries(vocab) : []
  const addedIds = Array.isArray(added) ? added.map((token) => [token?.content, token?.id] as const) : []
  for (const [token, id] of [...ids, ...addedIds]) {
    if (Number.isInteger(id) && (id as number) >= 0 && (id as number) < MAX_IDS) continue
    throw new InputError(`${path}, id of token ${show(token)}`, show(id), `a whole number from 0 to ${MAX_IDS - 1}`)
  }
}

/** Runs the library within a limit of milliseconds, or without. @throws InputError if it throws or exceeds it. */
function bounded<T>(subject: string, expected: string, limitMs: number | null, call: () => T): T {
  try {
    return limitMs === null ? call() : withinTime(limitMs, call)
  } catch (cause) {
    if (cause instanceof InputError) throw cause
    const { message } = cause as Error
    if (!(cause instanceof TimeLimitError)) throw new InputError(subject, `an error (${message})`, expected, { cause })
    throw new InputError(subject, message, `${expected}; timeoutMs of loadTokenizer allows more`, { cause })
  }
}

/** The tokenizer of the file, with the reference's steps. */
function startReader(Library: typeof Engine, json: Json, config: Json, added: readonly AddedToken[]): Reader {
  const start = (changes: Json): Engine => {
    const changed = {
      ...json,
      ...changes,
      pre_tokenizer: foldedAsReference(changes.pre_tokenizer ?? json.pre_tokenizer),
    }
    const engine = new Library(changed, config)
    for (const part of ['normalizer', 'pre_tokenizer', 'decoder'] as const) {
      stepAsReference(engine[part], (changed as Json)[part])
      limitLength(engine[part])
    }
    return engine
  }
  const engine = start({})
  // The vocabulary, with its merges, is by far the largest part: it is built once.
  const continued = start({
    model: NO_MODEL,
    normalizer: withoutPrefix(json.normalizer),
    pre_tokenizer: withoutPrefix(json.pre_tokenizer),
  })
  const Splitter = engine.splitter_normalized.constructor as new (
    words: readonly string[],
  ) => {
    split(text: string): string[]
  }
  const seek = (isNormalized: boolean): Sought => {
    const sought = added.filter(({ special = false, normalized = !special }) => normalized === isNormalized)
    const contentOf = ({ content }: AddedToken) =>
      isNormalized && engine.normalizer ? engine.normalizer.normalize(content) : content
    const tokens = new Map(sought.map((token) => [contentOf(token), token]))
    const splitter = new Splitter([...tokens.keys()])
    return { tokens, split: (text) => splitter.split(text) }
  }
  return { engine, continued, raw: seek(false), normalized: seek(true) }
}

/** Adds a length check after each step of the sequences in a part of a tokenizer. */
function limitLength(part: unknown): void {
  const sequence = part as Record<string, unknown[] | undefined> | null
  for (const name of ['normalizers', 'tokenizers', 'decoders']) {
    const steps = sequence?.[name]
    if (steps === undefined) continue
    steps.forEach(limitLength)
    sequence![name] = steps.flatMap((step) => [step, lengthCheck])
  }
}

/** A step of any kind that returns its input. */
const lengthCheck = {
  normalize: (text: string) => checkLength([text])[0],
  pre_tokenize: checkLength,
  decode_chain: checkLength,
}

function checkLength(texts: readonly string[]): readonly string[] {
  const length = texts.reduce((sum, text) => sum + text.length, 0)
  if (length > MAX_CHARACTERS)
    throw new Error(`a step made ${length} characters, and at most ${MAX_CHARACTERS} are allowed`)
  return texts
}

/** A normalizer or pre-tokenizer that adds no prefix. */
function withoutPrefix(part: unknown): unknown {
  if (Array.isArray(part)) return part.map(withoutPrefix).filter((entry) => entry !== null)
  if (typeof part !== 'object' || part === null) return part
  const { type } = part as Json
  if (type === 'Prepend') return null
  if (type === 'Metaspace') return { ...part, prepend_scheme: 'never', add_prefix_space: false }
  if (type === 'ByteLevel') return { ...part, add_prefix_space: false }
  if (type !== 'Sequence') return part
  return Object.fromEntries(Object.entries(part).map(([key, value]) => [key, withoutPrefix(value)]))
}

/** The ids of a text. The part before the first added token may continue another text. */
function encodeText(
  { engine, continued, raw, normalized }: Reader,
  text: string,
  special: boolean,
  continues: boolean,
) {
  const ids: number[] = []
  let steps: Steps = continues ? continued : engine
  let isFirst = true
  for (const section of splitAdded(text, raw.split, raw.tokens, special)) {
    const { normalizer } = steps
    const parts =
      typeof section === 'string'
        ? splitAdded(normalizer?.normalize(section) ?? section, normalized.split, normalized.tokens, special)
        : [section]
    for (const part of parts) {
      if (typeof part === 'string') {
        const words = steps.pre_tokenizer?.pre_tokenize(part, { section_index: isFirst ? 0 : 1 }) ?? [part]
        pushIds(ids, engine, words, text)
      } else {
        ids.push(part.id)
        steps = engine
      }
      isFirst = false
    }
  }
  return ids
}

function pushIds(ids: number[], { model }: Engine, words: string[], text: string): void {
  for (const token of model(words) as string[]) {
    const id = model.tokens_to_ids.get(token) ?? model.unk_token_id
    if (id === undefined) {
      throw new InputError(`text ${show(text)}`, show(token), 'only text that the tokenizer has tokens for')
    }
    ids.push(id)
  }
}

/** The ids that the post-processor puts before a text. */
function leadingIds(engine: Engine): number[] {
  const text: number[] = engine.encode('x', { add_special_tokens: false }).ids
  const { ids } = engine.encode('x')
  const at = ids.findIndex((_: number, start: number) => text.every((id, i) => ids[start + i] === id))
  return ids.slice(0, Math.max(at, 0))
}

/** Tokens by their names in files and templates. */
function namedTokens(config: Json): Record<string, string> {
  const named: Record<string, string> = {}
  for (const name of NAMED_TOKENS) {
    const value = config[name]
    const content = typeof value === 'object' && value !== null ? (value as Json).content : value
    if (typeof content === 'string') named[name] = content
  }
  return named
}

/** Reads `chat_template.jinja`, or else `chat_template` of the configuration: one text, or several by name. */
async function readTemplate(
  folder: string,
  files: ReadonlyMap<string, Uint8Array>,
  config: Json,
  named: Json,
  given: TemplateArguments,
): Promise<ChatTemplate | null> {
  const own = files.get('chat_template.jinja')
  if (own !== undefined) {
    return jinjaTemplate(`${folder}/chat_template.jinja`, { default: new TextDecoder().decode(own) }, named, given)
  }
  const name = `${folder}/tokenizer_config.json, chat_template`
  const { chat_template: template } = config
  if (template === undefined || template === null) {
    checkArguments(`${folder} without a chat template`, given, [])
    return null
  }
  if (typeof template === 'string') return jinjaTemplate(name, { default: template }, named, given)
  const sources = Array.isArray(template)
    ? Object.fromEntries(template.map((entry: Json | null) => [entry?.name, entry?.template]))
    : template
  if (typeof sources !== 'object' || Object.values(sources).some((source) => typeof source !== 'string')) {
    throw new InputError(name, show(template), 'a text, or texts by name')
  }
  return jinjaTemplate(name, sources as Record<string, string>, named, given)
}
