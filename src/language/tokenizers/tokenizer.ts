/**
 * Between text and the numbers that a model reads and writes. Text becomes ids once, where it enters a conversation; from
 * then on the ids are what is stored and trained on, since decoding ids and encoding the text again may give others.
 */
import { checkGiven, InputError, show } from '../../base/errors.ts'
import { writeWhole } from '../../base/files/files.ts'
import type { ChatTemplate } from '../templates/chat-template.ts'

/** How a text is to be taken; both are false where they are not given. */
export interface EncodeOptions {
  readonly special?: boolean
  readonly continues?: boolean
}

/** How ids are to be written; false where it is not given. */
export interface DecodeOptions {
  readonly skipSpecial?: boolean
}

/** A tokenizer. */
export interface Tokenizer {
  /** `bytes`, `alphabet:` with the characters, or the SHA-256 of tokenizer.json: stands in tables. */
  readonly id: string
  /** Ids are 0 … vocabularySize − 1. */
  readonly vocabularySize: number
  /** What a text that is no conversation begins with; none for most. Chat templates write their own. */
  readonly beginIds: readonly number[]
  /** Each of these ends a turn of the model: those of `eos_token` and what generation_config.json adds. */
  readonly endIds: readonly number[]
  /** Special tokens, spelled out: what stands for a boundary and not for itself. */
  readonly specialTokens: readonly string[]
  /** Null where the model knows no conversations. */
  readonly chatTemplate: ChatTemplate | null
  /**
   * The ids of a text and nothing else: nothing is put before or after it. Special tokens that are spelled out in it are
   * taken as such only with `special: true`; without it they are text as any other. A text that `continues` another gets
   * no space before its first word from a tokenizer that puts one before a text.
   * @throws InputError for a text that the tokenizer has no ids for, and for one that is no Unicode (a half surrogate pair).
   */
  encode(text: string, options?: EncodeOptions): number[]
  /**
   * The text of ids, special tokens spelled out, or left out with `skipSpecial`; what is no valid UTF-8, and ids that mean
   * nothing, become U+FFFD.
   */
  decode(ids: ArrayLike<number>, options?: DecodeOptions): string
  /**
   * Its files as Hugging Face's libraries read them, by name: from a folder that has them `loadTokenizer` makes a tokenizer
   * of the same ids.
   */
  readonly files: ReadonlyMap<string, Uint8Array>
}

/**
 * Writes a tokenizer's files beside a model's.
 * @throws InputError where one cannot be written.
 */
export async function saveTokenizer(folder: string, tokenizer: Tokenizer): Promise<void> {
  checkGiven('folder of saveTokenizer', folder, 'a text')
  checkGiven('tokenizer of saveTokenizer', tokenizer, ['files'])
  for (const [name, bytes] of tokenizer.files) await writeWhole(`${folder}/${name}`, [bytes])
}

/** Throws for half a surrogate pair, which UTF-8 has no bytes for. */
export function checkUnicode(text: string): void {
  const at = text.search(/\p{Surrogate}/u)
  if (at < 0) return
  const code = text.charCodeAt(at).toString(16).toUpperCase()
  throw new InputError(`text ${show(text)}`, `half a surrogate pair, U+${code}, at character ${at}`, 'valid Unicode')
}

/** What is decoded in the place of an id that means nothing. */
export const REPLACEMENT = '\u{fffd}'

/** Finds any of these texts, the longest first; nothing, if there are none. */
export function anyOf(texts: readonly string[], flags = ''): RegExp {
  const sorted = [...texts].sort((a, b) => b.length - a.length)
  return new RegExp(sorted.length === 0 ? '[]' : sorted.map(escaped).join('|'), flags)
}

function escaped(text: string): string {
  return text.replace(/[\\^$.*+?()[\]{}|/-]/g, '\\$&')
}
