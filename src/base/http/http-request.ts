/** One HTTP request, limited only by its signal: `fetch` gives up after five minutes of silence. */
import { createReadStream } from 'node:fs'
import { request as askPlain } from 'node:http'
import { request as askEncrypted } from 'node:https'

/** `bytes` bytes of a file from `start` on. */
export interface FilePart {
  readonly path: string
  readonly start: number
  readonly bytes: number
}

export interface HttpRequest {
  readonly method: 'GET' | 'POST' | 'PUT'
  readonly headers: Readonly<Record<string, string>>
  readonly body?: string | Uint8Array | FilePart
  /** Aborts the request, which has no other time limit. */
  readonly signal: AbortSignal
  /** Maximum bytes of the response's body; default unlimited. */
  readonly maxBytes?: number
  /**
   * Takes the body of an accepted response (status 2xx) chunk by chunk, with the status and the length that its head tells (0 without one);
   * the body of the result is then empty. An error ends the request with that error.
   */
  onChunk?(chunk: Buffer, head: { readonly status: number; readonly length: number }): void
}

/** The response's body exceeds the limit. Nothing is kept, and the connection is closed. */
export class LongAnswerError extends Error {
  constructor(maxBytes: number) {
    super(`the server's answer has more than ${maxBytes} bytes`)
  }
}

/** A complete response. Redirects are not followed. */
export interface HttpAnswer {
  readonly status: number
  /** The target of a redirect; otherwise null. */
  readonly location: string | null
  /** Its media type with parameters; empty without one. */
  readonly type: string
  /** The version of what was sent or stored; null without one. */
  readonly etag: string | null
  readonly body: Buffer
}

export function isOk({ status }: Pick<HttpAnswer, 'status'>): boolean {
  return status >= 200 && status < 300
}

/** Longest body for which memory is taken as its head says, before it comes. */
const AHEAD_BYTES = 2 ** 23

/** Chunks of a body. Where the head says its length, they are copied as they come: their memory is free at once. */
class Received {
  readonly #maxBytes: number
  readonly #ahead: Buffer
  readonly #chunks: Buffer[] = []
  #length = 0

  constructor(told: number, maxBytes: number) {
    this.#maxBytes = maxBytes
    this.#ahead = Buffer.allocUnsafeSlow(told > 2 ** 16 && told <= Math.min(AHEAD_BYTES, maxBytes) ? told : 0)
  }

  /** @throws LongAnswerError */
  add(chunk: Buffer): void {
    const at = this.#length
    this.#length += chunk.length
    if (this.#length > this.#maxBytes) throw new LongAnswerError(this.#maxBytes)
    if (this.#length <= this.#ahead.length) chunk.copy(this.#ahead, at)
    else this.#chunks.push(chunk)
  }

  whole(): Buffer {
    return this.#chunks.length === 0 ? this.#ahead.subarray(0, this.#length) : Buffer.concat(this.#chunks)
  }
}

/** @throws LongAnswerError; the connection's Error, or the signal's reason. */
export function requestHttp(
  url: string,
  { method, headers, body, signal, maxBytes = Number.POSITIVE_INFINITY, onChunk }: HttpRequest,
): Promise<HttpAnswer> {
  return new Promise((resolve, reject) => {
    const fail = (error: Error) => reject(signal.aborted ? signal.reason : error)
    const ask = url.startsWith('https:') ? askEncrypted : askPlain
    const isPart = typeof body === 'object' && 'path' in body
    const length = isPart ? { 'content-length': `${body.bytes}` } : {}
    const request = ask(url, { method, headers: { ...headers, ...length }, signal }, (response) => {
      const { statusCode: status = 0, headers: told } = response
      const length = Number(told['content-length'] ?? 0)
      const isGiven = onChunk !== undefined && isOk({ status })
      const body = new Received(isGiven ? 0 : length, maxBytes)
      response.on('data', (chunk: Buffer): void => {
        try {
          if (isGiven) onChunk(chunk, { status, length })
          else body.add(chunk)
        } catch (error) {
          reject(error)
          request.destroy()
        }
      })
      response.on('error', fail)
      response.on('end', () => {
        const type = told['content-type'] ?? ''
        const { location = null, etag = null } = told
        resolve({ status, location, type, etag, body: body.whole() })
      })
    })
    request.on('error', fail)
    if (!isPart || body.bytes === 0) return void request.end(isPart ? undefined : body)
    const { path, start, bytes } = body
    const file = createReadStream(path, { start, end: start + bytes - 1 })
    file.on('error', (error) => void request.destroy(error))
    request.on('close', () => void file.destroy())
    file.pipe(request)
  })
}
