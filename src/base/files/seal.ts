/**
 * A file's checksum inside the file: the SHA-256 of all its bytes, with zeros in place of the checksum. It is stored
 * twice in one metadata entry, so that a damaged entry does not make the file look unsealed. It detects damage, not
 * forgery.
 *
 * Arrow and safetensors files have it as `colonnade.sha256`; reading verifies and removes it.
 */
import { createHash } from 'node:crypto'
import { InputError } from '../errors.ts'

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
  const hash = createHash('sha256')
  for await (const chunk of chunks) hash.update(chunk)
  return hash.digest('hex')
}

/** Verifies a file's seal in its first `within` bytes; false without one. @throws InputError if it differs. */
export function checkSeal(subject: string, file: Uint8Array, within = file.byteLength): boolean {
  const bytes = Buffer.from(file.buffer, file.byteOffset, file.byteLength)
  const stated = findSeal(bytes.subarray(0, within))
  if (stated === undefined) return false
  const hash = createHash('sha256')
  let from = 0
  for (let at = bytes.indexOf(MARK + stated); at >= 0; at = bytes.indexOf(MARK + stated, from)) {
    hash.update(bytes.subarray(from, at + MARK.length)).update(BLANK)
    from = at + MARK.length + DIGITS
  }
  const checksum = hash.update(bytes.subarray(from)).digest('hex')
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

function findSeal(bytes: Buffer): string | undefined {
  for (let at = bytes.indexOf(MARK); at >= 0; at = bytes.indexOf(MARK, at + 1)) {
    const digits = bytes.toString('latin1', at + MARK.length, at + MARK.length + DIGITS)
    if (/^[0-9a-f]{64}$/.test(digits)) return digits
  }
  return undefined
}
