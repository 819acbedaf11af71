/** Reads request bodies: JSON objects of limited size and depth. A server holds a limited number of bytes at once. */
import type { IncomingMessage, ServerResponse } from 'node:http'
import { setTimeout as sleep } from 'node:timers/promises'
import { show } from '../errors.ts'
import { bodyPieces } from './body-pieces.ts'
import { RequestError } from './request-error.ts'

/** The JSON object of a request's body; empty without a body. */
export type Body = Readonly<Record<string, unknown>>

/** Readers of request bodies by media type. The client gets the message of an error. */
export type BodyTypes = Readonly<Record<string, (bytes: Uint8Array) => Body>>

/** Bytes of each body outside the limit, so that short requests never wait for long ones. */
const FREE_BYTES = 2 ** 16
/** Bytes of all unfinished bodies beyond that; and twice the longest body. */
const ROOM_BYTES = 2 ** 25
/** Milliseconds between checks for room for waiting bodies. */
const LOOK_MS = 20
/** Checks without data before a body is cut off for others. Not timed, since a stalled process checks once. */
const IDLE_LOOKS = 50
/** Maximum nesting of arrays and objects; functions may recurse at each level. */
const MAX_DEPTH = 128

interface Unfinished {
  readonly request: IncomingMessage
  bytes: Buffer
  /** The check at which it last sent something. */
  lastLook: number
  isWaiting: boolean
  isCut: boolean
}

export function hasBody({ headers }: IncomingMessage): boolean {
  return headers['transfer-encoding'] !== undefined || Number(headers['content-length'] ?? 0) > 0
}

export class BodyReader {
  readonly #maxBytes: number
  readonly #roomBytes: number
  #looks = 0
  #look: Promise<void> | null = null
  /** In order of their start. */
  readonly #unfinished = new Set<Unfinished>()

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes
    this.#roomBytes = Math.max(ROOM_BYTES, 2 * maxBytes)
  }

  /**
   * The body's JSON object. A page of a browser may send a body to any address, but not as JSON: so another type is refused.
   * @throws RequestError where the body is too long, too deep or no JSON object; nothing is read of one that says so beforehand.
   */
  async read(request: IncomingMessage, response: ServerResponse, others: BodyTypes = {}): Promise<Body> {
    if (!hasBody(request)) return {}
    const named = this.#begin(request, response, ['application/json', ...Object.keys(others)])
    const isOther = Object.hasOwn(others, named)
    const body: Unfinished = { request, bytes: Buffer.alloc(0), lastLook: this.#looks, isWaiting: false, isCut: false }
    this.#unfinished.add(body)
    try {
      const bytes = await this.#bytesOf(body)
      return isOther ? readOther(bytes, named, others[named]!) : parsed(bytes)
    } finally {
      this.#unfinished.delete(body)
    }
  }

  /** The body in pieces, of which none is kept. @throws RequestError as `read`. */
  pieces(request: IncomingMessage, response: ServerResponse, type: string): AsyncIterable<Uint8Array> {
    if (hasBody(request)) this.#begin(request, response, [type])
    return bodyPieces(request, this.#maxBytes, () => this.#tooLong())
  }

  /** Checks what a request tells of its body, lets the client send it, and returns its type. */
  #begin(request: IncomingMessage, response: ServerResponse, types: readonly string[]): string {
    const { 'content-type': type = '', 'content-length': length = 0, expect } = request.headers
    const { 'content-encoding': encoding = 'identity' } = request.headers
    if (request.method !== 'POST') throw new RequestError(400, `${request.method} takes no body`)
    const named = type.split(';')[0]!.trim().toLowerCase()
    if (!types.includes(named)) {
      throw new RequestError(415, `the body's type is ${show(type)}, expected ${types.join(' or ')}`)
    }
    if (encoding.toLowerCase() !== 'identity') {
      throw new RequestError(415, `the body's encoding is ${show(encoding)}, expected none`)
    }
    if (Number(length) > this.#maxBytes) throw this.#tooLong()
    if (expect !== undefined) response.writeContinue()
    return named
  }

  /** Copies chunks into one buffer: short chunks would each hold many times their bytes. */
  async #bytesOf(body: Unfinished): Promise<Buffer> {
    let length = 0
    // The request stays open, so that it can be answered.
    for await (const chunk of body.request.iterator({ destroyOnReturn: false }) as AsyncIterable<Buffer>) {
      const needed = length + chunk.length
      if (needed > this.#maxBytes) throw this.#tooLong()
      if (needed > body.bytes.length) {
        const capacity = Math.min(this.#maxBytes, Math.max(needed, 2 * body.bytes.length))
        await this.#grow(body, length, capacity)
      }
      chunk.copy(body.bytes, length)
      length = needed
      body.lastLook = this.#looks
    }
    return body.bytes.subarray(0, length)
  }

  #tooLong(): RequestError {
    return new RequestError(413, `the body has more than ${this.#maxBytes} bytes`, { code: 'body_too_large' })
  }

  /** Grows a buffer when there is room, cutting off idle bodies. No await between check and allocation. */
  async #grow(body: Unfinished, length: number, capacity: number): Promise<void> {
    body.isWaiting = true
    while (capacity > FREE_BYTES) {
      const others = [...this.#unfinished].filter((each) => each.bytes.length > FREE_BYTES && each !== body)
      const held = others.reduce((sum, { bytes }) => sum + bytes.length, 0)
      if (held + capacity <= this.#roomBytes) break
      const idle = others.find(({ isWaiting, lastLook }) => !isWaiting && this.#looks - lastLook > IDLE_LOOKS)
      const cut = idle ?? (others.every(({ isWaiting }) => isWaiting) ? others[0] : undefined)
      if (cut !== undefined) {
        cut.isCut = true
        cut.request.destroy()
        this.#unfinished.delete(cut)
      } else await this.#nextLook()
      // `destroyed` is also true after a request's last bytes were read.
      if (body.isCut || body.request.errored !== null)
        throw new RequestError(503, 'the body came too slowly', { retryAfter: 1 })
    }
    const grown = Buffer.allocUnsafe(capacity)
    body.bytes.copy(grown, 0, 0, length)
    body.bytes = grown
    body.lastLook = this.#looks
    body.isWaiting = false
  }

  #nextLook(): Promise<void> {
    this.#look ??= sleep(LOOK_MS, undefined, { ref: false }).then(() => {
      this.#looks++
      this.#look = null
    })
    return this.#look
  }
}

function readOther(bytes: Buffer, type: string, read: BodyTypes[string]): Body {
  try {
    return read(bytes)
  } catch (error) {
    throw new RequestError(400, `the body is not valid ${type}: ${(error as Error).message}`, { code: 'bad_body' })
  }
}

function parsed(bytes: Buffer): Body {
  if (bytes.length === 0) return {}
  if (isDeeper(bytes, MAX_DEPTH)) {
    throw new RequestError(400, `the body has more than ${MAX_DEPTH} levels of arrays and objects`, {
      code: 'bad_json',
    })
  }
  let value: unknown
  try {
    value = JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(bytes))
  } catch (error) {
    throw new RequestError(400, `the body is not JSON: ${(error as Error).message}`, { code: 'bad_json' })
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    throw new RequestError(400, 'the body is not a JSON object', { code: 'bad_json' })
  }
  return value as Body
}

/** Whether JSON's brackets are nested more than `most` levels. */
function isDeeper(bytes: Buffer, most: number): boolean {
  const [array, object, arrayEnd, objectEnd] = Buffer.from('[{]}')
  let depth = 0
  for (let i = 0; i < bytes.length; i++) {
    const byte = bytes[i]
    if (byte === quote) i = textEnd(bytes, i)
    else if (byte === array || byte === object) {
      if (++depth > most) return true
    } else if (byte === arrayEnd || byte === objectEnd) depth--
  }
  return false
}

const [quote, backslash] = Buffer.from('"\\') as unknown as [number, number]

/** Where the text that begins at a quote ends; the end of the bytes if it does not. Most bytes of a body are texts: it is read natively. */
function textEnd(bytes: Buffer, begin: number): number {
  for (let end = bytes.indexOf(quote, begin + 1); end >= 0; end = bytes.indexOf(quote, end + 1)) {
    let before = end
    while (bytes[before - 1] === backslash) before--
    if ((end - before) % 2 === 0) return end
  }
  return bytes.length
}
