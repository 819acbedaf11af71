/** The bytes of each token, read from a tokenizer's tokenizer.json. */
import { InputError, show } from '../../base/errors.ts'
import { parseJsonObject } from '../../base/files/files.ts'
import { BYTE_CHARACTERS } from '../tokenizers/byte-tokenizer.ts'
import type { Tokenizer } from '../tokenizers/tokenizer.ts'

type Json = Readonly<Record<string, unknown>>
interface AddedToken {
  readonly id: number
  readonly content: string
  readonly special?: boolean
}

/** The decoders whose tokens have known bytes. */
const DECODERS = ['ByteLevel', 'ByteFallback', 'Metaspace', 'Replace', 'Fuse', 'Strip']
const BYTE_OF = new Map(BYTE_CHARACTERS.map((character, byte) => [character, byte]))
/** How many tokens are compared with what the tokenizer decodes. */
const COMPARED = 256
const NONE = new Uint8Array(0)

/**
 * The bytes of each id; none for special tokens and unused ids.
 * @throws InputError for other kinds of decoders, and if the tokenizer decodes to other bytes.
 */
export function tokenBytes(tokenizer: Tokenizer): Uint8Array[] {
  const subject = `tokenizer ${tokenizer.id}`
  const file = parseJsonObject(subject, tokenizer.files.get('tokenizer.json') ?? NONE)
  const { vocab = {}, type } = (file.model ?? {}) as Json
  const decoders = decodersOf(file.decoder)
  const unknown = type === 'WordPiece' ? type : decoders.find((each) => !DECODERS.includes(each))
  if (unknown !== undefined) {
    throw new InputError(`${subject}, decoder`, show(unknown), `${DECODERS.join(', ')}, for constrained answers`)
  }
  const read = readerOf(decoders)
  const bytes = new Array<Uint8Array>(tokenizer.vocabularySize).fill(NONE)
  const pieces = Array.isArray(vocab)
    ? vocab.map(([piece]: [string], id) => [piece, id] as const)
    : Object.entries(vocab as Record<string, number>)
  for (const [piece, id] of pieces) bytes[id] = read(piece)
  for (const { id, content, special } of (file.added_tokens ?? []) as readonly AddedToken[]) {
    bytes[id] = special === true ? NONE : encoded(content)
  }
  for (const id of tokenizer.endIds) bytes[id] = NONE
  compare(subject, tokenizer, bytes)
  return bytes
}

/** The types of a decoder's steps. */
function decodersOf(decoder: unknown): string[] {
  const { type, decoders } = (decoder ?? {}) as Json
  if (type === undefined) return []
  return type === 'Sequence' ? (decoders as unknown[]).flatMap(decodersOf) : [String(type)]
}

/** A function that gives the bytes of a piece of the vocabulary. */
function readerOf(decoders: readonly string[]): (piece: string) => Uint8Array {
  if (decoders.includes('ByteLevel')) {
    return (piece) => {
      const bytes = Array.from(piece, (character) => BYTE_OF.get(character))
      return bytes.includes(undefined) ? encoded(piece) : Uint8Array.from(bytes as number[])
    }
  }
  const fallsBack = decoders.includes('ByteFallback')
  const isPieces = fallsBack || decoders.includes('Metaspace')
  return (piece) => {
    const byte = fallsBack ? /^<0x([0-9A-F]{2})>$/.exec(piece)?.[1] : undefined
    if (byte !== undefined) return Uint8Array.of(Number.parseInt(byte, 16))
    return encoded(isPieces ? piece.replaceAll('▁', ' ') : piece)
  }
}

function encoded(text: string): Uint8Array {
  return new TextEncoder().encode(text)
}

/** Throws if the tokenizer decodes some of the tokens to other bytes. */
function compare(subject: string, tokenizer: Tokenizer, bytes: readonly Uint8Array[]): void {
  const step = Math.max(1, Math.floor(bytes.length / COMPARED))
  const first = bytes.findIndex(({ length, 0: byte }) => length === 1 && byte! >= 0x61 && byte! <= 0x7a)
  if (first < 0) return
  const before = tokenizer.decode([first])
  const decoder = new TextDecoder('utf-8', { ignoreBOM: true })
  for (let id = 0; id < bytes.length; id += step) {
    const own = decoder.decode(bytes[id]!)
    if (own === '' || own.includes('\u{fffd}')) continue
    const decoded = tokenizer.decode([first, id])
    if (decoded === before + own) continue
    const got = show(decoded.slice(before.length))
    throw new InputError(`${subject}, token ${id}`, got, `${show(own)}, as its file has it`)
  }
}
