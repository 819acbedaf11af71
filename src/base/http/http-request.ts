/**
 * One request over HTTP, which lasts as long as its signal lets it. Node's `fetch` gives up where headers, or the next bytes of a
 * body, take more than five minutes; a server that decodes a long turn whole sends nothing for longer than that.
 */
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
  /** A part of a file is read while it is sent. */
  readonly body?: string | Uint8Array | FilePart
  /** Ends the request: it has no other time limit. */
  readonly signal: AbortSignal
  /** Bytes of the answer's body, at most; default any number. */
  readonly maxBytes?: number
}

/** An answer whose body has more bytes than it may: nothing of it is kept, and its connection is closed. */
export class LongAnswerError extends Error {
  constructor(maxBytes: number) {
    super(`the server's answer has more than ${maxBytes} bytes`)
  }
}

/** An answer, whole. One that sends the request on is an answer like any other: nothing is followed. */
export interface HttpAnswer {
  readonly status: number
  /** Where the request is sent on to; null where it is not. */
  readonly location: string | null
  /** Its media type, with what stands behind it; empty where it names none. */
  readonly type: string
  /** What names the version of what was sent or stored; null where nothing does. */
  readonly etag: string | null
  readonly body: Buffer
}

/** Whether the answer's status says that it is what was asked for. */
export function isOk({ status }: HttpAnswer): boolean {
  return status >= 200 && status < 300
}

/** @throws LongAnswerError; Error of the connection, or what the signal was aborted with. */
export function requestHttp(
  url: string,
  { method, headers, body, signal, maxBytes = Number.POSITIVE_INFINITY }: HttpRequest,
): Promise<HttpAnswer> {
  return new Promise((resolve, reject) => {
    const fail = (error: Error) => reject(signal.aborted ? signal.reason : error)
    const ask = url.startsWith('https:') ? askEncrypted : askPlain
    const isPart = typeof body === 'object' && 'path' in body
    const length = isPart ? { 'content-length': `${body.bytes}` } : {}
    const request = ask(url, { method, headers: { ...headers, ...length }, signal }, (response) => {
      const chunks: Buffer[] = []
      let length = 0
      response.on('data', (chunk: Buffer): void => {
        length += chunk.length
        if (length <= maxBytes) return void chunks.push(chunk)
        reject(new LongAnswerError(maxBytes))
        request.destroy()
      })
      response.on('error', fail)
      response.on('end', () => {
        const { statusCode: status = 0, headers: told } = response
        const type = told['content-type'] ?? ''
        const { location = null, etag = null } = told
        resolve({ status, location, type, etag, body: Buffer.concat(chunks) })
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
