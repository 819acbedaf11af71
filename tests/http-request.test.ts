/** Requests to engines, services and reward models: how long they last, where they are sent on to, and what a connection that breaks is. */
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { afterAll, expect, test } from 'vitest'
import { requestHttp } from '../src/base/http/http-request.ts'
import { JsonClient } from '../src/base/http/json-client.ts'
import { TinkerClient } from '../src/engines/tinker/tinker-client.ts'
import { createRemoteRewardProcessor } from '../src/language/rewards/remote.ts'

const close: (() => void)[] = []
afterAll(() => {
  for (const each of close) each()
})

async function listening(handle: (request: IncomingMessage, response: ServerResponse) => void): Promise<string> {
  const http = createServer(handle)
  await new Promise<void>((resolve) => http.listen(0, '127.0.0.1', resolve))
  close.push(() => {
    http.closeAllConnections()
    http.close()
  })
  return `http://127.0.0.1:${(http.address() as AddressInfo).port}`
}

const client = (url: string) => new JsonClient(url, { deadline: 600, retries: 0, apiKey: '' })

test('a request lasts as long as its deadline, and not as long as fetch waits for headers', async () => {
  const held: ServerResponse[] = []
  const url = await listening((request, response) => {
    if (request.url === '/held') held.push(response)
    else response.end('{}')
  })
  await fetch(url) // Loads what it stands on.
  // Node 24 has one for each version of the contract of dispatchers.
  const shared = globalThis as unknown as Record<symbol, { constructor: new (options: object) => never }>
  const names = Object.getOwnPropertySymbols(globalThis).filter((each) => /undici\.globalDispatcher/.test(String(each)))
  const before = names.map((name) => shared[name]!)
  for (const [i, name] of names.entries()) shared[name] = new before[i]!.constructor({ headersTimeout: 1 })
  try {
    const asked = client(url).ask('/held', {})
    const judge = createRemoteRewardProcessor({ url: `${url}/held`, timeoutMs: 600_000, retries: 0 })
    const judged = judge([{ prompt: 'p', completion: 'c', example: { prompt: 'p' } }])
    await expect(fetch(`${url}/held`)).rejects.toThrow('fetch failed')
    await expect.poll(() => held.length).toBe(3)
    for (const response of held) response.end('{"rewards": [0.5]}')
    expect(await asked).toEqual({ rewards: [0.5] })
    expect(await judged).toMatchObject([{ value: 0.5 }])
  } finally {
    for (const [i, name] of names.entries()) shared[name] = before[i]!
  }
})

test('half an answer is a connection that broke, and a request that is sent on is refused', async () => {
  const url = await listening((request, response) => {
    if (request.url === '/moved') response.writeHead(302, { location: '/there' }).end()
    else response.writeHead(200, { 'content-length': 20 }).write('{"half": ', () => response.destroy())
  })
  await expect(client(url).ask('/half', {})).rejects.toMatchObject({ status: 0, mayPass: true })
  await expect(client(url).ask('/moved', {})).rejects.toMatchObject({ status: 302, mayPass: false })
})

test('a key is sent to the service alone, wherever it sends on who asks for a file', async () => {
  const keys: [string, unknown][] = []
  const tell = (whose: string, { headers }: IncomingMessage) => keys.push([whose, headers['x-api-key'] ?? null])
  const other = await listening((request, response) => {
    tell('other', request)
    if (request.url === '/a') response.writeHead(307, { location: '/b' }).end()
    else response.end('bytes')
  })
  const own = await listening((request, response) => {
    tell('own', request)
    const location = request.url === '/files/loop' ? '/files/loop' : `${other}/a`
    response.writeHead(302, { location: request.url!.endsWith('/loop/archive') ? '/files/loop' : location }).end()
  })
  process.env.COLONNADE_TEST_KEY = 'secret'
  const tinker = new TinkerClient({
    url: own,
    apiKeyVariable: 'COLONNADE_TEST_KEY',
    codec: 'json',
    deadline: 5,
    retries: 0,
  })
  expect(Buffer.from(await tinker.download('weights/archive')).toString()).toBe('bytes')
  expect(keys.splice(0)).toEqual([
    ['own', 'secret'],
    ['other', null],
    ['other', null],
  ])
  await expect(tinker.download('loop/archive')).rejects.toThrow('status 302')
  expect(keys.length).toBe(6)
  delete process.env.COLONNADE_TEST_KEY
})

test('bodies of all lengths come whole, whether their length is told or not', async () => {
  const bodies = [0, 1, 2 ** 16, 2 ** 16 + 1, 2 ** 20, 2 ** 23, 2 ** 23 + 1].map((length) =>
    Buffer.alloc(
      length,
      Uint8Array.from({ length: 251 }, (_, i) => i),
    ),
  )
  const url = await listening((request, response) => {
    const [, kind, i] = request.url!.split('/')
    const body = bodies[Number(i)]!
    response.writeHead(200, kind === 'told' ? { 'content-length': body.length } : {})
    for (let at = 0; at < body.length; at += 50_000) response.write(body.subarray(at, at + 50_000))
    response.end()
  })
  const { signal } = new AbortController()
  const ask = (url: string, maxBytes: number) => requestHttp(url, { method: 'GET', headers: {}, signal, maxBytes })
  for (const kind of ['told', 'untold']) {
    for (const [i, body] of bodies.entries()) {
      const answer = await ask(`${url}/${kind}/${i}`, 2 ** 24)
      expect([kind, i, answer.body.length, answer.body.equals(body)]).toEqual([kind, i, body.length, true])
    }
    await expect(ask(`${url}/${kind}/4`, 2 ** 20 - 1)).rejects.toThrow('more than 1048575 bytes')
  }
})
