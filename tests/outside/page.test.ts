/**
 * The page in a real browser: Chromium that is installed (COLONNADE_CHROMIUM, or chromium on the path), driven by playwright-core.
 * Asked by `npm run test:page` alone.
 */
import { appendFile, mkdir, readFile, writeFile } from 'node:fs/promises'
import { createRequire } from 'node:module'
import { join } from 'node:path'
import { tableFromArrays, tableToIPC } from 'apache-arrow'
import { afterAll, beforeAll, expect, test } from 'vitest'
import type { Dashboard, openDashboard as Open } from '../../src/entries/loggers.ts'
import { cached, installPackages } from '../support/cache.ts'
import { skipLoudly } from '../support/command.ts'
import { attempt } from '../support/python.ts'
import { metricLines, writeRun } from '../support/run-folders.ts'
import { temporaryFolder } from '../support/temporary.ts'

const PACKAGES = ['playwright-core@1.65.1', 'axe-core@4.14.1']
const HOSTILE = '<img src=x onerror=alert(1)>'

/** What the test uses of playwright-core's page. */
interface Page {
  on(event: string, listener: (what: { url(): string; message(): string; dismiss(): Promise<void> }) => void): void
  goto(url: string): Promise<unknown>
  evaluate<T>(script: string): Promise<T>
  keyboard: { press(key: string): Promise<void> }
  focus(selector: string): Promise<void>
  screenshot(options: { path: string; fullPage: boolean }): Promise<unknown>
}

/** Waits until this is so, a frame at a time: the page's policy forbids what playwright has for it. */
async function until(page: Page, script: string): Promise<void> {
  while (!(await page.evaluate(script))) await page.evaluate('new Promise(requestAnimationFrame)')
}

let why = ''
let folder: string
let dashboard: Dashboard | undefined
let browser: { newPage(): Promise<Page>; close(): Promise<void> } | undefined
let axe = ''

beforeAll(async () => {
  if (import.meta.env.MODE !== 'page') {
    why = 'the page in Chromium (npm run test:page asks it)'
    return
  }
  const executablePath = process.env.COLONNADE_CHROMIUM ?? (await attempt('which', ['chromium'])).stdout.trim()
  if (executablePath === '') {
    why = 'the page in Chromium (there is none; COLONNADE_CHROMIUM names one)'
    return
  }
  const made = await cached(PACKAGES.join('-'), (path, run) => installPackages(path, run, PACKAGES))
  if ('why' in made) {
    why = made.why
    return
  }
  const require = createRequire(join(made.folder, 'package.json'))
  axe = require.resolve('axe-core/axe.min.js')
  folder = await temporaryFolder()
  for (const seed of [1, 2]) {
    const lines = Array.from({ length: 50 }, (_, i) => ({ update: i, episodeReturn: seed * i, entropy: 1 / (i + 1) }))
    await writeRun(join(folder, `run-${seed}`), { seed, metrics: metricLines(...lines), status: 'complete' })
  }
  await writeRun(join(folder, HOSTILE), { learningRate: 9, metrics: metricLines({ [HOSTILE]: 1, episodeReturn: 3 }) })
  await mkdir(join(folder, HOSTILE, 'rollouts'))
  const rows = { reward: Float64Array.from({ length: 120 }, (_, i) => i / 4), answer: Array(120).fill(HOSTILE) }
  await writeFile(join(folder, HOSTILE, 'rollouts/9.arrow'), tableToIPC(tableFromArrays(rows), 'file'))
  const { openDashboard } = (await import('../../dist/src/entries/loggers.js')) as { openDashboard: typeof Open }
  dashboard = await openDashboard({ folder, port: 0 })
  browser = await require('playwright-core').chromium.launch({ executablePath, args: ['--no-sandbox'] })
}, 300_000)

afterAll(async () => {
  await browser?.close()
  await dashboard?.close()
})

test('shows runs as text, asks nobody else, goes on with them, can be used by keyboard, and axe finds no fault', async (context) => {
  if (why !== '') skipLoudly(context, why)
  const page = await browser!.newPage()
  const asked = new Set<string>()
  const wrong: string[] = []
  page.on('request', (request) => asked.add(new URL(request.url()).origin))
  page.on('pageerror', (error) => wrong.push(String(error)))
  page.on('dialog', (dialog) => {
    wrong.push(`a script ran: ${dialog.message()}`)
    void dialog.dismiss()
  })
  await page.goto(dashboard!.url)
  await until(page, "document.querySelectorAll('.chart').length >= 3")
  const words = await page.evaluate<string>('document.body.innerText')
  expect(words).toContain(HOSTILE)
  expect(await page.evaluate("document.querySelectorAll('img').length")).toBe(0)
  expect(words).toContain('ppo.learningRate')
  expect(words).toContain('50 updates, at 98')

  await appendFile(join(folder, 'run-2', 'metrics.jsonl'), metricLines({ update: 50, episodeReturn: 777 }))
  await until(page, "document.body.innerText.includes('51 updates, at 777')")

  await page.focus('.chart canvas')
  await page.keyboard.press('End')
  await until(page, "/^50: run-1 and 1 more seeds /.test(document.querySelector('.chart p').textContent)")

  await page.evaluate("document.querySelector('#files summary').click()")
  await until(page, "document.querySelector('#files').innerText.includes('1 to 50 of 120 rows')")
  expect(await page.evaluate("document.querySelector('#files table').innerText")).toContain(HOSTILE)
  await page.evaluate("[...document.querySelectorAll('#files button')].at(-1).click()")
  await until(page, "document.querySelector('#files').innerText.includes('51 to 100 of 120 rows')")
  await page.focus('#files input')
  for (const key of 'reward > 29') await page.keyboard.press(key === ' ' ? 'Space' : key)
  await page.keyboard.press('Enter')
  await until(page, "document.querySelector('#files').innerText.includes('1 to 3 of 3 of 120 rows')")
  if (process.env.PAGE_SHOT) await page.screenshot({ path: process.env.PAGE_SHOT, fullPage: true })

  await page.evaluate(await readFile(axe, 'utf8'))
  const faults = await page.evaluate(
    'axe.run().then(({ violations }) => violations.map(({ id, impact }) => [id, impact]))',
  )
  expect(faults).toEqual([])
  expect([...asked]).toEqual([dashboard!.url])
  expect(wrong).toEqual([])
}, 120_000)
