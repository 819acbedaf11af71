/**
 * Wrong bytes for every server of the package, each in a process of its own, also those that a training opens. Briefly here; `npm run
 * fuzz:servers` sends 20,000 requests to each, holds many connections open at once, and prints a table.
 */
import { execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import type { Socket } from 'node:net'
import { loadavg } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { MAIN, type Started, start } from '../../support/command.ts'
import { writeQwen3 } from '../../support/qwen3-folder.ts'
import { connected, drawer, type RightRequest, rawAsk, rawRequest, sendRaw } from '../../support/raw-http.ts'
import { metricLines, writeConversations, writeRun } from '../../support/run-folders.ts'
import { temporaryFolder } from '../../support/temporary.ts'

const isLong = import.meta.env.MODE === 'fuzz-servers'
const COUNT = isLong ? Number(process.env.COUNT ?? 20_000) : 300
const SEED = Number(process.env.SEED ?? 1)
const AT_ONCE = 24
const KEY = 'an operator of this test'

/** A server, and how a client asks it rightly. */
interface Fuzzed {
  readonly started: Started
  readonly url: string
  readonly right: readonly RightRequest[]
  /** A long body for it, to be sent without a key. */
  readonly posted?: string
}

const MEMORY = ['--expose-gc', '--import', new URL('../../support/memory-on-signal.mjs', import.meta.url).href]
const json = { authorization: `Bearer ${KEY}` }
const PAGE: readonly RightRequest[] = [
  ...[
    ...['/', '/main.js', '/api/runs', '/api/curves?run=first&metric=loss&over=steps', '/api/files?run=first'],
    ...['/api/rows?run=first&file=trajectories%2F1.arrow&where=reward+%3E+0', '/api/changes', '/api/replay?run=first'],
    ...['/api/conversations?run=first&file=trajectories%2F1.arrow', '/api/moments?run=first&over=steps'],
    '/api/histograms?run=first&file=trajectories%2F1.arrow',
  ].map((path) => ({ method: 'GET', path }) as const),
  {
    ...{ method: 'POST', path: '/api/notes?run=first', body: { note: 'late', tags: ['a', 'b'] } },
    headers: { origin: 'http://127.0.0.1' },
  },
]

/** A training that goes on until it is killed, and leaves most of the machine to those who ask. */
const ENDLESS = [
  'totalSteps=1000000000000',
  'numLanes=1',
  'threads=1',
  'mlp.hidden=8',
  'ppo.numMinibatches=1',
  '--quiet',
]

const servers = new Map<string, Fuzzed>()
const processes: Started[] = []
const words = new Map<Started, string>()

async function opened(program: readonly string[], pattern: RegExp, environment = {}): Promise<[Started, string[]]> {
  const started = start(process.execPath, [...MEMORY, ...program], {
    env: { ...process.env, ...environment },
    timeout: 0,
  })
  processes.push(started)
  words.set(started, '')
  const found = new Promise<string[]>((resolve, reject) => {
    const look = (chunk: string) => {
      words.set(started, words.get(started)! + chunk)
      const match = pattern.exec(words.get(started)!)
      if (match !== null) resolve(match.slice(1))
    }
    started.process.stdout!.on('data', look)
    started.process.stderr!.on('data', look)
    started.process.once('exit', () => reject(new Error(words.get(started))))
  })
  return [started, await found]
}

beforeAll(async () => {
  const folder = await temporaryFolder()
  await writeQwen3(join(folder, 'tiny'), { context: 400 })
  const metrics = metricLines(...Array.from({ length: 200 }, (_, i) => ({ steps: 10 * i, loss: i })))
  await writeRun(join(folder, 'runs/first'), { metrics, status: 'complete' })
  await writeConversations(join(folder, 'runs/first/trajectories/1.arrow'), ['a', 'b'])
  const URL_AT = /(http:\/\/127\.0\.0\.1:\d+)/
  const runs = join(folder, 'runs')
  const training = fileURLToPath(new URL('../../support/training-servers.mjs', import.meta.url))
  const [page, serve, gateway, trained, command] = await Promise.all([
    opened([MAIN, 'dashboard', runs, 'port=0'], URL_AT),
    opened([MAIN, 'serve', join(folder, 'tiny'), 'port=0', 'control=true'], URL_AT),
    opened([MAIN, 'gateway', join(folder, 'tiny'), 'port=0', `out=${join(folder, 'sessions')}`], URL_AT, {
      COLONNADE_GATEWAY_KEY: KEY,
    }),
    opened([training, runs], /page (.*)\nfigures (.*)\n/),
    opened([MAIN, 'train', 'CartPole-v1', 'dashboard=true', `out=${join(runs, 'trained')}`, ...ENDLESS], URL_AT),
  ])
  const asked = { model: 'tiny', prompt: 'hi', max_tokens: 2 }
  const chat = { model: 'tiny', messages: [{ role: 'user', content: 'hi' }], max_tokens: 2 }
  servers.set('dashboard', { started: page[0], url: page[1][0]!, right: PAGE })
  servers.set('serve', {
    ...{ started: serve[0], url: serve[1][0]!, posted: '/v1/completions' },
    right: [
      { method: 'GET', path: '/health' },
      { method: 'GET', path: '/v1/models' },
      { method: 'POST', path: '/v1/completions', body: asked },
      { method: 'POST', path: '/v1/chat/completions', body: { ...chat, stream: true } },
      { method: 'POST', path: '/abort_requests', body: { request_ids: ['a'] } },
      {
        method: 'POST',
        path: '/pull_weights',
        body: { local_checkpoint_dir: 'a', source_dir: '/nowhere', target_version: 1 },
      },
      { method: 'POST', path: '/v1/load_lora_adapter', body: { lora_name: 'a', lora_path: '/nowhere' } },
    ],
  })
  const url = gateway[1][0]!
  const made = await fetch(`${url}/sessions`, { method: 'POST', headers: json })
  const { id, key } = (await made.json()) as { id: string; key: string }
  const headers = { authorization: `Bearer ${key}` }
  servers.set('gateway', {
    ...{ started: gateway[0], url, posted: '/v1/chat/completions' },
    right: [
      { method: 'GET', path: '/health' },
      { method: 'POST', path: '/v1/chat/completions', body: chat, headers },
      { method: 'POST', path: '/v1/messages', body: chat, headers },
      { method: 'POST', path: '/v1/messages/count_tokens', body: chat, headers },
      { method: 'POST', path: `/sessions/${id}/v1/completions`, body: asked },
      { method: 'POST', path: '/v1/responses', body: { model: 'tiny', input: 'hi', max_output_tokens: 2 }, headers },
      { method: 'POST', path: '/v1/completions', body: asked },
      { method: 'GET', path: `/sessions/${id}`, headers: json },
    ],
  })
  servers.set('a page in a training', { started: trained[0], url: trained[1][0]!, right: PAGE })
  servers.set('train dashboard=true', { started: command[0], url: command[1][0]!, right: PAGE })
  servers.set('figures of a training', {
    ...{ started: trained[0], url: trained[1][1]!, right: [{ method: 'GET', path: '/metrics' }] },
  })
}, 120_000)
afterAll(async () => {
  for (const { process } of processes) process.kill('SIGKILL')
  await Promise.all(processes.map(({ ended }) => ended))
})

interface Memory {
  readonly rss: number
  readonly heapUsed: number
  readonly arrayBuffers: number
}

/** Bytes that a process holds after garbage is collected. */
async function memoryOf({ process }: Started): Promise<Memory> {
  const told = new Promise<Memory>((resolve) => {
    const look = (chunk: string) => {
      const found = /memory (\{.*\})\n/.exec(chunk)
      if (found === null) return
      process.stderr!.off('data', look)
      resolve(JSON.parse(found[1]!))
    }
    process.stderr!.on('data', look)
  })
  process.kill('SIGUSR2')
  return told
}

/** The first right request of a server is answered with 200, and its process lives. */
async function answersRightly({ started, url, right }: Fuzzed): Promise<void> {
  expect(started.process.exitCode).toBe(null)
  expect(started.process.signalCode).toBe(null)
  const { statuses } = await rawAsk(url, [
    `GET ${right[0]!.path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n`,
  ])
  expect(statuses).toEqual([200])
}

/** Sends on `count` connections from a number on, some at once; how often each status came first, and how many requests were sent. */
async function fuzz({ url, right }: Fuzzed, from: number, count: number) {
  const statuses: Record<string, number> = {}
  let requests = 0
  let next = from
  const client = async () => {
    while (next < from + count) {
      const number = next++
      const request = rawRequest(drawer(SEED * 1_000_003 + number), right)
      const status = await sendRaw(url, request)
      requests += request.requests
      statuses[status ?? 'none'] = (statuses[status ?? 'none'] ?? 0) + 1
      if (status === 500) throw new Error(`status 500: request ${number}, ${request.kind}\n${request.pieces.join('')}`)
    }
  }
  await Promise.all(Array.from({ length: AT_ONCE }, client))
  return { statuses, requests }
}

const MIB = 2 ** 20
const NAMES = ['dashboard', 'serve', 'gateway', 'a page in a training', 'train dashboard=true', 'figures of a training']

/** What is printed at the end: a row of each server, or of what was asked of it. */
const rows: string[] = []

type Size = Pick<Memory, 'rss'> & Partial<Memory>
const mib = (bytes: number | undefined) => (bytes === undefined ? '–' : Math.round(bytes / MIB))

function note(name: string, requests: number, connections: number, before: Size, after: Size, seconds: number): void {
  const sizes = [before.rss, after.rss, before.heapUsed, after.heapUsed].map(mib)
  rows.push(`| ${[name, requests, connections, 'yes', ...sizes, Math.round(seconds)].join(' | ')} |`)
}

afterAll(() => {
  if (rows.length === 0) return
  const head = 'server, requests, connections, alive, RSS before (MiB), RSS after, heap before, heap after, seconds'
  const line = head.split(', ')
  console.log(
    [line, line.map(() => '---')]
      .map((cells) => `| ${cells.join(' | ')} |`)
      .concat(rows)
      .join('\n'),
  )
  console.log(`seed ${SEED}, load ${loadavg().map((load) => load.toFixed(1))}`)
})

describe.each(NAMES)('%s', (name) => {
  test(`outlives ${COUNT} wrong requests, and answers a right one`, async () => {
    const server = servers.get(name)!
    await answersRightly(server)
    if (isLong) await fuzz(server, 1_000_000, 3000) // Compiles what is asked, and grows the heap to its size.
    const before = isLong ? await memoryOf(server.started) : null
    const begun = performance.now()
    const { statuses, requests } = await fuzz(server, 0, COUNT)
    const seconds = (performance.now() - begun) / 1000
    await answersRightly(server)
    expect(Object.keys(statuses).length).toBeGreaterThan(2)
    expect(words.get(server.started)).not.toMatch(/colonnade: .*\n +at /)
    if (before === null) return
    const after = await memoryOf(server.started)
    console.log(
      JSON.stringify({ name, requests, connections: COUNT, seconds: Math.round(seconds), statuses, before, after }),
    )
    note(name, requests, COUNT, before, after, seconds)
    expect(after.heapUsed - before.heapUsed).toBeLessThan(8 * MIB)
    expect(after.rss - before.rss).toBeLessThan(64 * MIB)
  }, 1_200_000)

  test.runIf(isLong)(
    'answers beside many connections that only wait, and is as large afterwards',
    async () => {
      const server = servers.get(name)!
      const before = await memoryOf(server.started)
      const begun = performance.now()
      const sockets: Socket[] = await Promise.all(Array.from({ length: 550 }, () => connected(server.url)))
      const slow = sockets.slice(500)
      const drip = setInterval(() => {
        for (const socket of slow) if (socket.writable) socket.write('G')
      }, 100)
      await answersRightly(server)
      const mouthful = Buffer.alloc(MIB, ' ')
      const path = server.posted ?? '/'
      const head = `POST ${path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: ${4 * MIB}\r\n\r\n`
      const unfinished = await Promise.all(
        Array.from({ length: 500 }, async () => {
          const socket = await connected(server.url)
          socket.on('data', () => undefined)
          socket.write(head)
          for (let i = 0; i < 3; i++) socket.write(mouthful)
          return socket
        }),
      )
      await sleep(500)
      await answersRightly(server)
      const during = await memoryOf(server.started)
      // Readers that never read: streams where there are any, and else answers.
      const asking = server.right.some((each) => each.path === '/api/changes') ? '/api/changes' : server.right[0]!.path
      const deaf = await Promise.all(
        Array.from({ length: 100 }, async () => {
          const socket = await connected(server.url)
          socket.pause()
          socket.write(`GET ${asking} HTTP/1.1\r\nhost: localhost\r\n\r\n`.repeat(8))
          return socket
        }),
      )
      // Those that only wait are cut off by the server, without anybody's help.
      await Promise.all(sockets.map((socket) => (socket.destroyed ? undefined : once(socket.resume(), 'close'))))
      clearInterval(drip)
      const cutAfter = Math.round((performance.now() - begun) / 1000)
      await answersRightly(server)
      for (const socket of [...unfinished, ...deaf]) socket.destroy()
      let after = await memoryOf(server.started)
      const isFlat = () =>
        after.heapUsed - before.heapUsed < 8 * MIB && after.arrayBuffers - before.arrayBuffers < 8 * MIB
      for (let i = 0; i < 90 && !isFlat(); i++) {
        await sleep(1000) // It learns that clients have gone when it next reads, or when the time of their requests is over.
        after = await memoryOf(server.started)
      }
      await answersRightly(server)
      console.log(JSON.stringify({ name, cutAfter, before, during, after }))
      const seconds = (performance.now() - begun) / 1000
      note(`${name}: 550 that wait, 500 unfinished bodies, 100 that read nothing`, 1300, 1150, before, after, seconds)
      note('… while they are held', 500, 1050, before, during, cutAfter)
      expect(during.rss - before.rss).toBeLessThan(256 * MIB)
      expect(isFlat()).toBe(true)
    },
    1_200_000,
  )
})

/** A line for `serve-env`, which has no socket: its client is the program that started it, at the other end of two pipes. */
function wrongLine(draw: (count: number) => number): Buffer {
  const words = [
    'step',
    'reset',
    'reset 3',
    'reset -1',
    'reset 1e9',
    'reset 99999999999999999999',
    'reset  1',
    'stop',
    '',
  ]
  const line = Buffer.from(words[draw(words.length)]!)
  const kind = draw(8)
  if (kind < 3) return line
  if (kind === 3) return Buffer.concat([line, Buffer.from(['\0', '\r', ' ', '\u2028', '}'][draw(5)]!)])
  if (kind === 4) return Buffer.alloc(1 + draw(100_000), 'step ')
  const bytes = Buffer.from(kind === 5 ? line : Array.from({ length: 1 + draw(60) }, () => draw(256)))
  if (bytes.length > 0) bytes[draw(bytes.length)]! ^= 1 << draw(8)
  return Buffer.from(bytes.filter((byte) => byte !== 10)) // One line is one request.
}

test(`serve-env answers each of ${COUNT} wrong lines with one, and a right one afterwards`, async () => {
  const server = spawn(process.execPath, [MAIN, 'serve-env', 'CartPole-v1', 'numLanes=3'])
  // It only ever waits for lines, so no signal tells what it holds.
  const rss = () => 1024 * Number(execFileSync('ps', ['-o', 'rss=', '-p', `${server.pid}`], { encoding: 'utf8' }))
  const lines = createInterface({ input: server.stdout })[Symbol.asyncIterator]()
  const next = async () => (await lines.next()).value as string
  expect(JSON.parse(await next())).toMatchObject({ environment: 'CartPole-v1' })
  const ask = async (from: number, count: number) => {
    const answers = { ok: 0, error: 0 }
    for (let i = from; i < from + count; i++) {
      server.stdin.write(Buffer.concat([wrongLine(drawer(SEED * 1_000_003 + i)), Buffer.from('\n')]))
      const [word] = (await next()).split(' ') as ['ok' | 'error']
      answers[word]++
    }
    return answers
  }
  try {
    if (isLong) await ask(1_000_000, 3000)
    const before = rss()
    const begun = performance.now()
    const { ok, error } = await ask(0, COUNT)
    const seconds = (performance.now() - begun) / 1000
    expect(ok).toBeGreaterThan(COUNT / 10)
    expect(ok + error).toBe(COUNT)
    server.stdin.write('reset 3\n')
    expect(await next()).toBe('ok')
    if (!isLong) return
    const after = rss()
    note('serve-env', COUNT, 1, { rss: before }, { rss: after }, seconds)
    expect(after - before).toBeLessThan(64 * MIB)
  } finally {
    server.kill('SIGKILL')
  }
}, 1_200_000)
