/**
 * How late frames of the playground come while it trains, and how much memory its page has over MINUTES (default 10) of training;
 * with MINUTES=0 frames alone.
 * Asked by `npm run bench:playground` alone, which prints the figures; nothing is held to a time here.
 */
import { readFileSync } from 'node:fs'
import { loadavg } from 'node:os'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { type Browser, openChromium, type Page } from '../support/chromium.ts'
import { countFrom, skipLoudly } from '../support/command.ts'
import type { Served } from '../support/isolated.ts'
import { servePlayground } from '../support/playground.ts'
import { startedHere } from '../support/processes.ts'

const MINUTES = countFrom('MINUTES', 10, 0)
const SECONDS = 10

let why = ''
let browser: Browser | undefined
let served: Served | undefined

beforeAll(async () => {
  if (import.meta.env.MODE !== 'playground-figures') {
    why = 'frame times and memory of the playground (npm run bench:playground measures them)'
    return
  }
  const opened = await openChromium()
  if ('why' in opened) {
    why = opened.why
    return
  }
  ;({ browser } = opened)
  served = await servePlayground()
}, 300_000)

afterAll(async () => {
  await browser?.close()
  served?.close()
})

/** Milliseconds between frames of the page. */
const FRAMES = `new Promise((resolve) => {
  const all = []
  const end = performance.now() + ${1000 * SECONDS}
  let last = null
  const next = (now) => {
    if (last !== null) all.push(now - last)
    last = now
    if (performance.now() < end) return requestAnimationFrame(next)
    all.sort((a, b) => a - b)
    const at = (part) => Number(all[Math.min(all.length - 1, Math.floor(part * all.length))].toFixed(1))
    resolve({ frames: all.length, median: at(0.5), p95: at(0.95), most: at(1) })
  }
  requestAnimationFrame(next)
})`
const STEPS = "Number(document.querySelector('#steps').textContent.replaceAll(',', ''))"
const load = () => loadavg()[0]!.toFixed(1)

async function open(environment: string): Promise<Page> {
  const page = await browser!.newPage({ viewport: { width: 1440, height: 900 } })
  await page.goto(`${served!.address}#environment=${environment}`)
  const until = async (script: string) => {
    while (!(await page.evaluate(script))) await new Promise((resolve) => setTimeout(resolve, 100))
  }
  await until("document.querySelector('#did').textContent !== ''")
  const still = await page.evaluate<object>(FRAMES)
  await page.evaluate("document.querySelector('#toggle').click()")
  await until(`${STEPS} > 0`)
  console.log(JSON.stringify({ environment, still, load: load() }))
  return page
}

test('frames while it trains', async (context) => {
  if (why !== '') skipLoudly(context, why)
  for (const environment of ['CartPole-v1', 'Pendulum-v1', 'Breakout-MinAtar']) {
    const page = await open(environment)
    const training = await page.evaluate<{ frames: number }>(FRAMES)
    const caption = await page.evaluate<string>("document.querySelector('#caption').textContent")
    console.log(JSON.stringify({ environment, training, lanes: caption.split('.')[0], load: load() }))
    expect(training.frames).toBeGreaterThan(0)
    await page.close()
  }
}, 600_000)

/** Mebibytes in memory of the process that has the page's script and workers: the browser's renderer with the most. */
function resident(): number {
  const sizes = startedHere((command) => command.includes('--type=renderer')).map((id) =>
    Number(/^VmRSS:\s+(\d+)/m.exec(readFileSync(`/proc/${id}/status`, 'utf8'))?.[1] ?? 0),
  )
  return Math.round(Math.max(...sizes) / 1024)
}

test(
  'memory while it trains',
  async (context) => {
    if (why !== '') skipLoudly(context, why)
    if (MINUTES === 0) skipLoudly(context, 'memory of the playground (MINUTES=0 leaves it no time to train)')
    const page = await open('CartPole-v1')
    const seen: { minute: number; steps: number; heapMB: number; residentMiB: number }[] = []
    for (let minute = 0; minute <= MINUTES; minute++) {
      // Of the page and its workers, after a garbage collection.
      const bytes = await page.evaluate<number>(
        'performance.measureUserAgentSpecificMemory().then(({ bytes }) => bytes)',
      )
      const steps = await page.evaluate<number>(STEPS)
      seen.push({ minute, steps, heapMB: Number((bytes / 1e6).toFixed(1)), residentMiB: resident() })
      console.log(JSON.stringify(seen.at(-1)))
      if (minute < MINUTES) await page.evaluate('new Promise((resolve) => setTimeout(resolve, 60_000))')
    }
    console.log(JSON.stringify({ chromium: browser!.version(), load: load(), seen }))
    expect(seen.at(-1)!.steps).toBeGreaterThan(seen[0]!.steps)
  },
  (MINUTES + 5) * 60_000,
)
