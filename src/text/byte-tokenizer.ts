/** Tokenizers without files: one id a byte, or one a character of a small alphabet. */
import { InputError, show } from '../errors.ts'
import type { Tokenizer } from './tokenizer.ts'

/**
 * With an alphabet, its characters are the ids from 0, and the end of a turn comes after them. Without one, ids 0 to 255 are
 * the bytes of UTF-8, and 256 is the end.
 * @throws InputError for an alphabet that is empty or has a character twice; `encode` throws for a character outside it.
 */
export function byteTokenizer({ alphabet }: { readonly alphabet?: string } = {}): Tokenizer {
  return alphabet === undefined ? bytes() : characters(alphabet)
}

function bytes(): Tokenizer {
  const encoder = new TextEncoder()
  const decoder = new TextDecoder()
  return {
    id: 'bytes',
    vocabularySize: 257,
    endIds: [256],
    chatTemplate: null,
    encode: (text) => [...encoder.encode(text)],
    decode: (ids) => decoder.decode(Uint8Array.from(Array.from(ids).filter((id) => id < 256))),
  }
}

function characters(alphabet: string): Tokenizer {
  const letters = [...alphabet]
  const ids = new Map(letters.map((letter, id) => [letter, id]))
  if (letters.length === 0 || ids.size < letters.length) {
    throw new InputError('alphabet', show(alphabet), 'one or more characters, each of them once')
  }
  return {
    id: 'characters',
    vocabularySize: letters.length + 1,
    endIds: [letters.length],
    chatTemplate: null,
    encode: (text) =>
      [...text].map((letter) => {
        const id = ids.get(letter)
        if (id === undefined)
          throw new InputError('text', `${show(letter)} in ${show(text)}`, `characters of ${show(alphabet)}`)
        return id
      }),
    decode: (given) => Array.from(given, (id) => letters[id] ?? '').join(''),
  }
}
