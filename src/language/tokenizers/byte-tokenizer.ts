/** Tokenizers without files, for models made from scratch: one token per byte, or per character of a small alphabet. */
import { checkGiven, InputError, show } from '../../base/errors.ts'
import type { Message } from '../../environments/text.ts'
import type { ChatTemplate, RenderOptions } from '../templates/chat-template.ts'
import { checkUnicode, REPLACEMENT, type Tokenizer } from './tokenizer.ts'

/** Roles of the byte template. Each has a special token of its name. */
const ROLES = ['system', 'user', 'assistant', 'tool'] as const
/** Ids 256 and up. */
const SPECIALS: readonly string[] = ['<|begin|>', '<|end|>', '<|pad|>', ...ROLES.map((role) => `<|${role}|>`)]
const [BEGIN, END] = [256, 257]

/** A tokenizer of single bytes or characters. */
export interface ByteTokenizer extends Tokenizer {
  /** Fills up sequences of unequal length; never trained on. */
  readonly padId: number
}

/**
 * A tokenizer without files. By default: the 256 bytes of UTF-8, then `<|begin|>` (256), `<|end|>` (257), `<|pad|>`
 * (258) and a token per role of its chat template, `<|system|>` to `<|tool|>`. With an alphabet: its characters in
 * order, then `<|end|>` and `<|pad|>`, without a chat template.
 * @throws InputError for an alphabet that is empty or repeats a character.
 * @example
 * byteTokenizer().encode('é') // [195, 169]
 * byteTokenizer({ alphabet: '0123456789+=' }).encode('1+1=') // [1, 10, 1, 11]
 */
export function byteTokenizer(options: { readonly alphabet?: string } = {}): ByteTokenizer {
  checkGiven('options of byteTokenizer', options, [])
  return options.alphabet === undefined ? bytes() : characters(options.alphabet)
}

function bytes(): ByteTokenizer {
  const encoder = new TextEncoder()
  const decoder = new TextDecoder('utf-8', { ignoreBOM: true }) // A byte order mark is a character like any other.
  const special = new Map(SPECIALS.map((token, index) => [token, 256 + index]))
  return {
    id: 'bytes',
    files: filesOfBytes(),
    vocabularySize: 256 + SPECIALS.length,
    beginIds: [BEGIN],
    endIds: [END],
    padId: special.get('<|pad|>')!,
    specialTokens: SPECIALS,
    chatTemplate: byteTemplate,
    encode(text, options = {}) {
      checkUnicode(text)
      if (!options.special) return Array.from(encoder.encode(text))
      const pieces = text.split(/(<\|(?:begin|end|pad|system|user|assistant|tool)\|>)/)
      return pieces.flatMap((piece) => special.get(piece) ?? Array.from(encoder.encode(piece)))
    },
    decode(ids, { skipSpecial = false } = {}) {
      let text = ''
      let run: number[] = []
      const flush = () => {
        text += decoder.decode(Uint8Array.from(run))
        run = []
      }
      for (let i = 0; i < ids.length; i++) {
        const id = ids[i]!
        const token = SPECIALS[id - 256]
        if (id >= 0 && id < 256) run.push(id)
        else if (token === undefined || !skipSpecial) {
          flush()
          text += token ?? REPLACEMENT
        }
      }
      flush()
      return text
    },
  }
}

function characters(alphabet: string): ByteTokenizer {
  const list = Array.from(alphabet)
  if (list.length === 0) throw new InputError('alphabet', show(alphabet), 'at least one character')
  const ids = new Map<string, number>()
  for (const [index, character] of list.entries()) {
    if (ids.has(character)) throw new InputError('alphabet', `${show(character)} twice`, 'each character once')
    ids.set(character, index)
  }
  const end = list.length
  const texts = [...list, '<|end|>', '<|pad|>']
  const encodePlain = (text: string) =>
    Array.from(text, (character) => {
      const id = ids.get(character)
      if (id === undefined) {
        throw new InputError(`text ${show(text)}`, show(character), `only characters of ${show(alphabet)}`)
      }
      return id
    })
  return {
    id: `alphabet:${alphabet}`,
    files: filesOfCharacters(list, texts.slice(end)),
    vocabularySize: texts.length,
    beginIds: [],
    endIds: [end],
    padId: end + 1,
    specialTokens: texts.slice(end),
    chatTemplate: null,
    encode(text, options = {}) {
      if (!options.special) return encodePlain(text)
      const pieces = text.split(/(<\|(?:end|pad)\|>)/)
      return pieces.flatMap((piece, index) => (index % 2 ? texts.indexOf(piece, end) : encodePlain(piece)))
    },
    decode: (sequence, { skipSpecial = false } = {}) => {
      const known = skipSpecial ? texts.map((text, id) => (id < end ? text : '')) : texts
      return Array.from(sequence, (id) => known[id] ?? REPLACEMENT).join('')
    },
  }
}

function specialToken(content: string, id: number): object {
  return { id, content, single_word: false, lstrip: false, rstrip: false, normalized: false, special: true }
}

/** The Hugging Face files of a tokenizer: `parts` split texts into `vocabulary`, and special tokens follow. */
function filesOf(
  vocabulary: readonly string[],
  specials: readonly string[],
  parts: { readonly model: object; readonly pre_tokenizer: object; readonly decoder: object },
  config: object,
): Map<string, Uint8Array> {
  const vocab = Object.fromEntries(vocabulary.map((text, id) => [text, id]))
  const tokenizer = {
    version: '1.0',
    truncation: null,
    padding: null,
    added_tokens: specials.map((content, index) => specialToken(content, vocabulary.length + index)),
    normalizer: null,
    post_processor: null,
    ...parts,
    model: { ...parts.model, vocab },
  }
  const common = { tokenizer_class: 'PreTrainedTokenizerFast', eos_token: '<|end|>', pad_token: '<|pad|>' }
  const json = (value: object) => new TextEncoder().encode(`${JSON.stringify(value, null, 2)}\n`)
  const idOf = (token: string) => vocabulary.length + specials.indexOf(token)
  return new Map([
    ['tokenizer.json', json(tokenizer)],
    ['tokenizer_config.json', json({ ...common, clean_up_tokenization_spaces: false, ...config })],
    ['generation_config.json', json({ eos_token_id: idOf('<|end|>'), pad_token_id: idOf('<|pad|>') })],
  ])
}

/** GPT-2's spelling of bytes: printable ones as themselves, the others as characters from U+0100. */
export const BYTE_CHARACTERS: readonly string[] = byteCharacters()

function byteCharacters(): string[] {
  let next = 0x100
  return Array.from({ length: 256 }, (_, byte) => {
    const prints = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte !== 0xad)
    return String.fromCharCode(prints ? byte : next++)
  })
}

function filesOfBytes(): Map<string, Uint8Array> {
  const byteLevel = { type: 'ByteLevel', add_prefix_space: false, trim_offsets: false, use_regex: false }
  const model = {
    type: 'BPE',
    unk_token: null,
    fuse_unk: false,
    byte_fallback: false,
    ignore_merges: false,
    merges: [],
  }
  const parts = { model, pre_tokenizer: byteLevel, decoder: byteLevel }
  const config = { bos_token: '<|begin|>', add_bos_token: true, chat_template: JINJA }
  return filesOf(BYTE_CHARACTERS, SPECIALS, parts, config)
}

function filesOfCharacters(list: readonly string[], specials: readonly string[]): Map<string, Uint8Array> {
  const each = { type: 'Split', pattern: { Regex: '[\\s\\S]' }, behavior: 'Isolated', invert: false }
  // The unknown token is in no vocabulary, so a character outside the alphabet is an error.
  const model = { type: 'WordLevel', unk_token: '<|unknown|>' }
  return filesOf(list, specials, { model, pre_tokenizer: each, decoder: { type: 'Fuse' } }, { add_bos_token: false })
}

const JINJA =
  "{{ '<|begin|>' }}{% for message in messages %}" +
  `{% if message['role'] not in [${ROLES.map((role) => `'${role}'`).join(', ')}] %}` +
  "{{ raise_exception('a message of role ' + message['role']) }}{% endif %}" +
  "{{ '<|' + message['role'] + '|>' + message['content'] + '<|end|>' }}{% endfor %}" +
  "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"

/** `<|begin|>`, then each message between its role's token and `<|end|>`. */
const byteTemplate: ChatTemplate = {
  ...{ name: 'the byte template', isLocal: true },
  render(messages: readonly Message[], { addGenerationPrompt = false, tools }: RenderOptions = {}) {
    if (tools !== undefined) {
      throw new InputError('the byte template', 'tools, which it cannot render', 'messages alone')
    }
    for (const { role } of messages) {
      if (!(ROLES as readonly string[]).includes(role)) {
        throw new InputError('the byte template', `a message of role ${show(role)}`, `one of ${ROLES.join(', ')}`)
      }
    }
    const said = messages.map(({ role, content }) => `<|${role}|>${content}<|end|>`)
    return `<|begin|>${said.join('')}${addGenerationPrompt ? '<|assistant|>' : ''}`
  },
}
