/**
 * A file's checksum inside the file: the SHA-256 of all its bytes, with zeros in place of the checksum. It is stored
 * twice in one metadata entry, so that a damaged entry does not make the file look unsealed. It detects damage, not
 * forgery.
 *
 * Arrow and safetensors files have it as `colonnade.sha256`; reading verifies and removes it.
 */
import { InputError } from '../errors.ts'
import { sha256 } from './digest.ts'

export const SEAL_KEY = 'colonnade.sha256'
const MARK = 'colonnade-sha256:'
const DIGITS = 64
const BLANK = '0'.repeat(DIGITS)
const WHOLE = 'the bytes that were written: the file is damaged'

/** The entry's text; without a checksum, that of a file to be sealed. */
export function sealText(checksum = BLANK): string {
  return `${MARK}${checksum} ${MARK}${checksum}`
}

/** The checksum of a file's chunks, in which the seal is blank. */
export async function sealOf(chunks: Iterable<Uint8Array> | AsyncIterable<Uint8Array>): Promise<string> {
  const digest = sha256()
  for await (const chunk of chunks) digest.update(chunk)
  return digest.hex()
}

/** Verifies the seal in a file's head, over the head and the `rest`; false without one. @throws InputError if it differs. */
export function checkSeal(subject: string, head: Uint8Array, rest: Iterable<Uint8Array> = []): boolean {
  const stated = findSeal(head)
  if (stated === undefined) return false
  const digest = sha256()
  const seal = new TextEncoder().encode(MARK + stated)
  let from = 0
  for (let at = indexOf(head, seal, 0); at >= 0; at = indexOf(head, seal, from)) {
    digest.update(head.subarray(from, at + MARK.length)).update(BLANK)
    from = at + MARK.length + DIGITS
  }
  digest.update(head.subarray(from))
  for (const piece of rest) digest.update(piece)
  const checksum = digest.hex()
  if (checksum === stated) return true
  throw new InputError(subject, `SHA-256 ${checksum}, but it states ${stated}`, WHOLE)
}

/** Whether metadata contain a trace of a damaged seal, in any key or value. */
export function hasTrace(metadata: Iterable<readonly [string, string]>): boolean {
  const isTrace = (text: string) => text.includes(SEAL_KEY) || text.includes(MARK)
  for (const [key, value] of metadata) if (isTrace(key) || isTrace(value)) return true
  return false
}

/** The error for a file with an unreadable seal. */
export function brokenSeal(subject: string): InputError {
  return new InputError(subject, 'an unreadable checksum of the file', WHOLE)
}

function findSeal(bytes: Uint8Array): string | undefined {
  const mark = new TextEncoder().encode(MARK)
  for (let at = indexOf(bytes, mark, 0); at >= 0; at = indexOf(bytes, mark, at + 1)) {
    const digits = String.fromCharCode(...bytes.subarray(at + MARK.length, at + MARK.length + DIGITS))
    if (/^[0-9a-f]{64}$/.test(digits)) return digits
  }
  return undefined
}

function indexOf(bytes: Uint8Array, piece: Uint8Array, from: number): number {
  const [first] = piece
  for (let at = bytes.indexOf(first!, from); at >= 0; at = bytes.indexOf(first!, at + 1)) {
    if (piece.every((byte, i) => bytes[at + i] === byte)) return at
  }
  return -1
}
