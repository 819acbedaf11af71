/**
 * Between text and the numbers that a model reads and writes. Text becomes ids once, where it enters a conversation; from
 * then on the ids are what is stored and trained on, since decoding ids and encoding the text again may give others.
 */
import type { ChatTemplate } from './chat-template.ts'

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
  /** Null where the model knows no conversations. */
  readonly chatTemplate: ChatTemplate | null
  /**
   * The ids of a text and nothing else: nothing is put before or after it. Special tokens that are spelled out in it are
   * taken as such only with `special: true`; without it they are text as any other.
   * @throws InputError for a text that the tokenizer has no ids for, and for one that is no Unicode (a half surrogate pair).
   */
  encode(text: string, options?: { readonly special?: boolean }): number[]
  /** The text of ids, special tokens spelled out; what is no valid UTF-8, and ids that mean nothing, become U+FFFD. */
  decode(ids: ArrayLike<number>): string
}
