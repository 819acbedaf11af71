/**
 * How long the page takes in Chromium with 50 runs of 10,000 updates: to open, to move curves, to show a new line. Asked by
 * `npm run bench:page` alone, which prints the figures; nothing is held to a time here.
 */
import { appendFile, writeFile } from 'node:fs/promises'
import { loadavg } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import type { Dashboard, openDashboard as Open } from '../../src/entries/loggers.ts'
import { type Browser, openChromium, type Page, until } from '../support/chromium.ts'
import { skipLoudly } from '../support/command.ts'
import { metricLines, writeRun } from '../support/run-folders.ts'
import { temporaryFolder } from '../support/temporary.ts'

const [RUNS, UPDATES, TIMES] = [50, 10_000, 5]
/** Figures that stand beside the others in a line: about as many as a run has. */
const OTHERS = Object.fromEntries(Array.from({ length: 20 }, (_, i) => [`figure${i}`, Math.sin(i)]))
/** Whether the first chart has anything in a color. */
const HAS_CURVES = `(() => {
  const canvas = document.querySelector('.chart canvas')
  if (!canvas || canvas.width === 0) return false
  const { data } = canvas.getContext('2d').getImageData(60, 0, canvas.width - 60, canvas.height)
  for (let i = 0; i < data.length; i += 4) if (data[i + 3] > 0 && Math.abs(data[i] - data[i + 2]) > 60) return true
  return false
})()`

let why = ''
let folder: string
let browser: Browser | undefined
let open: typeof Open

beforeAll(async () => {
  if (import.meta.env.MODE !== 'page-figures') {
    why = 'how long the page takes (npm run bench:page measures it)'
    return
  }
  const opened = await openChromium()
  if ('why' in opened) {
    why = opened.why
    return
  }
  ;({ browser } = opened)
  folder = await temporaryFolder()
  for (let run = 1; run <= RUNS; run++) {
    const line = (i: number) => ({
      ...{ update: i, steps: 2048 * i, seconds: i / 3, episodeReturn: 500 / (1 + Math.exp((3000 - i) / 900)) + run },
      ...{ ...OTHERS, entropy: 1 / (1 + i / 500) + Math.sin(i * run) / 20, policyLoss: Math.sin(i) / run },
      phaseSeconds: { infer: 0.1, step: 0.1, forward: 0.2, backward: 0.3 },
    })
    const metrics = metricLines(...Array.from({ length: UPDATES }, (_, i) => line(i)))
    await writeRun(join(folder, `run-${run}`), { learningRate: run, metrics })
  }
  ;({ openDashboard: open } = (await import('../../dist/src/entries/loggers.js')) as { openDashboard: typeof Open })
}, 300_000)

afterAll(async () => {
  await browser?.close()
})

/** Milliseconds between frames while something is done, in order. */
async function frames(page: Page, act: () => Promise<void>): Promise<number[]> {
  await page.evaluate(`{
    window.frames_ = []
    window.isRecording_ = true
    let last = performance.now()
    const next = (now) => { window.frames_.push(now - last); last = now; if (window.isRecording_) requestAnimationFrame(next) }
    requestAnimationFrame(next)
  }`)
  await act()
  return page.evaluate<number[]>('(window.isRecording_ = false, window.frames_.slice(1).sort((a, b) => a - b))')
}

const at = (sorted: readonly number[], part: number) =>
  Number(sorted[Math.min(sorted.length - 1, Math.floor(part * sorted.length))]!.toFixed(1))

test('opens, moves and goes on, in so many milliseconds', async (context) => {
  if (why !== '') skipLoudly(context, why)
  const opened: { blank: number; listed: number; curves: number; whole: number }[] = []
  let page: Page | undefined
  let dashboard: Dashboard | undefined
  for (let time = 0; time < TIMES; time++) {
    await page?.close()
    await dashboard?.close()
    page = await browser!.newPage({ viewport: { width: 1280, height: 860 } })
    // What the browser itself takes for a page.
    const before = performance.now()
    await page.goto('data:text/html,<p>a')
    const blank = performance.now() - before
    dashboard = await open({ folder, port: 0, ownThread: true })
    const begun = performance.now()
    await page.goto(dashboard.url)
    await until(page, `document.querySelectorAll('table.runs tbody tr').length === ${RUNS}`)
    const listed = performance.now() - begun
    await until(page, HAS_CURVES)
    const curves = performance.now() - begun
    await until(page, "!document.querySelector('main').innerText.includes('reading:')")
    opened.push({ blank, listed, curves, whole: performance.now() - begun })
  }
  const median = (name: keyof (typeof opened)[number]) =>
    Math.round(opened.map((each) => each[name]).sort((a, b) => a - b)[TIMES >> 1]!)

  const box = await page!.evaluate<{ x: number; y: number; width: number }>(
    "(({ x, y, width }) => ({ x, y, width }))(document.querySelector('.chart canvas').getBoundingClientRect())",
  )
  const [left, right, y] = [box.x + 70, box.x + box.width - 20, box.y + 60]
  const idle = await frames(page!, () => page!.evaluate('new Promise((resolve) => setTimeout(resolve, 1500))'))
  const cursor = await frames(page!, async () => {
    for (let i = 0; i < 60; i++) await page!.mouse.move(left + ((right - left) * i) / 60, y)
  })
  // A fifth of the curves, which then is moved along.
  await page!.mouse.move(left + 60, y)
  await page!.mouse.down()
  await page!.mouse.move(left + 60 + (right - left) / 5, y)
  await page!.mouse.up()
  await page!.keyboard.down('Shift')
  await page!.mouse.move(right, y)
  await page!.mouse.down()
  const picture = () => page!.evaluate<string>("document.querySelector('.chart canvas').toDataURL()")
  const before = await picture()
  const pan = await frames(page!, async () => {
    for (let i = 0; i < 120; i++) await page!.mouse.move(right - ((right - left) * i) / 120, y)
  })
  const isMoved = (await picture()) !== before
  await page!.mouse.up()
  await page!.keyboard.up('Shift')

  const live: number[] = []
  for (let i = 0; i < 2 * TIMES; i++) {
    const begun = performance.now()
    await appendFile(join(folder, 'run-7', 'metrics.jsonl'), metricLines({ update: UPDATES + i, episodeReturn: i }))
    await until(
      page!,
      `[...document.querySelectorAll('table.runs td')].some((cell) => cell.textContent === '${UPDATES + i + 1}')`,
    )
    live.push(performance.now() - begun)
  }
  live.sort((a, b) => a - b)
  await page!.close()
  await dashboard!.close()
  const spread = (sorted: readonly number[]) => ({ median: at(sorted, 0.5), p90: at(sorted, 0.9), most: at(sorted, 1) })
  const figures = {
    ...{
      runs: RUNS,
      updates: UPDATES,
      chromium: browser!.version(),
      load: loadavg().map((each) => Number(each.toFixed(1))),
    },
    openMs: { blank: median('blank'), listed: median('listed'), curves: median('curves'), whole: median('whole') },
    frameMs: { idle: spread(idle), cursor: spread(cursor), pan: spread(pan) },
    liveMs: spread(live),
  }
  console.log(JSON.stringify(figures))
  const out = process.env.PAGE_FIGURES
  if (out !== undefined) await writeFile(out, `${JSON.stringify(figures)}\n`)
  expect(isMoved).toBe(true)
  expect(live).toHaveLength(2 * TIMES)
}, 300_000)
