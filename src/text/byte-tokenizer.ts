/** Tokenizers that need no file: one token a byte, or one a character of a small alphabet, for models made from nothing. */
import type { Message } from '../environments/text.ts'
import { InputError, show } from '../errors.ts'
import type { ChatTemplate, RenderOptions } from './chat-template.ts'
import { checkUnicode, REPLACEMENT, type Tokenizer } from './tokenizer.ts'

/** Roles that the template of bytes knows, each with a special token of its name. */
const ROLES = ['system', 'user', 'assistant', 'tool'] as const
/** Ids 256 and up. */
const SPECIALS: readonly string[] = ['<|begin|>', '<|end|>', '<|pad|>', ...ROLES.map((role) => `<|${role}|>`)]
const [BEGIN, END] = [256, 257]

/** A tokenizer of single bytes or characters. */
export interface ByteTokenizer extends Tokenizer {
  /** What fills up sequences of unequal length; never trained on. */
  readonly padId: number
}

/**
 * A tokenizer without a file. Plain: the 256 bytes of UTF-8, then `<|begin|>` (256), `<|end|>` (257), `<|pad|>` (258) and a
 * token for each role of its chat template, `<|system|>` to `<|tool|>`. With an alphabet: its characters in order, then
 * `<|end|>` and `<|pad|>`, and no chat template.
 * @throws InputError for an alphabet that is empty or has a character twice.
 * @example
 * byteTokenizer().encode('é') // [195, 169]
 * byteTokenizer({ alphabet: '0123456789+=' }).encode('1+1=') // [1, 10, 1, 11]
 */
export function byteTokenizer(options: { readonly alphabet?: string } = {}): ByteTokenizer {
  return options.alphabet === undefined ? bytes() : characters(options.alphabet)
}

function bytes(): ByteTokenizer {
  const encoder = new TextEncoder()
  const decoder = new TextDecoder('utf-8', { ignoreBOM: true }) // A byte order mark is a character as any other.
  const special = new Map(SPECIALS.map((token, index) => [token, 256 + index]))
  return {
    id: 'bytes',
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

/** `<|begin|>`, then each message between its role's token and `<|end|>`. */
const byteTemplate: ChatTemplate = {
  name: 'the template of bytes',
  render(messages: readonly Message[], { addGenerationPrompt = false }: RenderOptions = {}) {
    for (const { role } of messages) {
      if (!(ROLES as readonly string[]).includes(role)) {
        throw new InputError('the template of bytes', `a message of role ${show(role)}`, `one of ${ROLES.join(', ')}`)
      }
    }
    const said = messages.map(({ role, content }) => `<|${role}|>${content}<|end|>`)
    return `<|begin|>${said.join('')}${addGenerationPrompt ? '<|assistant|>' : ''}`
  },
}
