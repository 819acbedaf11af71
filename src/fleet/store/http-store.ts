/**
 * A store over HTTP: a process serves the blobs of its own store to clients with the key. Blobs are read in ranges (`Range: bytes=0-99`),
 * so neither side holds more than one range in transit, and a broken connection loses at most one range.
 */

import { isOk, requestHttp } from '../../base/http/http-request.ts'
import { AnswerError, JsonClient, mayPassLater } from '../../base/http/json-client.ts'
import { checkedSecret, keyCheck } from '../../base/http/keys.ts'
import { RequestError } from '../../base/http/request-error.ts'
import { HttpDocument, type Listening, type ListenOptions, listen, type Route } from '../../base/http/server.ts'
import { BlobError, type BlobRange, checkHash, checkRange, hashOfBlob, readParts, type Store } from './store.ts'

const TYPE = 'application/octet-stream'
/** Bytes of the longest blob that is put. */
const BLOB_BYTES = 2 ** 30
/** Maximum bytes of an error's text. */
const ERROR_BYTES = 2 ** 16
/** Seconds for one request, and how often a failed one is repeated: for minutes in all, since the server may be restarting. */
const [DEADLINE, RETRIES] = [600, 30]

export interface ServedStore {
  /** The clients' key, at least 16 characters. */
  readonly key: string
  readonly listening: Pick<ListenOptions, 'host' | 'port' | 'tls'>
}

/** Serves a store to clients with the key. @throws InputError if it cannot listen, or for a short key. */
export function serveStore(store: Store, { key, listening }: ServedStore): Promise<Listening> {
  const admit = keyCheck([checkedSecret('key of the store', key)], 'expected the key of the store')
  const put: Route = async ({ body }) => ({
    hash: await store.put((body.bytes as Uint8Array | undefined) ?? new Uint8Array(0)),
  })
  const get: Route = async ({ params, headers }) => {
    const range = rangeOf(headers.range)
    const bytes = await store.get(params.hash!, range).catch((cause) => {
      if (cause instanceof BlobError && cause.isMissing) throw new RequestError(404, cause.message)
      throw cause
    })
    if (range !== undefined && bytes.length === 0) throw new RequestError(416, 'the range begins after the blob')
    if (range === undefined) return new HttpDocument(TYPE, bytes)
    const told = { 'content-range': `bytes ${range.from}-${range.from + bytes.length - 1}/*` }
    return new HttpDocument(TYPE, bytes, told, 206)
  }
  const reads = { [TYPE]: (bytes: Uint8Array) => ({ bytes }) }
  const routes = new Map<string, Route>([
    ['POST /blobs', Object.assign(put, { admit, reads })],
    ['GET /blobs/:hash', Object.assign(get, { admit })],
  ])
  const limits = { requestMs: 1000 * DEADLINE }
  return listen(routes, { ...listening, maxBodyBytes: BLOB_BYTES, isBackground: true, limits })
}

function rangeOf(header: string | undefined): BlobRange | undefined {
  if (header === undefined) return undefined
  const [, from, to] = /^bytes=(\d{1,15})-(\d{1,15})$/.exec(header) ?? []
  if (from === undefined || to === undefined || Number(to) < Number(from)) {
    throw new RequestError(416, 'the range is not of the form bytes=0-99')
  }
  return { from: Number(from), to: Number(to) + 1 }
}

/** The client's side. */
export class HttpStore implements Store {
  readonly #client: JsonClient
  readonly #key: string
  readonly #closed = new AbortController()
  readonly #leaving = new AbortController()

  /** `retries`: how often a request is repeated while the server cannot be reached. */
  constructor(url: string, key: string, retries = RETRIES) {
    this.#client = new JsonClient(url, {
      ...{ deadline: DEADLINE, retries, apiKey: key },
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
    return readParts(hash, range, (from, length) => {
      return this.#client.retry(() => this.#part(hash, from, length), this.#closed.signal)
    })
  }

  /** `bytes` bytes from `from` on; fewer at the blob's end. */
  async #part(hash: string, from: number, bytes: number): Promise<Uint8Array> {
    const where = `${this.#client.url}/blobs/${hash}`
    const signal = AbortSignal.any([this.#closed.signal, AbortSignal.timeout(1000 * DEADLINE)])
    const headers = { authorization: `Bearer ${this.#key}`, range: `bytes=${from}-${from + bytes - 1}` }
    const answer = await requestHttp(where, {
      method: 'GET',
      headers,
      signal,
      maxBytes: Math.max(bytes, ERROR_BYTES),
    }).catch((cause) => {
      throw new AnswerError(`${where}: ${(cause as Error).message}`, 0, !signal.aborted)
    })
    if (isOk(answer)) return answer.body
    if (answer.status === 404) throw new BlobError(hash, true)
    if (answer.status === 416) return new Uint8Array(0)
    throw new AnswerError(`${where}: status ${answer.status}`, answer.status, mayPassLater(answer.status))
  }

  leave(): void {
    this.#leaving.abort()
  }

  async close(): Promise<void> {
    this.#closed.abort(new Error('the store was closed'))
  }
}
