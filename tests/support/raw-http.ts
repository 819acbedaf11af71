/** Requests to servers as bytes on a socket, valid and invalid, by a seed. */
import { once } from 'node:events'
import { connect, type Socket } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'

export interface RawAnswer {
  /** Of each answer on the connection. */
  readonly statuses: readonly number[]
  readonly text: string
  readonly isClosed: boolean
}

/** Connects to a local server; a connection error ends it. */
export async function connected(url: string): Promise<Socket> {
  const socket = connect(Number(new URL(url).port), '127.0.0.1')
  await Promise.race([once(socket, 'connect'), once(socket, 'close')]).catch(() => undefined)
  return socket.on('error', () => undefined)
}

/** Sends pieces one after another, and reads until the server closes the connection, or at most for `waitMs`. */
export async function rawAsk(url: string, pieces: readonly (string | Buffer)[], waitMs = 10_000): Promise<RawAnswer> {
  const socket = await connected(url)
  const chunks: Buffer[] = []
  socket.on('data', (chunk) => chunks.push(chunk))
  const closed = new Promise((resolve) => socket.once('close', resolve))
  for (const piece of pieces) {
    socket.write(typeof piece === 'string' ? Buffer.from(piece, 'latin1') : piece)
    await sleep(0)
  }
  await Promise.race([closed, sleep(waitMs, undefined, { ref: false })])
  const isClosed = socket.destroyed
  socket.destroy()
  const text = Buffer.concat(chunks).toString('latin1')
  return { statuses: [...text.matchAll(/^HTTP\/1\.1 (\d+)/gm)].map(([, status]) => Number(status)), text, isClosed }
}

/** A valid request. */
export interface RightRequest {
  readonly method: 'GET' | 'POST'
  readonly path: string
  readonly body?: object
  readonly headers?: Readonly<Record<string, string>>
}

/** Draws a whole number below `count`. */
export type Draw = (count: number) => number

export const { drawer } = (await import(new URL('../../scripts/drawer.mjs', import.meta.url).href)) as {
  drawer(seed: number): Draw
}

/** Bytes to send, and whether the client then ends its side, waits, or disconnects midway. */
export interface RawRequest {
  readonly kind: string
  /** The number of requests in the bytes. */
  readonly requests: number
  readonly pieces: readonly Buffer[]
  readonly then: 'end' | 'wait' | 'abort'
}

const METHODS = 'GET POST HEAD OPTIONS TRACE CONNECT PUT DELETE PATCH PROPFIND get G*T M-SEARCH PRI  '.split(' ')
const TARGETS = [
  ...[
    '//[',
    '//',
    '/',
    '*',
    '',
    '?',
    '/?',
    'http://[',
    'http://evil.com/',
    'https://127.0.0.1/',
    '127.0.0.1:80',
    '\\\\x',
  ],
  ...[
    '/%',
    '/%00',
    '/%2e%2e/%2e%2e/etc/passwd',
    '/../../etc/passwd',
    '/..%5c..%5c',
    '/\u0000',
    '/\u00ff',
    '/ x',
    '/#x',
  ],
  ...[
    `/${'a'.repeat(9000)}`,
    `/${'a'.repeat(20_000)}`,
    `/?${'a=1&'.repeat(3000)}`,
    '/?__proto__=1&a[b]=c',
    '///[::1',
    '/?%ff',
  ],
  ...[
    '/sessions/%2e%2e/v1/models',
    '/sessions//v1/models',
    '/sessions/__proto__',
    '/api/rows?run=..%2f..&file=x&sql=select+1',
  ],
]
const VERSIONS = [
  'HTTP/1.1',
  'HTTP/1.0',
  'HTTP/0.9',
  'HTTP/2.0',
  'HTTP/9.9',
  'HTTP/1.1 ',
  'http/1.1',
  '',
  'HTTP/1.12345',
]
const HEADERS = [
  ...[
    'Host: evil.com',
    'Host: 127.0.0.1',
    'Host:',
    'Host: [',
    'Host: a@127.0.0.1',
    'Host: 127.0.0.1\t',
    'Origin: null',
  ],
  ...[
    'Origin: http://evil.com',
    'Origin: http://[',
    'Sec-Fetch-Site: cross-site',
    'Sec-Fetch-Site: x',
    'no colon',
    ': none',
  ],
  ...[
    'X: a\u0000b',
    'X: \u00ff\u00fe',
    'X y: 1',
    ' folded: 1',
    'X: 1\r\n folded',
    'X: 1\n\nGET / HTTP/1.1',
    'X: \r',
    'Expect: x',
  ],
  ...[
    'Expect: 100-continue',
    'Content-Type: text/plain',
    'Content-Type: application/json; charset=utf-7',
    'Connection: close, x',
  ],
  ...[
    'Content-Encoding: gzip',
    'Authorization: Bearer \u00e9',
    'Authorization: Basic eDp5',
    'X-Api-Key: a',
    'Cookie: a=b',
    'Trailer: X',
  ],
  ...[
    'Keep-Alive: timeout=1e9',
    'X-Forwarded-Host: 127.0.0.1',
    '__proto__: x',
    'constructor: y',
    `X: ${'a'.repeat(17_000)}`,
  ],
  ...[
    Array.from({ length: 2500 }, (_, i) => `H${i}: ${i}`).join('\r\n'),
    'Range: bytes=0-1,2-3',
    'Transfer-Encoding: identity',
  ],
]
const LENGTHS = [
  '-1',
  '0',
  '1',
  '5',
  '+5',
  '0x10',
  '1e3',
  '5, 5',
  '5, 6',
  '99999999999999999999',
  '4294967296',
  ' ',
  'a',
  '7.5',
]
const CHUNKS = [
  ...[
    '5\r\nhello\r\n',
    '5;x=y\r\nhello\r\n',
    '-1\r\n',
    'zz\r\n',
    'ffffffffffffffff\r\n',
    '5\r\nhelloXX',
    '0\r\n\r\n',
    '0\r\nX: y\r\n\r\n',
  ],
  ...[
    '1\n{\n',
    '\r\n\r\n',
    `5;${'x'.repeat(20_000)}\r\n`,
    '00000000000000000005\r\nhello\r\n',
    '5 \r\nhello\r\n',
    '1\r\n{\r\n'.repeat(2000),
  ],
]
const ENCODINGS = [
  'chunked',
  'chunked, chunked',
  'gzip, chunked',
  'xchunked',
  'identity',
  'chunked;',
  '\tchunked',
  'chunked\u000b',
]
const WORDS = [
  'null',
  '1e999',
  '-1',
  '9007199254740993',
  '[]',
  '""',
  '"__proto__"',
  '\\ud800',
  '"\\ud800"',
  '{"constructor":{"prototype":1}}',
]
const UPGRADES = [
  'Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13',
  'Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__',
  'Upgrade: TLS/1.2\r\nConnection: Upgrade',
  'Connection: upgrade',
]

/** A request of a kind that `draw` chooses, made from a valid one. */
export function rawRequest(draw: Draw, right: readonly RightRequest[]): RawRequest {
  const one = <T>(list: readonly T[]): T => list[draw(list.length)]!
  const { method, path, body, headers = {} } = one(right)
  const given = Object.entries({ host: '127.0.0.1', ...headers }).map(([name, value]) => `${name}: ${value}`)
  const json = body === undefined ? '' : JSON.stringify(body)
  const text = (lines: readonly string[], then = '') => Buffer.from(`${lines.join('\r\n')}\r\n\r\n${then}`, 'latin1')
  const line = `${method} ${path} HTTP/1.1`
  const length = `content-length: ${Buffer.byteLength(json)}`
  const type = 'content-type: application/json'
  const whole = text([line, ...given, ...(body === undefined ? [] : [type, length])], json)
  const posted = (content: Buffer) =>
    Buffer.concat([text([`POST ${path} HTTP/1.1`, ...given, type, `content-length: ${content.length}`]), content])
  let requests = 1
  const kinds: Record<string, () => Buffer> = {
    'a request line': () => text([`${one(METHODS)} ${one(TARGETS)} ${one(VERSIONS)}`, ...given]),
    'a target': () => text([`${method} ${one(TARGETS)} HTTP/1.1`, ...given, ...(body ? [type, length] : [])], json),
    headers: () => {
      const lines = [...given, ...Array.from({ length: 1 + draw(3) }, () => one(HEADERS))]
      const kept = draw(4) === 0 ? lines.filter((each) => !each.startsWith('host')) : lines
      return text([line, ...kept, ...(body === undefined ? [] : [type, length])], json)
    },
    lengths: () => {
      const lengths = Array.from({ length: 1 + draw(2) }, () => `content-length: ${one(LENGTHS)}`)
      return text([`POST ${path} HTTP/1.1`, ...given, type, ...lengths], json.slice(0, draw(json.length + 1)))
    },
    chunks: () => {
      const chunks = Array.from({ length: 1 + draw(4) }, () => one(CHUNKS)).join('')
      return text([`POST ${path} HTTP/1.1`, ...given, type, 'transfer-encoding: chunked'], chunks)
    },
    smuggling: () => {
      const pair = [`content-length: ${one(LENGTHS)}`, `transfer-encoding: ${one(ENCODINGS)}`]
      if (draw(2) === 0) pair.reverse()
      return text([`POST ${path} HTTP/1.1`, ...given, type, ...pair], `0\r\n\r\n${whole.toString('latin1')}`)
    },
    upgrades: () => {
      if (draw(4) === 0) return Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0')
      if (draw(4) === 0) return Buffer.from('16030100c8010000c40303', 'hex')
      return text([line, ...given, one(UPGRADES)], '\x81\x05hello')
    },
    pipelining: () => {
      requests = 2 + draw(40)
      return Buffer.concat(Array.from({ length: requests }, () => whole))
    },
    'bytes that are no text': () => {
      const content = Buffer.from(json === '' ? '{"a":"b"}' : json)
      for (let i = 1 + draw(4); i > 0; i--) content[draw(content.length)] = 128 + draw(128)
      return posted(content)
    },
    depth: () => {
      const [open, close] = one([
        ['[', ']'],
        ['{"a":', '}'],
        ['[{"a":', '}]'],
        ['[', ''],
      ] as const)
      const deep = `${open.repeat(10_000)}1${close.repeat(10_000)}`
      const [name] =
        draw(3) === 0 || body === undefined ? ['x'] : Object.keys(body).slice(draw(Object.keys(body).length))
      return posted(Buffer.from(`${json.slice(0, -1) || '{"y":1'}${json === '{}' ? '' : ','}"${name}":${deep}}`))
    },
    'other JSON': () => {
      const at = draw(json.length + 1)
      return posted(Buffer.from(json.slice(0, at) + one(WORDS) + json.slice(at + draw(8))))
    },
    'other values': () => {
      const names = [
        ...Object.keys(body ?? {}),
        '__proto__',
        'constructor',
        'toString',
        'hasOwnProperty',
        'stream',
        'n',
        'tools',
      ]
      const values = [
        'null',
        '-1',
        '1e308',
        '[]',
        '{}',
        '[[]]',
        '"\\ud800"',
        'true',
        '{"__proto__":{"a":1}}',
        '[null]',
        '"x"',
      ]
      const fields = Object.entries(body ?? {}).map(
        ([name, value]) => `${JSON.stringify(name)}:${JSON.stringify(value)}`,
      )
      return posted(Buffer.from(`{${[...fields, `"${one(names)}":${one(values)}`].join(',')}}`))
    },
    'turned bits': () => {
      const copy = Buffer.from(whole)
      for (let i = 1 + draw(5); i > 0; i--) copy[draw(copy.length)]! ^= 1 << draw(8)
      return copy
    },
    noise: () => Buffer.from(Array.from({ length: 1 + draw(300) }, () => draw(256))),
    'a right one': () => whole,
  }
  const names = Object.keys(kinds)
  const kind = names[draw(names.length)]!
  const bytes = kinds[kind]!()
  const then = (['abort', 'wait'] as const)[draw(10)] ?? 'end'
  const sent = then === 'abort' ? bytes.subarray(0, 1 + draw(bytes.length)) : bytes
  const cut = draw(4) === 0 ? draw(sent.length) : sent.length
  return {
    kind,
    requests,
    pieces: [sent.subarray(0, cut), sent.subarray(cut)].filter((piece) => piece.length > 0),
    then,
  }
}

/** Sends a request, and reads until the first bytes of an answer or the end. Returns the status, or null. */
export async function sendRaw(url: string, { pieces, then }: RawRequest): Promise<number | null> {
  const socket = await connected(url)
  if (socket.destroyed) return null
  const answered = new Promise<Buffer | null>((resolve) => {
    socket.once('data', resolve)
    socket.once('close', () => resolve(null))
  })
  for (const piece of pieces) {
    socket.write(piece)
    if (pieces.length > 1) await sleep(0)
  }
  if (then === 'abort') {
    await sleep(0)
    if (pieces.length > 1) socket.destroy()
    else socket.resetAndDestroy()
    return null
  }
  if (then === 'end') socket.end()
  const first = await Promise.race([answered, sleep(then === 'end' ? 30_000 : 20, null, { ref: false })])
  socket.destroy()
  const status = /^HTTP\/1\.1 (\d+)/.exec(first?.toString('latin1') ?? '')?.[1]
  return status === undefined ? null : Number(status)
}
