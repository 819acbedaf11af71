/**
 * The contract of stores: blobs by their SHA-256, for data that is too large for a bus. A blob never changes, so its hash is a reference
 * that any machine can check. Every store passes `tests/fleet/store.test.ts`.
 */
import { createHash } from 'node:crypto'
import { setImmediate as nextTurn } from 'node:timers/promises'
import { InputError, show } from '../../base/errors.ts'

/** A range of a blob's bytes: `from` ≤ i < `to`. */
export interface BlobRange {
  readonly from: number
  readonly to: number
}

/** Bytes of a part in which a blob is read over the network. */
const PART_BYTES = 2 ** 23

/**
 * Reads a blob in parts, so that a broken connection loses at most one. A part is shorter than asked at the blob's end. While a part is
 * compared with the hash, the next one is on its way.
 * @throws BlobError if the whole blob has another hash; a range is not compared.
 */
export async function readParts(
  hash: string,
  range: BlobRange | undefined,
  part: (from: number, length: number) => Promise<Uint8Array>,
): Promise<Uint8Array> {
  const parts: Uint8Array[] = []
  const digest = range === undefined ? createHash('sha256') : null
  const { from, to } = range ?? { from: 0, to: Number.POSITIVE_INFINITY }
  const asked = (at: number) => Math.min(PART_BYTES, to - at)
  let at = from
  for (let reading = at < to ? part(at, asked(at)) : null; reading !== null; ) {
    const read = await reading
    const isLast = read.length < asked(at) || at + read.length >= to
    at += read.length
    reading = isLast ? null : part(at, asked(at))
    reading?.catch(() => {}) // It is awaited below, unless hashing fails before.
    parts.push(read)
    digest?.update(read)
  }
  if (digest !== null && digest.digest('hex') !== hash) throw new BlobError(hash, false)
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
  /** Its user ends soon: requests that fail are no longer repeated for minutes. */
  leave?(): void
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

/** The SHA-256 of bytes, as the name of a blob, at once: while long bytes are hashed, nothing else of the process has a turn. */
export function nameOfBlob(bytes: Uint8Array): string {
  return createHash('sha256').update(bytes).digest('hex')
}

/** Bytes that are hashed between two turns of the event loop. */
const HASH_BYTES = 2 ** 20

/** The SHA-256 of bytes, as the name of a blob. Between parts, other work of the process has a turn, such as writing the bytes. */
export async function hashOfBlob(bytes: Uint8Array): Promise<string> {
  const hash = createHash('sha256')
  for (let from = 0; from < bytes.length; from += HASH_BYTES) {
    await nextTurn() // First, because the caller has begun to send the data.
    hash.update(bytes.subarray(from, from + HASH_BYTES))
  }
  return hash.digest('hex')
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

/**
 * Fills bytes by `read`, which returns how many it has read at a position. Those of a whole blob are compared with its hash: a part is
 * hashed while the next one is read. @throws BlobError if they end early or differ.
 */
export async function readHashed(
  hash: string,
  isWhole: boolean,
  bytes: Uint8Array,
  read: (from: number, length: number) => Promise<number>,
): Promise<void> {
  const digest = createHash('sha256')
  let hashed = 0
  for (let done = 0; done < bytes.length; ) {
    const reading = read(done, Math.min(HASH_BYTES, bytes.length - done))
    if (isWhole) digest.update(bytes.subarray(hashed, done))
    hashed = done
    const count = await reading
    if (count === 0) throw new BlobError(hash, false)
    done += count
  }
  if (isWhole && digest.update(bytes.subarray(hashed)).digest('hex') !== hash) throw new BlobError(hash, false)
}
