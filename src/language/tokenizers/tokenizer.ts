/** Text and token ids. Ids are made once and kept, since decoding and encoding again may give others. */
import { checkGiven, InputError, show } from '../../base/errors.ts'
import { writeWhole } from '../../base/files/files.ts'
import type { ChatTemplate } from '../templates/chat-template.ts'

/** How to encode a text; both default to false. */
export interface EncodeOptions {
  readonly special?: boolean
  readonly continues?: boolean
}

/** How to decode ids; defaults to false. */
export interface DecodeOptions {
  readonly skipSpecial?: boolean
}

/** Converts between text and token ids. */
export interface Tokenizer {
  /** `bytes`, `alphabet:` with the characters, or the SHA-256 of tokenizer.json. Tables record it. */
  readonly id: string
  /** Ids are 0 … vocabularySize − 1. */
  readonly vocabularySize: number
  /** Prefix of a text that is not a conversation; usually empty. Chat templates write their own. */
  readonly beginIds: readonly number[]
  /** Each of these ends the model's turn: the id of `eos_token` and those in generation_config.json. */
  readonly endIds: readonly number[]
  /** Texts of the special tokens, which mark boundaries. */
  readonly specialTokens: readonly string[]
  /** Null if the model has no chat format. */
  readonly chatTemplate: ChatTemplate | null
  /**
   * The ids of a text, with nothing added before or after. Special tokens in the text count as such only with `special:
   * true`; otherwise they are plain text. If a text `continues` another, a tokenizer that puts a space before texts
   * does not put one.
   * @throws InputError for a text that the tokenizer cannot encode, and for invalid Unicode (half a surrogate pair).
   */
  encode(text: string, options?: EncodeOptions): number[]
  /** The text of ids. `skipSpecial` leaves out special tokens. Invalid UTF-8 and unknown ids become U+FFFD. */
  decode(ids: ArrayLike<number>, options?: DecodeOptions): string
  /** Its files in Hugging Face's format, by name; `loadTokenizer` makes a tokenizer with the same ids from them. */
  readonly files: ReadonlyMap<string, Uint8Array>
}

/** Writes a tokenizer's files beside a model's. @throws InputError if one cannot be written. */
export async function saveTokenizer(folder: string, tokenizer: Tokenizer): Promise<void> {
  checkGiven('folder of saveTokenizer', folder, 'a text')
  checkGiven('tokenizer of saveTokenizer', tokenizer, ['files'])
  for (const [name, bytes] of tokenizer.files) await writeWhole(`${folder}/${name}`, [bytes])
}

/** Throws for half a surrogate pair, which UTF-8 cannot encode. */
export function checkUnicode(text: string): void {
  const at = text.search(/\p{Surrogate}/u)
  if (at < 0) return
  const code = text.charCodeAt(at).toString(16).toUpperCase()
  throw new InputError(`text ${show(text)}`, `half a surrogate pair, U+${code}, at character ${at}`, 'valid Unicode')
}

/** Replaces an unknown id in decoded text. */
export const REPLACEMENT = '\u{fffd}'

/** Matches any of these texts, the longest first. Matches nothing if there are none. */
export function anyOf(texts: readonly string[], flags = ''): RegExp {
  const sorted = [...texts].sort((a, b) => b.length - a.length)
  return new RegExp(sorted.length === 0 ? '[]' : sorted.map(escaped).join('|'), flags)
}

/** A text as a regular expression that matches it. */
export function escaped(text: string): string {
  return text.replace(/[\\^$.*+?()[\]{}|/-]/g, '\\$&')
}
