/** What pages of other sites, and whoever speaks HTTP wrongly on purpose, try on every server of the package: a table, and what each is answered. */
import { once } from 'node:events'
import type { IncomingMessage, ServerResponse } from 'node:http'
import { join } from 'node:path'
import { Readable } from 'node:stream'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { BodyReader } from '../../../src/base/http/body.ts'
import { callerCheck } from '../../../src/base/http/caller.ts'
import { HttpDocument, type Listening, type ListenOptions, listen, type Route } from '../../../src/base/http/server.ts'
import type { Dashboard, openDashboard as Open } from '../../../src/entries/loggers.ts'
import type { Logger } from '../../../src/telemetry/loggers/logger.ts'
import { prometheus } from '../../../src/telemetry/loggers/prometheus.ts'
import { MAIN, start } from '../../support/command.ts'
import { operate, scriptedGateway } from '../../support/gateway.ts'
import { connected, rawAsk } from '../../support/raw-http.ts'
import { writeRun } from '../../support/run-folders.ts'
import { served } from '../../support/serving.ts'
import { temporaryFolder } from '../../support/temporary.ts'

const { openDashboard } = (await import('../../../dist/src/entries/loggers.js')) as { openDashboard: typeof Open }

/** A server, and a request that acts or computes. */
interface Target {
  readonly url: string
  readonly line: string
  readonly headers?: string
  /** The path of a route that takes a body, and one that it takes. */
  readonly posted?: string
  readonly body?: object
}

const targets = new Map<string, Target>()
const KEY = 'an operator of this test'
let folder: string
let page: Dashboard
let figures: Logger
beforeAll(async () => {
  folder = await temporaryFolder()
  await writeRun(join(folder, 'first'))
  page = await openDashboard({ folder, port: 0 })
  figures = await prometheus({ port: 0 }).open({ name: 'run', metrics: {}, folder: null } as never)
  const { url } = await served({ control: true, maxBodyBytes: 2 ** 20 })
  const { gateway } = await scriptedGateway(() => 'hi', { operatorKey: KEY, maxBodyBytes: 2 ** 20 })
  const { json } = await operate(gateway, '/sessions', {})
  const chat = { model: 'tiny', messages: [{ role: 'user', content: 'hi' }] }
  targets.set('dashboard', { url: page.url, line: 'GET /api/runs' })
  targets.set('figures of a training', { url: new URL(figures.place!).origin, line: 'GET /metrics' })
  targets.set('serve', { url, line: 'POST /resume', posted: '/v1/completions', body: { model: 'small', prompt: 'hi' } })
  targets.set('gateway', {
    ...{ url: gateway.url, line: 'POST /sessions', headers: `authorization: Bearer ${KEY}\r\n` },
    ...{ posted: `/sessions/${json.id}/v1/chat/completions`, body: chat },
  })
})
afterAll(async () => {
  await page.close()
  await figures.close!('complete')
})

const NAMES = ['dashboard', 'figures of a training', 'serve', 'gateway']
const POSTED = ['serve', 'gateway']
const END = 'connection: close\r\n\r\n'

/** What callers say of themselves, `@` for the address of the server, and the status of the answer. */
const CALLERS: readonly [string, number][] = [
  ['Host: @', 200],
  ['Host: localhost', 200],
  ['Host: LOCALHOST:80', 200],
  ['Host: 127.8.9.1:1', 200],
  ['Host: [::1]:6060', 200],
  ['Host: host.docker.internal:8001', 200],
  ['Host: evil.com', 403],
  ['Host: evil.com:80', 403],
  ['Host: EVIL.com.', 403],
  ['Host: localhost.', 403],
  ['Host: localhost.evil.com', 403],
  ['Host: 127.0.0.1.evil.com', 403],
  ['Host: 127.0.0.1.nip.io', 403],
  ['Host: 0.0.0.0', 403],
  ['Host: 192.168.1.5', 403],
  ['Host: 2130706433', 403],
  ['Host: 0x7f.1', 403],
  ['Host: 127.1', 403],
  ['Host: [::ffff:127.0.0.1]', 403],
  ['Host: xn--localhst-q3a', 403],
  ['Host:', 400],
  ['Host: evil.com@127.0.0.1', 400],
  ['Host: 127.0.0.1#evil.com', 400],
  ['Host: 127.0.0.1/evil.com', 400],
  ['Host: 127.0.0.1, evil.com', 400],
  ['Host: localhost:99999999', 400],
  ['Host: localhost:80:80', 400],
  ['Host: l\u00f6calhost', 400],
  ['Host: @\r\nHost: @', 400],
  ['Host: @\r\nHost: evil.com', 400],
  ['X-Forwarded-Host: localhost\r\nHost: evil.com', 403],
  ['Host: @\r\nOrigin: http://@', 200],
  ['Host: @\r\nOrigin: https://@', 200],
  ['Host: @\r\nOrigin: null', 403],
  ['Host: @\r\nOrigin:', 403],
  ['Host: @\r\nOrigin: http://evil.com', 403],
  ['Host: @\r\nOrigin: http://127.0.0.1:1', 403],
  ['Host: @\r\nOrigin: http://127.0.0.1', 403],
  ['Host: @\r\nOrigin: http://@.evil.com', 403],
  ['Host: @\r\nOrigin: http://evil.com@@', 403],
  ['Host: @\r\nOrigin: file://@', 403],
  ['Host: @\r\nOrigin: chrome-extension://abc', 403],
  ['Host: @\r\nOrigin: http://@\r\nOrigin: http://evil.com', 403],
  ['Host: evil.com\r\nOrigin: http://evil.com', 403],
  ['Host: @\r\nSec-Fetch-Site: same-origin', 200],
  ['Host: @\r\nSec-Fetch-Site: none', 200],
  ['Host: @\r\nSec-Fetch-Site: same-site', 403],
  ['Host: @\r\nSec-Fetch-Site: cross-site', 403],
  ['Host: @\r\nSec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: document', 403],
  ['Host: @\r\nSec-Fetch-Site: none\r\nSec-Fetch-Site: cross-site', 403],
  ['Host: @\r\nSec-Fetch-Site:', 403],
]

/** Requests as a whole, without what names the caller and asks to close, and the status; null for none. */
const REQUESTS: readonly [string, string, number | null][] = [
  ['a target that is no URL', 'GET //[ HTTP/1.1', 400],
  ['another host in the target', 'GET http://evil.com/ HTTP/1.1', 400],
  ['its own host in the target', 'GET http://127.0.0.1/ HTTP/1.1', 400],
  ['no path', 'OPTIONS * HTTP/1.1', 400],
  ['a fragment', 'GET /#x HTTP/1.1', 400],
  ['a broken escape', 'GET /%zz HTTP/1.1', 400],
  ['a way out of a folder', 'GET /../../etc/passwd HTTP/1.1', 404],
  ['an escaped way out', 'GET /%2e%2e/%2e%2e/etc/passwd HTTP/1.1', 404],
  ['a way out behind a name', 'GET /main.js/..%2f..%2fpackage.json HTTP/1.1', 404],
  ['a null byte, escaped', 'GET /%00 HTTP/1.1', 404],
  ['a name of every object', 'GET /__proto__ HTTP/1.1', 404],
  ['two slashes', 'GET //api/runs HTTP/1.1', 404],
  ['a tunnel', 'CONNECT 127.0.0.1:22 HTTP/1.1', null],
  ['a method that nobody has', 'BREW / HTTP/1.1', 400],
  ['a version that nobody has', 'GET / HTTP/9.9', 400],
  ['a megabyte of header', `GET / HTTP/1.1\r\nX: ${'a'.repeat(2 ** 20)}`, 431],
  ['a line that is no header', 'GET / HTTP/1.1\r\nno colon', 400],
  ['a null byte in a header', 'GET / HTTP/1.1\r\nX: a\0b', 400],
  ['a negative length', 'GET / HTTP/1.1\r\nContent-Length: -1', 400],
  ['a length beyond all numbers', 'GET / HTTP/1.1\r\nContent-Length: 99999999999999999999', 400],
  ['two lengths', 'GET / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2', 400],
  ['a length beside chunks', 'GET / HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked', 400],
  ['chunks beside a length', 'GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 5', 400],
  ['an expectation that nobody has', 'GET / HTTP/1.1\r\nExpect: x', 417],
]

/** Requests by `LINE` for one that acts. */
const OTHERWISE: readonly [string, string, number][] = [
  ['HTTP/1.0 without a host', 'LINE HTTP/1.0\r\n', 400],
  ['another protocol', 'LINE HTTP/1.1\r\nHost: @\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n', 200],
  ['three thousand fields of a query', `LINE?${'a=1&'.repeat(3000)} HTTP/1.1\r\nHost: @\r\n`, 200],
  ['fields that every object has', 'LINE?__proto__=1&constructor=2 HTTP/1.1\r\nHost: @\r\n', 200],
]

describe.each(NAMES)('%s', (name) => {
  test('answers programs and its own page, and no page of another site', async () => {
    const { url, line, headers = '' } = targets.get(name)!
    const told = await Promise.all(
      CALLERS.map(async ([caller]) => {
        const said = caller.replaceAll('@', new URL(url).host)
        const { statuses } = await rawAsk(url, [`${line} HTTP/1.1\r\n${said}\r\n${headers}${END}`])
        return [caller, statuses[0]]
      }),
    )
    expect(told).toEqual(CALLERS)
  })

  test('answers what is no right request, and goes on', async () => {
    const { url, line, headers = '' } = targets.get(name)!
    const told = await Promise.all(
      REQUESTS.map(async ([what, request]) => {
        const { statuses, isClosed } = await rawAsk(url, [`${request}\r\nHost: localhost\r\n${END}`])
        expect([what, isClosed]).toEqual([what, true])
        return [what, request, statuses[0] ?? null]
      }),
    )
    expect(told).toEqual(REQUESTS)
    const otherwise = OTHERWISE.map(async ([what, request]) => {
      const said = request.replaceAll('@', new URL(url).host).replace('LINE', line)
      return [what, request, (await rawAsk(url, [`${said}${headers}${END}`])).statuses[0]]
    })
    expect(await Promise.all(otherwise)).toEqual(OTHERWISE)
    for (const method of ['HEAD', 'OPTIONS', 'TRACE', 'PUT', 'DELETE', 'PATCH']) {
      const asked = `${line.replace(/^\w+/, method)} HTTP/1.1\r\nHost: localhost\r\n${END}`
      expect([method, (await rawAsk(url, [asked])).statuses]).toEqual([method, [405]])
    }
  })

  test('answers requests of one connection in their order, and not any number of them', async () => {
    const { url, line, headers = '' } = targets.get(name)!
    const request = `${line} HTTP/1.1\r\nHost: localhost\r\n${headers}`
    const three = await rawAsk(url, [`${request}\r\nGET /nowhere HTTP/1.1\r\nHost: localhost\r\n\r\n${request}${END}`])
    expect(three.statuses).toEqual([200, 404, 200])
    const { statuses, isClosed } = await rawAsk(url, [`${request}\r\n`.repeat(1000)])
    expect(isClosed).toBe(true)
    expect(statuses.length).toBeLessThan(17)
    expect((await rawAsk(url, [`${request}${END}`])).statuses).toEqual([200])
  })
})

test('other sites may link to the page of a dashboard, and to nothing else of it', async () => {
  for (const [path, status] of [
    ['/', 200],
    ['/main.js', 403],
    ['/api/changes', 403],
    ['/api/rows?run=first&file=x&sql=select+1', 403],
  ] as const) {
    const link = `GET ${path} HTTP/1.1\r\nHost: localhost\r\nSec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\n${END}`
    expect([path, (await rawAsk(page.url, [link])).statuses]).toEqual([path, [status]])
  }
})

test('a page of another site does not pause a server', async () => {
  const { url } = targets.get('serve')!
  for (const said of [
    'Host: evil.com',
    'Host: localhost\r\nOrigin: http://evil.com',
    'Host: localhost\r\nSec-Fetch-Site: same-site',
  ]) {
    expect((await rawAsk(url, [`POST /pause HTTP/1.1\r\n${said}\r\n${END}`])).statuses).toEqual([403])
  }
  expect(await (await fetch(`${url}/is_paused`)).json()).toEqual({ is_paused: false })
})

describe.each(POSTED)('a body for %s', (name) => {
  const ask = (body: string | Buffer, type = 'application/json', more = '') => {
    const { url, posted } = targets.get(name)!
    const length = Buffer.byteLength(body)
    const head = `POST ${posted} HTTP/1.1\r\nHost: localhost\r\nContent-Type: ${type}\r\nContent-Length: ${length}\r\n${more}${END}`
    return rawAsk(url, [head, typeof body === 'string' ? Buffer.from(body) : body])
  }
  const whole = () => JSON.stringify(targets.get(name)!.body)

  test('is a JSON object in UTF-8, of a type that no form of a page has, and of bounded depth', async () => {
    const right = whole()
    const deep = (open: string, close: string, levels = 10_000) =>
      `{"metadata":${open.repeat(levels)}1${close.repeat(levels)}}`
    const rows: [string, string | Buffer, string, number][] = [
      ['itself', right, 'application/json', 200],
      ['with a charset', right, 'Application/JSON; charset=utf-8', 200],
      ['with a byte order mark', `\ufeff${right}`, 'application/json', 200],
      ['as a form sends it', right, 'text/plain', 415],
      ['of a type that begins alike', right, 'application/jsonp', 415],
      ['of a type that has the word', right, 'text/plain; application/json', 415],
      ['of no type', right, '', 415],
      ['lists in one another', deep('[', ']'), 'application/json', 400],
      ['objects in one another', deep('{"a":', '}'), 'application/json', 400],
      ['that never close', '{"a":'.repeat(100_000), 'application/json', 400],
      [
        'deep within quotation marks',
        JSON.stringify({ ...JSON.parse(right), user: '['.repeat(10_000) }),
        'application/json',
        200,
      ],
      [
        'with brackets in a text behind a quote',
        JSON.stringify({ ...JSON.parse(right), user: `"${'['.repeat(10_000)}` }),
        'application/json',
        200,
      ],
      ['deep behind a backslash', deep('[', ']').replace('{', '{"user":"\\\\",'), 'application/json', 400],
      ['in half a character', Buffer.from(`${right.slice(0, -1)},"user":"\xc3"}`, 'latin1'), 'application/json', 400],
      ['in UTF-16', Buffer.from(right, 'utf16le'), 'application/json', 400],
      ['a list', `[${right}]`, 'application/json', 400],
      ['null', 'null', 'application/json', 400],
      ['a number beyond all', right.replace('{', '{"max_tokens":1e999,'), 'application/json', 400],
      ['a prototype', right.replace('{', '{"__proto__":{"polluted":1},'), 'application/json', 200],
      ['a constructor', right.replace('{', '{"constructor":{"prototype":{"polluted":1}},'), 'application/json', 200],
      ['half a pair', right.replace('"hi"', '"\\ud800"'), 'application/json', 400],
    ]
    const told = await Promise.all(rows.map(async ([what, body, type]) => [what, (await ask(body, type)).statuses[0]]))
    expect(told).toEqual(rows.map(([what, , , status]) => [what, status]))
    expect(({} as Record<string, unknown>).polluted).toBe(undefined)
  })

  test('that is too long is not read, and nothing behind it is taken for a request', async () => {
    const { url, posted } = targets.get(name)!
    const head = `POST ${posted} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n`
    const hidden = 'GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n'
    // Nothing of the first is sent, and of the second as much as the server takes.
    expect((await rawAsk(url, [`${head}Content-Length: ${2 ** 20 + 1}\r\n\r\n`])).statuses).toEqual([413])
    const socket = await connected(url)
    let text = ''
    socket.on('data', (chunk) => {
      text += chunk
    })
    socket.write(`${head}Transfer-Encoding: chunked\r\n\r\n`)
    let sent = 0
    const chunk = Buffer.from(`10000\r\n${hidden.repeat(2000).slice(0, 2 ** 16)}\r\n`)
    while (!socket.destroyed && sent < 2 ** 28) {
      if (!socket.write(chunk))
        await Promise.race([once(socket, 'drain'), once(socket, 'close')]).catch(() => undefined)
      sent += chunk.length
    }
    expect(sent).toBeLessThan(2 ** 25)
    expect(text.match(/^HTTP\/1\.1 \d+/gm)).toEqual(['HTTP/1.1 413'])
    expect((await ask(whole())).statuses).toEqual([200])
  })

  test('is asked for where the client waits for leave', async () => {
    expect((await ask(whole(), 'application/json', 'Expect: 100-continue\r\n')).statuses).toEqual([100, 200])
    expect((await ask(whole(), 'text/plain', 'Expect: 100-continue\r\n')).statuses).toEqual([415])
  })

  test('of which the end does not come keeps nobody from asking', async () => {
    const { url, posted } = targets.get(name)!
    const head = `POST ${posted} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: ${2 ** 20}\r\n\r\n`
    const sockets = await Promise.all(
      Array.from({ length: 40 }, async () => {
        const socket = await connected(url)
        socket.write(head)
        socket.write(Buffer.alloc(2 ** 20 - 1, ' '))
        return socket
      }),
    )
    expect((await ask(whole())).statuses).toEqual([200])
    for (const socket of sockets) socket.destroy()
  })
})

test('a gateway asks for a key before it reads a body, and takes it from headers alone', async () => {
  const { url } = targets.get('gateway')!
  const length = `Host: localhost\r\nContent-Type: application/json\r\nContent-Length: ${2 ** 20}\r\n`
  const rows: [string, string][] = [
    ['POST /sessions', ''],
    ['POST /v1/chat/completions', ''],
    ['POST /v1/messages', 'x-api-key: \r\n'],
    ['POST /sessions', 'Expect: 100-continue\r\n'],
    ['POST /sessions', `Authorization: Basic ${KEY}\r\n`],
    ['POST /sessions', `Authorization: Bearer ${KEY}x\r\n`],
    ['POST /sessions', `Authorization: Bearer ${KEY.slice(1)}\r\n`],
    ['POST /sessions', `Authorization: Bearer x\r\nAuthorization: Bearer ${KEY}\r\n`],
    ['POST /sessions', `x-api-key: ${KEY}\r\nx-api-key: ${KEY}\r\n`],
    ['POST /sessions', `Cookie: key=${KEY}\r\n`],
    [`POST /sessions?key=${encodeURIComponent(KEY)}`, ''],
    [`POST /sessions?api_key=${encodeURIComponent(KEY)}&authorization=${encodeURIComponent(KEY)}`, ''],
    ['POST /v1/chat/completions', `Authorization: Bearer ${KEY}\r\n`],
  ]
  const told = await Promise.all(
    rows.map(async ([line, headers]) => {
      const { statuses } = await rawAsk(url, [`${line} HTTP/1.1\r\n${length}${headers}\r\n`])
      return [line, headers, statuses]
    }),
  )
  expect(told).toEqual(rows.map(([line, headers]) => [line, headers, [401]]))
  const unknown = await rawAsk(url, [`POST /sessions/none/v1/messages HTTP/1.1\r\n${length}\r\n`])
  expect(unknown.statuses).toEqual([404])
})

describe('a server', () => {
  const open: Listening[] = []
  afterAll(async () => {
    for (const server of open) {
      server.closeConnections()
      await server.close()
    }
  })
  const opened = async (route: Route, limits: ListenOptions['limits']): Promise<string> => {
    const server = await listen(new Map([['GET /', route]]), { host: '127.0.0.1', port: 0, maxBodyBytes: 0, limits })
    open.push(server)
    return server.url
  }
  const ASK = `GET / HTTP/1.1\r\nHost: localhost\r\n`

  test('closes connections that ask nothing, or ask too slowly', async () => {
    const url = await opened(() => ({}), { headMs: 200, requestMs: 400 })
    for (const begun of ['', 'GET / HT', `${ASK}X: `]) {
      const { isClosed, statuses } = await rawAsk(url, begun === '' ? [] : [begun], 20_000)
      expect([begun, isClosed, statuses]).toEqual([begun, true, [408]])
    }
  })

  test('takes no more connections than it may', async () => {
    const url = await opened(() => ({}), { connections: 2 })
    const [first, second] = [await connected(url), await connected(url)]
    expect(await rawAsk(url, [`${ASK}${END}`])).toMatchObject({ statuses: [], isClosed: true })
    first!.destroy()
    second!.destroy()
    let statuses: readonly number[] = []
    while (statuses.length === 0) ({ statuses } = await rawAsk(url, [`${ASK}${END}`]))
    expect(statuses).toEqual([200])
  })

  test('makes no further events for a reader that does not read, and lets it go', async () => {
    const event = { text: 'x'.repeat(2 ** 16) }
    let made = 0
    let over = (_: unknown): void => {}
    const ended = new Promise((resolve) => {
      over = resolve
    })
    const route: Route = ({ signal }) => {
      async function* events() {
        while (!signal.aborted && made++ < 4000) yield event
        over(signal.aborted)
      }
      return { events: events() }
    }
    const url = await opened(route, { stallMs: 300 })
    const socket = await connected(url)
    socket.pause()
    socket.write(`${ASK}\r\n`)
    expect(await ended).toBe(true)
    expect(made).toBeLessThan(1000)
  })

  test('lets go who reads nothing of an answer, and the oldest of too many', async () => {
    const document = new HttpDocument('text/plain', Buffer.alloc(2 ** 25))
    let asked = 0
    const route: Route = () => {
      asked++
      return document
    }
    const deaf = async (url: string) => {
      const before = asked
      const socket = await connected(url)
      socket.pause()
      socket.write(`${ASK}${END}`)
      while (asked === before) await new Promise((resolve) => setImmediate(resolve))
      return socket
    }
    await deaf(await opened(route, { stallMs: 200 }))
    await open.at(-1)!.close() // Settles when all connections have ended.
    const url = await opened(route, { unsentBytes: 2 ** 26 })
    const sockets = [await deaf(url), await deaf(url), await deaf(url)]
    const read = await Promise.all(
      sockets.map(async (socket) => {
        let bytes = 0
        for await (const chunk of socket) bytes += (chunk as Buffer).length
        return bytes > 2 ** 25
      }),
    )
    expect(read).toEqual([false, true, true])
  })

  test('tells an error of its own with 500, whatever was thrown, and goes on', async () => {
    const thrown = [null, undefined, 'a text', { toString: null }, new Error('mine')]
    let next = 0
    const url = await opened(() => {
      throw thrown[next++]
    }, {})
    for (const _ of thrown) expect((await rawAsk(url, [`${ASK}${END}`])).statuses).toEqual([500])
    const circular: Record<string, unknown> = {}
    circular.self = circular
    expect((await rawAsk(await opened(() => circular, {}), [`${ASK}${END}`])).statuses).toEqual([500])
  })
})

test('bodies that do not come make room for others, and short ones never wait', async () => {
  const reader = new BodyReader(2 ** 24)
  const request = (chunks: Iterable<Buffer> | AsyncIterable<Buffer>, length: number) =>
    Object.assign(Readable.from(chunks), {
      ...{ method: 'POST', headers: { 'content-type': 'application/json', 'content-length': String(length) } },
    }) as unknown as IncomingMessage
  // What is held of each body that does not come, as long as it is not cut off.
  const bodies: { request: IncomingMessage; bytes: number }[] = []
  let heldMost = 0
  const stuck = () => {
    const body = { request: {} as IncomingMessage, bytes: 0 }
    async function* chunks() {
      for (let i = 0; i < 15; i++) {
        body.bytes += 2 ** 20
        const held = bodies.reduce((sum, { request, bytes }) => sum + (request.destroyed ? 0 : bytes), 0)
        heldMost = Math.max(heldMost, held)
        yield Buffer.alloc(2 ** 20, ' ')
      }
      await new Promise(() => undefined)
    }
    body.request = request(chunks(), 2 ** 24)
    bodies.push(body)
    return body.request
  }
  const answer = {} as ServerResponse
  const waiting = Array.from({ length: 20 }, () => reader.read(stuck(), answer).catch(() => 'cut off'))
  expect(await reader.read(request([Buffer.from('{"a":1}')], 7), answer)).toEqual({ a: 1 })
  const long = Buffer.from(JSON.stringify({ text: 'x'.repeat(2 ** 23) }))
  const parts = [long.subarray(0, 2 ** 22), long.subarray(2 ** 22)]
  expect(Object.keys(await reader.read(request(parts, long.length), answer))).toEqual(['text'])
  expect(await Promise.race(waiting)).toBe('cut off')
  // The room of all bodies, 2 × 16 MiB, and what each stream has read ahead.
  expect(heldMost).toBeLessThan(2 * 2 ** 24 + bodies.length * 3 * 2 ** 20)
})

test('a server of a network answers to addresses, and to names that nobody can register', () => {
  const said = (address: string, host: string) => {
    try {
      callerCheck(address)({ headers: {}, headersDistinct: { host: [host] } } as unknown as IncomingMessage, false)
      return 200
    } catch (error) {
      return (error as { status: number }).status
    }
  }
  const rows: [string, string, number][] = [
    ...[
      '192.168.1.5:80',
      '10.0.0.1',
      '[fe80::1]:80',
      'localhost',
      'gpu',
      'gateway:8001',
      'gpu.local',
      'x.internal',
    ].map((host): [string, string, number] => ['0.0.0.0', host, 200]),
    ...['evil.com', 'gpu.evil.com', 'evil.local.com', 'local.', '1.2.3.4.evil.com', '[::1].evil.com'].map(
      (host): [string, string, number] => ['0.0.0.0', host, host.startsWith('[') ? 400 : 403],
    ),
    ['gpu.lab.edu', 'GPU.lab.edu:6060', 200],
    ['gpu.lab.edu', 'cpu.lab.edu', 403],
    ['::', '[2001:db8::1]', 200],
    ['::1', '[::1]', 200],
    ['::1', '[2001:db8::1]', 403],
    ['127.0.0.1', 'gpu', 403],
  ]
  expect(rows.map(([address, host]) => [address, host, said(address, host)])).toEqual(rows)
})

test('a process that has no file descriptors left goes on when it has', async () => {
  const program = `ulimit -n 40; exec "${process.execPath}" "${MAIN}" dashboard "${folder}" port=0`
  const started = start('bash', ['-c', program])
  const url = await new Promise<string>((resolve) => {
    started.process.stdout!.once('data', (text: string) => resolve(/http:\S+\d/.exec(text)![0]))
  })
  const sockets = await Promise.all(Array.from({ length: 60 }, () => connected(url)))
  for (const socket of sockets) socket.destroy()
  let statuses: readonly number[] = [] // None as long as the process has not closed what was destroyed here.
  while (statuses.length === 0) {
    statuses = (await rawAsk(url, [`GET / HTTP/1.1\r\nHost: localhost\r\n${END}`])).statuses
  }
  expect(statuses).toEqual([200])
  started.process.kill('SIGTERM')
  expect((await started.ended).code).toBe(143)
})
