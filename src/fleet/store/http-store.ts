/**
 * A store over HTTP: a process serves the blobs of its own store to clients with the key. Both directions go in pieces between the
 * connection and the file, so the server holds only two of them for each request. Each side hashes what it has while the rest is on its
 * way. A client whose connection broke continues where it was (`Range: bytes=100-`).
 */
import { createHash, type Hash } from 'node:crypto'
import { isOk, requestHttp } from '../../base/http/http-request.ts'
import { AnswerError, JsonClient, mayPassLater } from '../../base/http/json-client.ts'
import { checkedSecret, keyCheck } from '../../base/http/keys.ts'
import { RequestError } from '../../base/http/request-error.ts'
import { HttpDocument, type Listening, type ListenOptions, listen, type Route } from '../../base/http/server.ts'
import type { FolderStore } from './folder-store.ts'
import { BlobError, type BlobRange, checkHash, checkRange, hashOfBlob, type Store } from './store.ts'

const TYPE = 'application/octet-stream'
/** Bytes of the longest blob that is put. */
const BLOB_BYTES = 2 ** 30
/** Maximum bytes of an error's text. */
const ERROR_BYTES = 2 ** 16
/** Seconds for one request, and how often a failed one is repeated: for minutes in all, since the server may be restarting. */
const [DEADLINE, RETRIES] = [600, 30]

/** A store whose blobs are written and read in pieces. */
type PieceStore = Pick<FolderStore, 'putPieces' | 'sizeOf' | 'pieces'>

export interface ServedStore {
  /** The clients' key, at least 16 characters. */
  readonly key: string
  readonly listening: Pick<ListenOptions, 'host' | 'port' | 'tls'>
}

/** Serves a store to clients with the key. @throws InputError if it cannot listen, or for a short key. */
export function serveStore(store: PieceStore, { key, listening }: ServedStore): Promise<Listening> {
  const admit = keyCheck([checkedSecret('key of the store', key)], 'expected the key of the store')
  const put: Route = async ({ pieces }) => ({ hash: await store.putPieces(pieces!) })
  const get: Route = async ({ params, headers }) => {
    const hash = params.hash!
    const size = await store.sizeOf(hash).catch((cause) => {
      if (cause instanceof BlobError && cause.isMissing) throw new RequestError(404, cause.message)
      throw cause
    })
    const asked = rangeOf(headers.range)
    const { from, to } = { from: asked?.from ?? 0, to: Math.min(asked?.to ?? size, size) }
    if (asked !== undefined && from >= size) throw new RequestError(416, 'the range begins after the blob')
    const told = {
      'content-length': `${to - from}`,
      ...(asked !== undefined && { 'content-range': `bytes ${from}-${to - 1}/${size}` }),
    }
    return new HttpDocument(TYPE, store.pieces(hash, { from, to }), told, asked === undefined ? 200 : 206)
  }
  const routes = new Map<string, Route>([
    ['POST /blobs', Object.assign(put, { admit, inPieces: TYPE })],
    ['GET /blobs/:hash', Object.assign(get, { admit })],
  ])
  const limits = { requestMs: 1000 * DEADLINE }
  return listen(routes, { ...listening, maxBodyBytes: BLOB_BYTES, isBackground: true, limits })
}

function rangeOf(header: string | undefined): BlobRange | undefined {
  if (header === undefined) return undefined
  const [, from, to] = /^bytes=(\d{1,15})-(\d{0,15})$/.exec(header) ?? []
  const until = to === '' ? Number.MAX_SAFE_INTEGER : Number(to) + 1
  if (from === undefined || until <= Number(from)) {
    throw new RequestError(416, 'the range is not of the form bytes=0-99 or bytes=100-')
  }
  return { from: Number(from), to: until }
}

/** A blob, or a range of it, that is being received. */
class Received {
  readonly #digest: Hash | null
  #bytes = Buffer.alloc(0)
  /** Bytes that have come. */
  length = 0

  constructor(isWhole: boolean) {
    this.#digest = isWhole ? createHash('sha256') : null
  }

  /** Adds a chunk of an answer of `length` bytes, which begins where the one before it broke off. */
  add(chunk: Buffer, isFirst: boolean, length: number): void {
    if (isFirst && this.length + length !== this.#bytes.length) {
      const bytes = Buffer.allocUnsafeSlow(this.length + length) // All of it is written.
      this.#bytes.copy(bytes, 0, 0, this.length)
      this.#bytes = bytes
    }
    this.length += chunk.copy(this.#bytes, this.length)
    this.#digest?.update(chunk)
  }

  /** @throws BlobError if the whole blob has another hash. */
  end(hash: string): Uint8Array {
    if (this.#digest !== null && this.#digest.digest('hex') !== hash) throw new BlobError(hash, false)
    return this.#bytes.subarray(0, this.length)
  }
}

/** The client's side. */
export class HttpStore implements Store {
  readonly #client: JsonClient
  readonly #key: string
  readonly #deadline: number
  readonly #closed = new AbortController()
  readonly #leaving = new AbortController()

  /** `retries`: how often a request is repeated while the server cannot be reached; `deadline`: seconds for one request. */
  constructor(url: string, key: string, retries = RETRIES, deadline = DEADLINE) {
    this.#deadline = deadline
    this.#client = new JsonClient(url, {
      ...{ deadline, retries, apiKey: key },
      leaving: this.#leaving.signal,
    })
    this.#key = key
  }

  async put(bytes: Uint8Array): Promise<string> {
    const asked = this.#client.ask('/blobs', {}, this.#closed.signal, { type: TYPE, bytes })
    const [{ hash }, own] = await Promise.all([asked, hashOfBlob(bytes)])
    checkHash(hash as string)
    if (hash !== own) throw new BlobError(hash as string, false)
    return own
  }

  async get(hash: string, range?: BlobRange): Promise<Uint8Array> {
    checkHash(hash)
    if (range !== undefined) checkRange(range)
    const received = new Received(range === undefined)
    if (range === undefined || range.to > range.from) {
      await this.#client.retry(() => this.#receive(hash, range, received), this.#closed.signal)
    }
    return received.end(hash)
  }

  /** Receives what is left of a blob or a range of it. */
  async #receive(hash: string, range: BlobRange | undefined, received: Received): Promise<void> {
    const where = `${this.#client.url}/blobs/${hash}`
    const signal = AbortSignal.any([this.#closed.signal, AbortSignal.timeout(1000 * this.#deadline)])
    const before = received.length
    const from = (range?.from ?? 0) + before
    const isAll = range === undefined && from === 0
    const expected = isAll ? 200 : 206 // A server that ignores ranges sends other bytes.
    const checkStatus = (status: number): void => {
      if (status !== expected) throw new AnswerError(`${where}: status ${status}, expected ${expected}`, status, false)
    }
    let isFirst = true
    const answer = await requestHttp(where, {
      method: 'GET',
      headers: {
        authorization: `Bearer ${this.#key}`,
        ...(!isAll && { range: `bytes=${from}-${range === undefined ? '' : range.to - 1}` }),
      },
      signal,
      maxBytes: ERROR_BYTES,
      onChunk: (chunk, { status, length }) => {
        checkStatus(status)
        if (length < 1 || length > BLOB_BYTES) {
          throw new AnswerError(`${where}: content-length ${length}, expected 1 to ${BLOB_BYTES}`, status, false)
        }
        received.add(chunk, isFirst, length)
        isFirst = false
      },
    }).catch((cause) => {
      if (cause instanceof AnswerError) throw cause
      // A slow connection takes several requests for a long blob.
      const mayPass = !signal.aborted || (received.length > before && !this.#closed.signal.aborted)
      throw new AnswerError(`${where}: ${(cause as Error).message}`, 0, mayPass)
    })
    const { status } = answer
    if (isOk(answer)) return checkStatus(status)
    if (status === 416) return // A range may begin after the blob.
    if (status === 404) throw new BlobError(hash, true)
    throw new AnswerError(`${where}: status ${status}`, status, mayPassLater(status))
  }

  leave(): void {
    this.#leaving.abort()
  }

  async close(): Promise<void> {
    this.#closed.abort(new Error('the store was closed'))
  }
}
