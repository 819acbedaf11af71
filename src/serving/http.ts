/**
 * What a server of JSON over HTTP needs, on node:http alone: routes, bodies with a limit, errors with a status, and server-sent
 * events. A route knows nothing of sockets: it is given a body and a signal, and answers with a value or a stream of values.
 */
import {
  createServer,
  type IncomingHttpHeaders,
  type IncomingMessage,
  type Server,
  type ServerResponse,
} from 'node:http'
import type { AddressInfo } from 'node:net'
import { InputError } from '../errors.ts'

/** A request that cannot be answered, as OpenAI's API words it. */
export class RequestError extends Error {
  readonly status: number
  /** OpenAI's kind of error, like `invalid_request_error`. */
  readonly type: string
  /** The field of the body that is wrong, if it is one. */
  readonly param: string | null
  /** A word for programs, like `model_not_found`. */
  readonly code: string | null
  /** Seconds after which the same request may do; null where it never will. */
  readonly retryAfter: number | null

  constructor(
    status: number,
    message: string,
    {
      param = null,
      code = null,
      retryAfter = null,
    }: { param?: string | null; code?: string | null; retryAfter?: number | null } = {},
  ) {
    super(message)
    this.status = status
    this.type = status >= 500 ? 'server_error' : status === 429 ? 'rate_limit_error' : 'invalid_request_error'
    this.param = param
    this.code = code
    this.retryAfter = retryAfter
  }
}

/** An answer that breaks: what a server under test sends on purpose. */
export class BrokenAnswer extends Error {
  /** What is sent with status 200 before the connection is cut; null: nothing. */
  readonly text: string | null
  /** Whether that is all there is to be, and the connection stays. */
  readonly isWhole: boolean

  constructor(text: string | null, isWhole = false) {
    super('an answer that breaks')
    this.text = text
    this.isWhole = isWhole
  }
}

/** The JSON object of a request's body, or of its query where it has no body. */
export type Body = Readonly<Record<string, unknown>>

/** What a route is asked. */
export interface RouteRequest {
  readonly body: Body
  readonly query: URLSearchParams
  readonly headers: IncomingHttpHeaders
  /** What stands in the path for each `:name` of the route. */
  readonly params: Readonly<Record<string, string>>
  /** Aborts when the client goes away before it has its answer. */
  readonly signal: AbortSignal
}

/** Values that are sent as server-sent events. */
export interface EventStream {
  readonly events: AsyncIterable<object>
  /** Each event is named by its `type`, and nothing follows the last one; otherwise they have no names, and `[DONE]` ends them. */
  readonly isNamed?: boolean
}

/** An answer that is no JSON, like a page. */
export class HttpDocument {
  readonly type: string
  readonly content: string | Uint8Array
  readonly headers: Readonly<Record<string, string>>

  constructor(type: string, content: string | Uint8Array, headers: Readonly<Record<string, string>> = {}) {
    this.type = type
    this.content = content
    this.headers = headers
  }
}

/** An answer: a value that becomes JSON, a document, or a stream of values; null for an answer without a body. */
export type RouteAnswer = object | HttpDocument | EventStream | null

/** What answers a method and a path, like `POST /v1/completions` or `POST /sessions/:id/reward`. */
export interface Route {
  (request: RouteRequest): RouteAnswer | Promise<RouteAnswer>
  /** How it tells errors; default OpenAI's shape. */
  readonly errorBody?: (error: RequestError) => object
}

/** A server that listens. */
export interface Listening {
  readonly url: string
  /** Takes no more connections; settles when those that are open have ended. */
  close(): Promise<void>
  /** Ends those that are open at once. */
  closeConnections(): void
}

/** How errors are told: OpenAI's shape. */
function errorBody({ message, type, param, code }: RequestError): object {
  return { error: { message, type, param, code } }
}

/** Where a server listens, and how. */
export interface ListenOptions {
  readonly host: string
  readonly port: number
  readonly maxBodyBytes: number
  /** Whether the process may end while it listens. Default false. */
  readonly isBackground?: boolean
}

/**
 * Answers requests by `routes` on `host` and `port` (0: any that is free).
 * @throws InputError where it cannot listen there.
 */
export async function listen(
  routes: ReadonlyMap<string, Route>,
  { host, port, maxBodyBytes, isBackground = false }: ListenOptions,
): Promise<Listening> {
  const find = routeFinder(routes)
  const server = createServer((request, response) => {
    const { pathname, searchParams } = new URL(request.url ?? '/', 'http://localhost')
    const found = find(request.method ?? 'GET', pathname)
    if ('status' in found) {
      request.resume()
      return refuse(response, found, errorBody)
    }
    const { route, params } = found
    const tell = route.errorBody ?? errorBody
    const answer = async (): Promise<void> => {
      const goneAway = new AbortController()
      response.on('close', () => {
        if (!response.writableFinished) goneAway.abort()
      })
      const body = request.method === 'POST' ? await readBody(request, maxBodyBytes) : {}
      const { headers } = request
      const answered = await route({ body, query: searchParams, headers, params, signal: goneAway.signal })
      if (answered instanceof HttpDocument) return sendDocument(response, answered)
      if (answered !== null && 'events' in answered) return sendEvents(response, answered as EventStream, tell)
      send(response, 200, answered)
    }
    void answer().catch((error) => refuse(response, error, tell))
  })
  // Longer than clients keep theirs: a connection that is closed here just as a client asks again is an error there.
  server.keepAliveTimeout = 60_000
  if (isBackground) server.on('connection', (socket) => socket.unref())
  await new Promise<void>((resolve, reject) => {
    server.once('error', (cause: NodeJS.ErrnoException) => {
      reject(new InputError('port', `${host}:${port} (${cause.message})`, 'an address that is free', { cause }))
    })
    server.listen(port, host, resolve)
  })
  if (isBackground) server.unref()
  return listening(server, host)
}

/** Finds the route of a method and a path, and what stands for its names; or why there is none. */
function routeFinder(routes: ReadonlyMap<string, Route>) {
  const named = [...routes].flatMap(([key, route]) => {
    const [method, path] = key.split(' ') as [string, string]
    return path.includes('/:') ? [{ method, route, parts: path.split('/') }] : []
  })
  const paths = new Set([...routes.keys()].map((key) => key.split(' ')[1]!))
  return (
    method: string,
    path: string,
  ): RequestError | { readonly route: Route; readonly params: Record<string, string> } => {
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
    // A path may hold what lets a client in: it is not said again.
    if (fitting.length > 0) return new RequestError(405, `${method} is not a method of this path`)
    if (paths.has(path)) return new RequestError(405, `${method} is not a method of ${path}`)
    return new RequestError(404, named.length > 0 ? 'there is no such path' : `there is no ${path}`, {
      code: 'not_found',
    })
  }
}

function listening(server: Server, host: string): Listening {
  const { port } = server.address() as AddressInfo
  return {
    url: `http://${host.includes(':') ? `[${host}]` : host}:${port}`,
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve())
        server.closeIdleConnections()
      }),
    closeConnections: () => server.closeAllConnections(),
  }
}

/**
 * The body's JSON object; one without a body is empty. A page of a browser may send a body to any address, but not as JSON: so
 * another type is refused.
 */
async function readBody(request: IncomingMessage, maxBytes: number): Promise<Body> {
  const tooLong = new RequestError(413, `the body has more than ${maxBytes} bytes`, { code: 'body_too_large' })
  const chunks: Buffer[] = []
  let bytes = 0
  for await (const chunk of request as AsyncIterable<Buffer>) {
    bytes += chunk.length
    if (bytes <= maxBytes) chunks.push(chunk)
    else if (bytes > 16 * maxBytes) break // Who sends on and on is not listened to.
  }
  if (bytes > maxBytes) throw tooLong
  if (bytes === 0) return {}
  const type = request.headers['content-type'] ?? ''
  if (!/^application\/json\b/i.test(type)) {
    throw new RequestError(415, `the body's type is ${JSON.stringify(type)}, expected application/json`)
  }
  let value: unknown
  try {
    value = JSON.parse(Buffer.concat(chunks).toString())
  } catch (error) {
    throw new RequestError(400, `the body is no JSON: ${(error as Error).message}`, { code: 'bad_json' })
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    throw new RequestError(400, 'the body is no JSON object', { code: 'bad_json' })
  }
  return value as Body
}

function send(response: ServerResponse, status: number, value: object | null, headers: object = {}): void {
  const text = value === null ? '' : JSON.stringify(value)
  response.writeHead(status, { 'content-type': 'application/json', ...headers })
  response.end(text)
}

function sendDocument(response: ServerResponse, { type, content, headers }: HttpDocument): void {
  response.writeHead(200, { 'content-type': type, ...headers })
  response.end(content)
}

/** Sends events until there are no more, or the client is gone. What fails on the way is the last event. */
async function sendEvents(
  response: ServerResponse,
  { events, isNamed = false }: EventStream,
  tell: (error: RequestError) => object,
): Promise<void> {
  let isBegun = false
  const write = (text: string) => {
    if (!isBegun) response.writeHead(200, { 'content-type': 'text/event-stream', 'cache-control': 'no-cache' })
    isBegun = true
    if (!response.destroyed) response.write(text)
  }
  const writeEvent = (event: object, name: string) => {
    write(`${isNamed ? `event: ${name}\n` : ''}data: ${JSON.stringify(event)}\n\n`)
  }
  try {
    for await (const event of events) writeEvent(event, (event as { type?: string }).type ?? '')
  } catch (error) {
    if (!isBegun) throw error
    if (error instanceof BrokenAnswer) return void response.destroy()
    writeEvent(tell(asRequestError(error)), 'error')
  }
  if (!isNamed) write('data: [DONE]\n\n')
  response.end()
}

function asRequestError(error: unknown): RequestError {
  if (error instanceof RequestError) return error
  if (error instanceof InputError) return new RequestError(400, error.message)
  console.error(`colonnade: ${(error as Error).stack ?? error}`)
  return new RequestError(500, 'an error of the server, which its terminal tells')
}

function refuse(response: ServerResponse, error: unknown, tell: (error: RequestError) => object): void {
  if (response.headersSent || response.destroyed) return void response.destroy()
  if (error instanceof BrokenAnswer) return void breakOff(response, error)
  const refused = asRequestError(error)
  const headers = {
    ...(refused.retryAfter === null ? {} : { 'retry-after': String(refused.retryAfter) }),
    ...(refused.status === 413 ? { connection: 'close' } : {}),
  }
  send(response, refused.status, tell(refused), headers)
}

/** Sends what there is of an answer, as if more were to come, and cuts the connection. */
function breakOff(response: ServerResponse, { text, isWhole }: BrokenAnswer): void {
  if (text === null) return void response.destroy()
  const length = Buffer.byteLength(text)
  response.writeHead(200, { 'content-type': 'application/json', 'content-length': isWhole ? length : 2 * length + 1 })
  if (isWhole) response.end(text)
  else response.write(text, () => response.destroy())
}
