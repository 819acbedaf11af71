/** Bodies of requests: JSON objects of a bounded size and depth, of which a server holds a bounded number of bytes at once. */
import type { IncomingMessage, ServerResponse } from 'node:http'
import { setTimeout as sleep } from 'node:timers/promises'
import { show } from '../errors.ts'
import { RequestError } from './request-error.ts'

/** The JSON object of a request's body; an empty one where it has no body. */
export type Body = Readonly<Record<string, unknown>>

/** Bytes of each body that need no room: short requests never wait for long ones. */
const FREE_BYTES = 2 ** 16
/** Bytes that all unfinished bodies beyond that may hold together; and twice the longest body. */
const ROOM_BYTES = 2 ** 25
/** Milliseconds between two looks whether there is room for a body that waits. */
const LOOK_MS = 20
/** Looks after which a body that has sent nothing makes room. They are counted, not timed: a process that stalls looks once. */
const IDLE_LOOKS = 50
/** Maximum nesting of arrays and objects; a function that walks a body may recurse at each level. */
const MAX_DEPTH = 128

/** A body that is being read. */
interface Unfinished {
  readonly request: IncomingMessage
  bytes: Buffer
  /** The look after which it last sent something. */
  lastLook: number
  isWaiting: boolean
  isCut: boolean
}

/** Whether a request has a body. */
export function hasBody({ headers }: IncomingMessage): boolean {
  return headers['transfer-encoding'] !== undefined || Number(headers['content-length'] ?? 0) > 0
}

/** Reads the bodies of a server. */
export class BodyReader {
  readonly #maxBytes: number
  readonly #roomBytes: number
  #looks = 0
  #look: Promise<void> | null = null
  /** In the order in which they began. */
  readonly #unfinished = new Set<Unfinished>()

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes
    this.#roomBytes = Math.max(ROOM_BYTES, 2 * maxBytes)
  }

  /**
   * The body's JSON object. A page of a browser may send a body to any address, but not as JSON: so another type is refused.
   * @throws RequestError where the body is too long, too deep or no JSON object; nothing is read of one that says so beforehand.
   */
  async read(request: IncomingMessage, response: ServerResponse): Promise<Body> {
    if (!hasBody(request)) return {}
    const { 'content-type': type = '', 'content-length': length = 0, expect } = request.headers
    if (request.method !== 'POST') throw new RequestError(400, `${request.method} takes no body`)
    if (!/^application\/json\s*(;|$)/i.test(type)) {
      throw new RequestError(415, `the body's type is ${show(type)}, expected application/json`)
    }
    if (Number(length) > this.#maxBytes) throw this.#tooLong()
    if (expect !== undefined) response.writeContinue()
    const body: Unfinished = { request, bytes: Buffer.alloc(0), lastLook: this.#looks, isWaiting: false, isCut: false }
    this.#unfinished.add(body)
    try {
      return parsed(await this.#bytesOf(body))
    } finally {
      this.#unfinished.delete(body)
    }
  }

  /** Copies what comes into one buffer: each chunk would hold many times its bytes where chunks are short. */
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

  /**
   * Gives a body `capacity` bytes, of which `length` are kept, as soon as there is room. Bodies that no longer send are cut off for it.
   * No other body that waits may look between the decision and the allocation: it would count this one as idle, and as small as before.
   */
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
      // `destroyed` is also true of a request whose last bytes were read.
      if (body.isCut || body.request.errored !== null)
        throw new RequestError(503, 'the body came too slowly', { retryAfter: 1 })
    }
    const grown = Buffer.allocUnsafe(capacity)
    body.bytes.copy(grown, 0, 0, length)
    body.bytes = grown
    body.lastLook = this.#looks
    body.isWaiting = false
  }

  /** One look for all that wait. */
  #nextLook(): Promise<void> {
    this.#look ??= sleep(LOOK_MS, undefined, { ref: false }).then(() => {
      this.#looks++
      this.#look = null
    })
    return this.#look
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
    throw new RequestError(400, `the body is no JSON: ${(error as Error).message}`, { code: 'bad_json' })
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    throw new RequestError(400, 'the body is no JSON object', { code: 'bad_json' })
  }
  return value as Body
}

/** Whether brackets of JSON are open within one another more than `most` times. */
function isDeeper(bytes: Buffer, most: number): boolean {
  const [quote, backslash, array, object, arrayEnd, objectEnd] = Buffer.from('"\\[{]}')
  let depth = 0
  let isText = false
  for (let i = 0; i < bytes.length; i++) {
    const byte = bytes[i]
    if (byte === quote) isText = !isText
    else if (isText) i += byte === backslash ? 1 : 0
    else if (byte === array || byte === object) {
      if (++depth > most) return true
    } else if (byte === arrayEnd || byte === objectEnd) depth--
  }
  return false
}
