/**
 * The checksum that a file carries of itself: the SHA-256 of all its bytes, with zeros for the checksum's own digits. It
 * stands twice in one entry of the file's metadata, so that damage to one of the two does not make the file pass for one
 * that never had any. It tells damage, not forgery: whoever changes a file on purpose can seal it again.
 *
 * What is written here as Arrow or safetensors carries it as `colonnade.sha256`; reading compares it and takes it away.
 */
import { createHash } from 'node:crypto'
import { InputError } from '../errors.ts'

/** The name of the entry in the metadata of Arrow and safetensors files. */
export const SEAL_KEY = 'colonnade.sha256'
const MARK = 'colonnade-sha256:'
const DIGITS = 64
const BLANK = '0'.repeat(DIGITS)
const WHOLE = 'the bytes that were written: the file is damaged'

/** The entry's text; without a checksum that of a file which is to be sealed. */
export function sealText(checksum = BLANK): string {
  return `${MARK}${checksum} ${MARK}${checksum}`
}

/** The checksum of a file's chunks, in which the seal is blank. */
export async function sealOf(chunks: Iterable<Uint8Array> | AsyncIterable<Uint8Array>): Promise<string> {
  const hash = createHash('sha256')
  for await (const chunk of chunks) hash.update(chunk)
  return hash.digest('hex')
}

/**
 * Compares a sealed file with its seal, which stands within the first `within` bytes. False for a file without one.
 * @throws InputError for a file that is not as it was sealed.
 */
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
  throw new InputError(subject, `SHA-256 ${checksum}, where it states ${stated}`, WHOLE)
}

/** True where metadata have something of a seal's entry, in whatever key or value the damage has put it. */
export function hasTrace(metadata: Iterable<readonly [string, string]>): boolean {
  const isTrace = (text: string) => text.includes(SEAL_KEY) || text.includes(MARK)
  for (const [key, value] of metadata) if (isTrace(key) || isTrace(value)) return true
  return false
}

/** The error for a file that has the entry of a seal, and in it none that can be read. */
export function brokenSeal(subject: string): InputError {
  return new InputError(subject, 'a checksum of the file that cannot be read', WHOLE)
}

function findSeal(bytes: Buffer): string | undefined {
  for (let at = bytes.indexOf(MARK); at >= 0; at = bytes.indexOf(MARK, at + 1)) {
    const digits = bytes.toString('latin1', at + MARK.length, at + MARK.length + DIGITS)
    if (/^[0-9a-f]{64}$/.test(digits)) return digits
  }
  return undefined
}
