/** JSON over HTTP on node:http: routes, error statuses, and server-sent events. A route returns values or streams. */
import {
  createServer,
  type IncomingHttpHeaders,
  type IncomingMessage,
  type RequestListener,
  type Server,
  type ServerResponse,
} from 'node:http'
import { createServer as createTlsServer, type ServerOptions as TlsOptions } from 'node:https'
import type { AddressInfo, Socket } from 'node:net'
import { InputError, show } from '../errors.ts'
import { PIECE_BYTES } from '../pieces.ts'
import { type Body, BodyReader, type BodyTypes } from './body.ts'
import { callerCheck } from './caller.ts'
import { asRequestError, RequestError } from './request-error.ts'

export type { Body } from './body.ts'
export { RequestError } from './request-error.ts'

/** A response that breaks, as a server under test sends on purpose. */
export class BrokenAnswer extends Error {
  /** Sent with status 200 before the connection is cut; null: nothing. */
  readonly text: string | null
  /** Whether the response ends normally and the connection stays. */
  readonly isWhole: boolean

  constructor(text: string | null, isWhole = false) {
    super('an answer that breaks')
    this.text = text
    this.isWhole = isWhole
  }
}

/** A request before its body is read. */
export interface RequestHead {
  readonly query: URLSearchParams
  readonly headers: IncomingHttpHeaders
  /** The path's text for each `:name` of the route. */
  readonly params: Readonly<Record<string, string>>
}

export interface RouteRequest extends RequestHead {
  readonly body: Body
  /** The body, if the route takes it in pieces. A piece is valid until the next one is requested. */
  readonly pieces?: AsyncIterable<Uint8Array>
  /** Aborts when the client disconnects before it has its response. */
  readonly signal: AbortSignal
}

/** Values that are sent as server-sent events. */
export interface EventStream {
  readonly events: AsyncIterable<object>
  /** Each event is named by its `type`, and the last one ends the stream; otherwise `[DONE]` does. */
  readonly isNamed?: boolean
}

/** A document's content, or pieces of it; then its headers name its length. A piece is sent before the next one is requested. */
type Content = string | Uint8Array | AsyncIterable<Uint8Array>

/** A response that is not JSON, like a page. */
export class HttpDocument {
  readonly type: string
  readonly content: Content
  readonly headers: Readonly<Record<string, string>>
  readonly status: number

  constructor(type: string, content: Content, headers: Readonly<Record<string, string>> = {}, status: number = 200) {
    this.type = type
    this.content = content
    this.headers = headers
    this.status = status
  }
}

/** A response: a JSON value, a document, or a stream of values; null for a response without a body. */
export type RouteAnswer = object | HttpDocument | EventStream | null

/** Handles a method and a path, like `POST /v1/completions` or `POST /sessions/:id/reward`. */
export interface Route {
  (request: RouteRequest): RouteAnswer | Promise<RouteAnswer>
  /** Refuses unauthorized callers, before the body is read. @throws RequestError */
  readonly admit?: (head: RequestHead) => void
  /** Whether it is a page without side effects or computation, to which other sites may link; default false. */
  readonly isPage?: boolean
  /** Body types that it accepts besides JSON, with their readers. */
  readonly reads?: BodyTypes
  /** The only type of bodies, if it takes them in pieces. */
  readonly inPieces?: string
  /** The format of errors; default OpenAI's. */
  readonly errorBody?: (error: RequestError) => object
}

export interface Listening {
  readonly url: string
  /** Accepts no more connections; settles when the open ones have ended. */
  close(): Promise<void>
  /** Ends open connections at once. */
  closeConnections(): void
}

function errorBody({ message, type, param, code }: RequestError): object {
  return { error: { message, type, param, code } }
}

/** Limits of a server's memory and connections. */
export const SERVER_LIMITS = {
  connections: 2048,
  /** Unanswered requests per connection. */
  pipelined: 16,
  /** Milliseconds for a request's head, and for all of it. */
  headMs: 15_000,
  requestMs: 60_000,
  /** Milliseconds that a client may not read its response. */
  stallMs: 30_000,
  /** Bytes of unread responses. Beyond them the oldest are cut off. */
  unsentBytes: 2 ** 28,
}
/** Milliseconds for a client to read why its request was refused early. */
const LINGER_MS = 1000

export interface ListenOptions {
  readonly host: string
  readonly port: number
  readonly maxBodyBytes: number
  /** Whether the process may end while it listens; default false. */
  readonly isBackground?: boolean
  readonly limits?: Partial<typeof SERVER_LIMITS>
  /** Serves only TLS, with this certificate (and its chain) and private key, in PEM. */
  readonly tls?: { readonly cert: string; readonly key: string } | null
}

/** Serves `routes` on `host` and `port` (0: any free one). @throws InputError if it cannot listen there. */
export async function listen(
  routes: ReadonlyMap<string, Route>,
  { host, port, maxBodyBytes, isBackground = false, limits, tls = null }: ListenOptions,
): Promise<Listening> {
  const { connections, pipelined, headMs, requestMs, stallMs, unsentBytes } = { ...SERVER_LIMITS, ...limits }
  const find = routeFinder(routes)
  const checkCaller = callerCheck(host)
  const bodies = new BodyReader(maxBodyBytes)
  const sender = new Sender(stallMs, unsentBytes)

  const answer = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    let tell = errorBody
    try {
      const goneAway = new AbortController()
      response.on('close', () => {
        if (!response.writableFinished) goneAway.abort()
      })
      const { path, query } = targetOf(request.url ?? '')
      const { route, params } = find(request.method ?? 'GET', path)
      tell = route.errorBody ?? errorBody
      checkCaller(request, route.isPage ?? false)
      const head: RequestHead = { query, headers: request.headers, params }
      route.admit?.(head)
      const given =
        route.inPieces === undefined
          ? { body: await bodies.read(request, response, route.reads) }
          : { body: {}, pieces: bodies.pieces(request, response, route.inPieces) }
      const answered = await route({ ...head, ...given, signal: goneAway.signal })
      if (answered instanceof HttpDocument) await sender.sendDocument(response, answered)
      else if (answered !== null && 'events' in answered) {
        await sender.sendEvents(response, answered as EventStream, tell)
      } else sender.send(response, 200, answered)
    } catch (error) {
      sender.refuse(request, response, error, tell)
    }
  }
  /** For each connection the number of unanswered requests, and a promise for the last response. */
  const queues = new WeakMap<Socket, { length: number; last: Promise<void> }>()
  const handle = (request: IncomingMessage, response: ServerResponse): void => {
    const { socket } = request
    const queue = queues.get(socket) ?? { length: 0, last: Promise.resolve() }
    queues.set(socket, queue)
    if (++queue.length > pipelined) socket.destroy()
    response.on('error', () => socket.destroy())
    const closed = new Promise<void>((resolve) => response.once('close', resolve))
    const answering = queue.last.then(() => (socket.destroyed ? undefined : answer(request, response)))
    queue.last = answering
      .catch(() => void socket.destroy())
      .then(() => (socket.destroyed ? undefined : closed))
      .then(() => void queue.length--)
  }
  const options = { connectionsCheckingInterval: Math.min(headMs, 5000), highWaterMark: 2 ** 14, keepAlive: true }
  const server = tls === null ? createServer(options, handle) : tlsServer({ ...options, ...tls }, handle)
  server.on('checkContinue', handle) // Check the key before the client sends its body.
  server.maxConnections = connections
  server.headersTimeout = headMs
  server.requestTimeout = requestMs
  // Longer than clients' timeouts: closing a connection while a client sends its next request would fail that request.
  server.keepAliveTimeout = 60_000
  if (isBackground) server.on('connection', (socket) => socket.unref())
  let isTold = false
  await new Promise<void>((resolve, reject) => {
    // A later error, such as too few file descriptors, does not stop it: the next connection is served.
    server.on('error', (cause: NodeJS.ErrnoException) => {
      if (server.listening && !isTold) console.error(`colonnade: a connection to ${host} failed: ${cause.message}`)
      isTold = server.listening
      reject(new InputError('port', `${host}:${port} (${cause.message})`, 'a free address', { cause }))
    })
    server.listen(port, host, resolve)
  })
  if (isBackground) server.unref()
  return listening(server, host, tls === null ? 'http' : 'https')
}

function tlsServer(options: TlsOptions, handle: RequestListener): Server {
  try {
    return createTlsServer(options, handle)
  } catch (cause) {
    throw new InputError('tls', (cause as Error).message, 'a certificate and its private key, in PEM', { cause })
  }
}

const PATH = /^\/([\w\-.~!$&'()*+,;=:@/]|%[\da-f]{2})*$/i

function targetOf(target: string): { readonly path: string; readonly query: URLSearchParams } {
  const [path, ...query] = target.split('?') as [string, ...string[]]
  if (!PATH.test(path)) throw new RequestError(400, `the target is ${show(target)}, expected a path`)
  return { path, query: new URLSearchParams(query.join('?')) }
}

/** Finds the route of a method and a path, with the values of its names; or throws the reason why there is none. */
function routeFinder(routes: ReadonlyMap<string, Route>) {
  const named = [...routes].flatMap(([key, route]) => {
    const [method, path] = key.split(' ') as [string, string]
    return path.includes('/:') ? [{ method, route, parts: path.split('/') }] : []
  })
  const paths = new Set([...routes.keys()].map((key) => key.split(' ')[1]!))
  return (method: string, path: string): { readonly route: Route; readonly params: Record<string, string> } => {
    const exact = routes.get(`${method} ${path}`)
    if (exact !== undefined) return { route: exact, params: {} }
    const parts = path.split('/')
    const fitting = named.filter(
      (each) =>
        each.parts.length === parts.length &&
        each.parts.every((part, i) => (part.startsWith(':') ? parts[i] !== '' : part === parts[i])),
    )
    const found = fitting.find((each) => each.method === method)
    if (found !== undefined) {
      const params = found.parts.flatMap((part, i) => (part.startsWith(':') ? [[part.slice(1), parts[i]!]] : []))
      return { route: found.route, params: Object.fromEntries(params) as Record<string, string> }
    }
    // A path may contain a secret: do not repeat it.
    if (fitting.length > 0) throw new RequestError(405, `${method} is not a method of this path`)
    if (paths.has(path)) throw new RequestError(405, `${method} is not a method of ${path}`)
    throw new RequestError(404, named.length > 0 ? 'there is no such path' : `there is no ${path}`, {
      code: 'not_found',
    })
  }
}

function listening(server: Server, host: string, protocol: string): Listening {
  const { port } = server.address() as AddressInfo
  return {
    url: `${protocol}://${host.includes(':') ? `[${host}]` : host}:${port}`,
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve())
        server.closeIdleConnections()
      }),
    closeConnections: () => server.closeAllConnections(),
  }
}

/** Sends responses. Unread ones are cut off: after a time, and the oldest first if there are too many. */
class Sender {
  readonly #stallMs: number
  readonly #unsentBytes: number
  /** Bytes of whole responses in flight, in order of sending. */
  readonly #unsent = new Map<ServerResponse, number>()

  constructor(stallMs: number, unsentBytes: number) {
    this.#stallMs = stallMs
    this.#unsentBytes = unsentBytes
  }

  send(response: ServerResponse, status: number, value: object | null, headers: object = {}): void {
    const text = value === null ? '' : JSON.stringify(value)
    response.writeHead(status, { 'content-type': 'application/json', ...headers })
    this.#end(response, text)
  }

  async sendDocument(response: ServerResponse, { type, content, headers, status }: HttpDocument): Promise<void> {
    response.writeHead(status, { 'content-type': type, ...headers })
    if (typeof content === 'string' || content instanceof Uint8Array) return this.#end(response, content)
    this.#count(response, 2 * PIECE_BYTES)
    // A response may close without calling back for what was written last.
    let end = (): void => {}
    response.on('close', () => end())
    for await (const piece of content) {
      if (response.destroyed) return // The client disconnected meanwhile; no other code reports it.
      await new Promise<void>((resolve, reject) => {
        end = resolve
        response.write(piece, (error) => (error ? reject(error) : resolve()))
      })
    }
    response.end()
  }

  #end(response: ServerResponse, content: string | Uint8Array): void {
    if (response.destroyed) return // The client disconnected meanwhile; no other code reports it.
    this.#count(response, content.length)
    response.end(content)
  }

  /** Counts the bytes of a response that is about to be sent. */
  #count(response: ServerResponse, bytes: number): void {
    this.#unsent.set(response, bytes)
    response.on('close', () => this.#unsent.delete(response))
    let sum = [...this.#unsent.values()].reduce((total, bytes) => total + bytes, 0)
    for (const [oldest, bytes] of this.#unsent) {
      if (sum <= this.#unsentBytes || oldest === response) break
      sum -= bytes
      oldest.destroy()
    }
    response.setTimeout(this.#stallMs)
  }

  /** Sends events to the end, each when the client has read those before it. An error on the way is the last event. */
  async sendEvents(
    response: ServerResponse,
    { events, isNamed = false }: EventStream,
    tell: (error: RequestError) => object,
  ): Promise<void> {
    let isBegun = false
    let goOn = (): void => {}
    for (const name of ['drain', 'close']) response.on(name, () => goOn())
    const write = async (text: string): Promise<void> => {
      if (!isBegun) response.writeHead(200, { 'content-type': 'text/event-stream', 'cache-control': 'no-cache' })
      isBegun = true
      if (response.destroyed || response.write(text)) return
      response.setTimeout(this.#stallMs)
      await new Promise<void>((resolve) => {
        goOn = resolve
      })
      response.setTimeout(0)
    }
    const writeEvent = (event: object, name: string) => {
      return write(`${isNamed ? `event: ${name}\n` : ''}data: ${JSON.stringify(event)}\n\n`)
    }
    try {
      for await (const event of events) await writeEvent(event, (event as { type?: string }).type ?? '')
    } catch (error) {
      if (!isBegun) throw error
      if (error instanceof BrokenAnswer) return void response.destroy()
      await writeEvent(tell(asRequestError(error)), 'error')
    }
    if (!isNamed) await write('data: [DONE]\n\n')
    response.end()
  }

  /** Sends an error without reading the rest of the request; the connection ends after time to read it. */
  refuse(
    request: IncomingMessage,
    response: ServerResponse,
    error: unknown,
    tell: (error: RequestError) => object,
  ): void {
    if (response.headersSent || request.socket.destroyed) return void response.destroy()
    if (error instanceof BrokenAnswer) return void breakOff(response, error)
    const refused = asRequestError(error)
    const headers = refused.retryAfter === null ? {} : { 'retry-after': String(refused.retryAfter) }
    if (request.complete) return void this.send(response, refused.status, tell(refused), headers)
    const text = JSON.stringify(tell(refused))
    const length = { 'content-length': Buffer.byteLength(text), connection: 'close' }
    response.writeHead(refused.status, { 'content-type': 'application/json', ...length, ...headers })
    response.write(text)
    const timer = setTimeout(() => response.destroy(), LINGER_MS).unref()
    response.on('close', () => clearTimeout(timer))
  }
}

/** Sends part of a response, as if more followed, and cuts the connection. */
function breakOff(response: ServerResponse, { text, isWhole }: BrokenAnswer): void {
  if (text === null) return void response.destroy()
  const length = Buffer.byteLength(text)
  response.writeHead(200, { 'content-type': 'application/json', 'content-length': isWhole ? length : 2 * length + 1 })
  if (isWhole) response.end(text)
  else response.write(text, () => response.destroy())
}
