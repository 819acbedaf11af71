/**
 * The contract of stores: blobs by their SHA-256, for data that is too large for a bus. A blob never changes, so its hash is a reference
 * that any machine can check. Every store passes `tests/fleet/store.test.ts`.
 */
import { createHash } from 'node:crypto'
import { InputError, show } from '../../base/errors.ts'

/** A range of a blob's bytes: `from` ≤ i < `to`. */
export interface BlobRange {
  readonly from: number
  readonly to: number
}

/** Bytes of a part in which a blob is read over the network. */
const PART_BYTES = 2 ** 23

/** Reads a blob in parts, so that a broken connection loses at most one. A part is shorter than asked at the blob's end. */
export async function readParts(
  range: BlobRange | undefined,
  part: (from: number, length: number) => Promise<Uint8Array>,
): Promise<Uint8Array> {
  const parts: Uint8Array[] = []
  const end = range?.to ?? Number.POSITIVE_INFINITY
  for (let from = range?.from ?? 0; from < end; from += PART_BYTES) {
    const asked = Math.min(PART_BYTES, end - from)
    const read = await part(from, asked)
    parts.push(read)
    if (read.length < asked) break
  }
  return parts.length === 1 ? parts[0]! : Buffer.concat(parts)
}

/** Blobs that are put once and read by hash. */
export interface Store {
  /** Keeps bytes, and returns their hash: 64 hexadecimal digits. The same bytes are kept once. */
  put(bytes: Uint8Array): Promise<string>
  /**
   * Reads a blob and compares it with its hash. A range is cut at the blob's end and not compared.
   * @throws BlobError if the blob is missing or damaged.
   */
  get(hash: string, range?: BlobRange): Promise<Uint8Array>
  close(): Promise<void>
}

/** A store whose owner also removes blobs. */
export interface OwnStore extends Store {
  /** Removes a blob, if it is there. */
  drop(hash: string): Promise<void>
  /** The hashes of all blobs, in order. */
  list(): Promise<string[]>
}

/** The error for a blob that a store lacks or has with other bytes. */
export class BlobError extends InputError {
  readonly isMissing: boolean

  constructor(hash: string, isMissing: boolean) {
    super(`blob ${hash}`, isMissing ? 'none in the store' : 'other bytes in the store', 'the bytes that were put')
    this.isMissing = isMissing
  }
}

/** The SHA-256 of bytes, as the name of a blob. */
export function hashOfBlob(bytes: Uint8Array): string {
  return createHash('sha256').update(bytes).digest('hex')
}

/** @throws InputError for a text that is not a hash, since it could be a path. */
export function checkHash(hash: string): void {
  if (typeof hash === 'string' && /^[\da-f]{64}$/.test(hash)) return
  throw new InputError('blob', show(hash), '64 hexadecimal digits')
}

/** @throws InputError for an invalid range. */
export function checkRange({ from, to }: BlobRange): void {
  if (Number.isSafeInteger(from) && Number.isSafeInteger(to) && from >= 0 && to >= from) return
  throw new InputError('range', `${show(from)} to ${show(to)}`, 'whole numbers, 0 ≤ from ≤ to')
}

/** @throws BlobError if the bytes of a whole blob have another hash. */
export function checkBlob(hash: string, bytes: Uint8Array): void {
  if (hashOfBlob(bytes) !== hash) throw new BlobError(hash, false)
}
