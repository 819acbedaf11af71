/** The contract of tokenizers: texts to ids and back. */
import type { ChatTemplate } from './chat-template.ts'

/** Turns texts into ids and back. */
export interface Tokenizer {
  /** `bytes` or `characters`, or the SHA-256 of tokenizer.json: stands in tables. */
  readonly id: string
  /** Ids are 0 … vocabularySize − 1. */
  readonly vocabularySize: number
  /** What ends a turn of the model, the one that is taught first. */
  readonly endIds: readonly number[]
  readonly chatTemplate: ChatTemplate | null
  /** Ids of a text; special tokens in it are taken as such only with `special`. @throws InputError for what it cannot say. */
  encode(text: string, options?: { readonly special?: boolean }): number[]
  /** The text of ids; what is no valid UTF-8 becomes U+FFFD, and special tokens say nothing. */
  decode(ids: ArrayLike<number>): string
}
