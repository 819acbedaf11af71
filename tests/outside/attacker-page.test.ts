/**
 * What a page of another site does in a real browser to servers of this machine: Chromium that is installed (COLONNADE_CHROMIUM, or
 * chromium on the path). Asked by `npm run test:page` alone; `tests/agents/serving/attacks.test.ts` sends what a browser would.
 */
import { readFile } from 'node:fs/promises'
import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { type Dashboard, openDashboard } from '../../src/entries/loggers.ts'
import { type Browser, openChromium } from '../support/chromium.ts'
import { skipLoudly } from '../support/command.ts'
import { operate, scriptedGateway } from '../support/gateway.ts'
import { writeRun } from '../support/run-folders.ts'
import { served } from '../support/serving.ts'
import { temporaryFolder } from '../support/temporary.ts'

const KEY = 'an operator of this test'
/** A name of the attacker's that leads to this machine (DNS rebinding), and one that browsers hold for this machine. */
const REBOUND = 'rebound.example.com'
const HOSTS = ['127.0.0.1', 'evil.localhost', 'evil.example.com']

/** A server: paths that can be read, one that acts, and what it would have done. */
interface Target {
  readonly url: string
  readonly reads: readonly string[]
  readonly acts: string
  readonly body: string
  acted(): Promise<unknown>
}

let why = ''
let browser: Browser | undefined
let dashboard: Dashboard | undefined
let attacker: Server | undefined
const targets = new Map<string, Target>()

beforeAll(async () => {
  if (import.meta.env.MODE !== 'page') {
    why = 'an attacker’s page in Chromium (npm run test:page asks it)'
    return
  }
  const opened = await openChromium([`--host-resolver-rules=MAP *.example.com 127.0.0.1`])
  if ('why' in opened) {
    why = opened.why
    return
  }
  browser = opened.browser
  const folder = await temporaryFolder()
  await writeRun(join(folder, 'first'))
  dashboard = await openDashboard({ folder, port: 0 })
  const { runs } = (await (await fetch(`${dashboard.url}/api/runs`)).json()) as { runs: unknown[] }
  expect(runs).toHaveLength(1) // A note on it would be taken.
  targets.set('dashboard', {
    ...{ url: dashboard.url, reads: ['/api/runs', '/api/changes', '/main.js', '/'], acts: '/api/notes?run=first' },
    ...{
      body: '{"note":"from elsewhere"}',
      acted: () => readFile(join(folder, 'first', 'notes.json'), 'utf8').catch(() => null),
    },
  })
  const { url } = await served({ control: true })
  targets.set('serve', {
    ...{ url, reads: ['/v1/models', '/is_paused', '/health'], acts: '/pause', body: '{"mode":"abort"}' },
    acted: async () => (await (await fetch(`${url}/is_paused`)).json()).is_paused || null,
  })
  let answered = 0
  const { gateway } = await scriptedGateway(() => `hi ${answered++}`, { operatorKey: KEY })
  const { json } = await operate(gateway, '/sessions', {})
  targets.set('gateway', {
    ...{ url: gateway.url, reads: ['/health', `/sessions/${json.id}`], acts: `/sessions/${json.id}/v1/completions` },
    ...{ body: '{"model":"tiny","prompt":"hi"}', acted: async () => answered || null },
  })
  attacker = createServer((_, response) => response.setHeader('content-type', 'text/html').end('<!doctype html><body>'))
  await new Promise<void>((resolve) => attacker!.listen(0, '127.0.0.1', resolve))
}, 300_000)

afterAll(async () => {
  await browser?.close()
  await dashboard?.close()
  attacker?.close()
})

/** What a page tries: each says what it could read or learn, or null. Waits for events alone, but for what never says anything. */
const TRIES: Readonly<Record<string, string>> = {
  'reads by fetch': `async ({ url, reads }) => {
    const all = await Promise.allSettled(reads.map((path) => fetch(url + path).then((answer) => answer.text())))
    return all.find(({ status }) => status === 'fulfilled')?.value ?? null
  }`,
  'reads with credentials and an own header': `({ url, reads }) =>
    fetch(url + reads[0], { credentials: 'include', headers: { authorization: 'Bearer x', 'x-own': '1' } }).then((answer) => answer.text()).catch(() => null)`,
  'reads by fetch without CORS': `async ({ url, reads }) => (await fetch(url + reads[0], { mode: 'no-cors' }).then((answer) => answer.text()).catch(() => '')) || null`,
  'reads by XMLHttpRequest': `({ url, reads }) => new Promise((resolve) => {
    const request = new XMLHttpRequest()
    request.onloadend = () => resolve(request.responseText || null)
    request.open('GET', url + reads[0])
    request.send()
  })`,
  'asks with JSON': `({ url, acts, body }) =>
    fetch(url + acts, { method: 'POST', headers: { 'content-type': 'application/json' }, body }).then((answer) => answer.text()).catch(() => null)`,
  'asks with text that is JSON, without CORS': `({ url, acts, body }) =>
    fetch(url + acts, { method: 'POST', mode: 'no-cors', headers: { 'content-type': 'text/plain' }, body }).then((answer) => answer.text()).then((text) => text || null).catch(() => null)`,
  'asks without a body, without CORS': `({ url, acts }) =>
    fetch(url + acts, { method: 'POST', mode: 'no-cors' }).then((answer) => answer.text()).then((text) => text || null).catch(() => null)`,
  'asks by a beacon': `({ url, acts, body }) => {
    navigator.sendBeacon(url + acts, body)
    return fetch(url + acts, { method: 'POST', mode: 'no-cors', keepalive: true }).then(() => null, () => null)
  }`,
  'sends a form': `({ url, acts, body }) => new Promise((resolve) => {
    const frame = document.body.appendChild(Object.assign(document.createElement('iframe'), { name: 'sink' }))
    const form = document.body.appendChild(document.createElement('form'))
    Object.assign(form, { method: 'POST', action: url + acts, target: 'sink', enctype: 'text/plain' })
    form.appendChild(Object.assign(document.createElement('input'), { name: body.slice(0, -1) + ',"x":"', value: '"}' }))
    frame.onload = () => { try { resolve(frame.contentDocument?.body.innerText || null) } catch { resolve(null) } }
    form.submit()
  })`,
  'sends an empty form': `({ url, acts }) => new Promise((resolve) => {
    const frame = document.body.appendChild(Object.assign(document.createElement('iframe'), { name: 'empty' }))
    const form = document.body.appendChild(document.createElement('form'))
    Object.assign(form, { method: 'POST', action: url + acts, target: 'empty' })
    frame.onload = () => { try { resolve(frame.contentDocument?.body.innerText || null) } catch { resolve(null) } }
    form.submit()
  })`,
  'loads pictures': `({ url, reads }) => new Promise((resolve) => {
    const picture = new Image()
    picture.onload = () => resolve('a picture')
    picture.onerror = () => resolve(null)
    picture.src = url + reads[0]
  })`,
  'runs what it is answered as a script': `async ({ url, reads }) => {
    for (const path of reads) {
      const ran = await new Promise((resolve) => {
        const script = document.createElement('script')
        script.onload = () => resolve(path)
        script.onerror = () => resolve(null)
        script.src = url + path
        document.head.appendChild(script)
      })
      if (ran !== null) return ran
    }
    return null
  }`,
  'imports it as a module': `({ url, reads }) => import(url + reads.at(-1)).then((module) => Object.keys(module).join() || 'a module', () => null)`,
  'takes it for a style': `({ url, reads }) => new Promise((resolve) => {
    const link = Object.assign(document.createElement('link'), { rel: 'stylesheet', href: url + reads[0] })
    link.onload = () => resolve('a style')
    link.onerror = () => resolve(null)
    document.head.appendChild(link)
  })`,
  'follows its events': `({ url, reads }) => new Promise((resolve) => {
    const source = new EventSource(url + (reads[1] ?? reads[0]))
    source.onopen = source.onmessage = () => resolve('events')
    source.onerror = () => resolve(null)
  })`,
  'opens a WebSocket': `({ url, reads }) => new Promise((resolve) => {
    const socket = new WebSocket(url.replace('http', 'ws') + reads[0])
    socket.onopen = () => resolve('a socket')
    socket.onerror = () => resolve(null)
  })`,
  'shows it in a frame': `({ url, reads }) => Promise.all(reads.map((path) => new Promise((resolve) => {
    const frame = document.body.appendChild(document.createElement('iframe'))
    frame.onload = () => { try { resolve(frame.contentDocument?.body.innerText || null) } catch { resolve(null) } }
    frame.src = url + path
  }))).then((all) => all.find((each) => each !== null) ?? null)`,
  'starts a worker of it': `({ url, reads }) => { try { new Worker(url + reads.at(-1)); return 'a worker' } catch { return null } }`,
}

/** What the attacker's page at a host can do to a target; of each try what came back. */
async function attack(host: string, { url, reads, acts, body }: Target): Promise<Record<string, unknown>> {
  const page = await browser!.newPage()
  await page.goto(`http://${host}:${(attacker!.address() as AddressInfo).port}/`)
  const came: Record<string, unknown> = {}
  const given = JSON.stringify({ url, reads, acts, body })
  for (const [name, source] of Object.entries(TRIES)) came[name] = await page.evaluate(`(${source})(${given})`)
  await page.close()
  return came
}

const NOTHING = Object.fromEntries(Object.keys(TRIES).map((name) => [name, null]))

describe.each(['dashboard', 'serve', 'gateway'])('%s', (name) => {
  test.for(HOSTS)('a page of %s reads nothing, and does nothing', async (host, context) => {
    if (why !== '') skipLoudly(context, why)
    const target = targets.get(name)!
    expect(await attack(host, target)).toEqual(NOTHING)
    expect(await target.acted()).toBe(null)
  })

  test('a name of the attacker’s that leads here reads nothing, and does nothing', async (context) => {
    if (why !== '') skipLoudly(context, why)
    const target = targets.get(name)!
    const { port } = new URL(target.url)
    const url = `http://${REBOUND}:${port}`
    const page = await browser!.newPage()
    // Its own page would have come from there before the name was turned: any answer of that origin will do.
    await page.goto(`${url}/nothing-here`)
    for (const path of target.reads) {
      const status = await page.evaluate(`fetch(${JSON.stringify(path)}).then((answer) => answer.status)`)
      expect([path, status]).toEqual([path, 403])
    }
    const sent = JSON.stringify({
      ...{ method: 'POST', headers: { 'content-type': 'application/json' }, body: target.body },
    })
    const status = await page.evaluate(`fetch(${JSON.stringify(target.acts)}, ${sent}).then((answer) => answer.status)`)
    expect([403, 405]).toContain(status)
    expect(await target.acted()).toBe(null)
    await page.close()
  })
})
