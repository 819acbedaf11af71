/**
 * The playground in Chromium: it learns by the keyboard alone, shows it, goes on with another learning rate, gives what was learned as
 * files, and axe finds no fault. Asked by `npm run test:page` alone.
 */
import { execFileSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { basename, extname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { tableFromIPC } from 'apache-arrow'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { type Browser, openChromium, type Page, until } from '../support/chromium.ts'
import { skipLoudly } from '../support/command.ts'

const root = fileURLToPath(new URL('../..', import.meta.url))
const built = join(root, 'dist/playground')
const TYPES: Readonly<Record<string, string>> = { '.html': 'text/html', '.js': 'text/javascript', '.css': 'text/css' }

let why = ''
let browser: Browser | undefined
let axe = ''
let server: Server | undefined

beforeAll(async () => {
  if (import.meta.env.MODE !== 'page') {
    why = 'the playground in Chromium (npm run test:page asks it)'
    return
  }
  const opened = await openChromium()
  if ('why' in opened) {
    why = opened.why
    return
  }
  ;({ browser, axe } = opened)
  execFileSync(process.execPath, ['scripts/playground.mjs', '--build'], { cwd: root })
  server = createServer(({ url }, answer) => {
    const name = basename(new URL(url!, 'http://page').pathname) || 'index.html'
    answer.setHeader('content-type', TYPES[extname(name)]!)
    answer.end(readFileSync(join(built, name)))
  })
  await new Promise<void>((resolve) => server!.listen(0, '127.0.0.1', resolve))
}, 300_000)

afterAll(async () => {
  await browser?.close()
  server?.close()
})

async function open(width: number, height: number): Promise<{ page: Page; wrong: string[] }> {
  const page = await browser!.newPage({ viewport: { width, height } })
  const wrong: string[] = []
  page.on('pageerror', (error) => wrong.push(String(error)))
  // Downloads stay in the page.
  await page.goto(`http://127.0.0.1:${(server!.address() as AddressInfo).port}/`)
  await until(page, "document.querySelector('#caption').textContent !== ''")
  return { page, wrong }
}

/** Whether the canvas has another picture than a moment ago. */
const MOVES = `(async () => {
  const canvas = document.querySelector('#lanes')
  const before = canvas.toDataURL()
  await new Promise((resolve) => setTimeout(resolve, 1500))
  return canvas.toDataURL() !== before
})()`
const steps = "Number(document.querySelector('#steps').textContent.replaceAll(',', ''))"

test('learns CartPole by the keyboard, pauses, goes on with another learning rate, and gives files', async (context) => {
  if (why !== '') skipLoudly(context, why)
  const { page, wrong } = await open(1440, 900)
  expect(await page.evaluate(MOVES)).toBe(false)
  await page.keyboard.press('Space')
  await until(page, "document.querySelector('#said').textContent.startsWith('Solved')")
  expect(await page.evaluate<number>("Number(document.querySelector('#return').textContent)")).toBeGreaterThanOrEqual(
    475,
  )
  expect(await page.evaluate(MOVES)).toBe(true)

  await page.keyboard.press('Space')
  await page.evaluate('new Promise((resolve) => setTimeout(resolve, 1500))')
  const paused = await page.evaluate<number>(steps)
  expect(await page.evaluate(MOVES)).toBe(false)
  expect(await page.evaluate<number>(steps)).toBe(paused)

  await page.focus('#rate')
  const rate = await page.evaluate<string>("document.querySelector('#rate-shown').textContent")
  await page.keyboard.press('ArrowLeft')
  expect(await page.evaluate<string>("document.querySelector('#rate-shown').textContent")).not.toBe(rate)
  await page.focus('#toggle')
  await page.keyboard.press('Enter')
  await until(page, `${steps} > ${paused} + 20000`)
  expect(await page.evaluate<number>("Number(document.querySelector('#return').textContent)")).toBeGreaterThan(300)

  const files = await page.evaluate<Record<string, number[]>>(`(async () => {
    const found = {}
    HTMLAnchorElement.prototype.click = function () {
      found[this.download] = fetch(this.href).then(async (file) => [...new Uint8Array(await file.arrayBuffer())])
    }
    for (const button of document.querySelectorAll('#downloads button')) button.click()
    while (Object.keys(found).length < 3) await new Promise((resolve) => setTimeout(resolve, 20))
    return Object.fromEntries(await Promise.all(Object.entries(found).map(async ([name, bytes]) => [name, await bytes])))
  })()`)
  expect(Object.keys(files).toSorted()).toEqual(['cartpole-v1.arrow', 'cartpole-v1.mjs', 'cartpole-v1.onnx'])
  const table = tableFromIPC(Uint8Array.from(files['cartpole-v1.arrow']!))
  expect(table.numRows).toBe(16 * 64)
  const module = Buffer.from(files['cartpole-v1.mjs']!).toString('base64')
  const { act } = (await import(`data:text/javascript;base64,${module}`)) as { act(of: number[]): number }
  expect([act([0, 0, 0.15, 1]), act([0, 0, -0.15, -1])]).toEqual([1, 0])
  expect(wrong).toEqual([])
  await page.close()
})

test('axe finds no fault, wide and narrow, and nothing is wider than the page', async (context) => {
  if (why !== '') skipLoudly(context, why)
  for (const [width, height] of [
    [1440, 900],
    [390, 844],
  ] as const) {
    const { page, wrong } = await open(width, height)
    for (const colorScheme of ['light', 'dark'] as const) {
      await page.emulateMedia({ colorScheme })
      await page.evaluate(readFileSync(axe, 'utf8'))
      const found = await page.evaluate<string[]>(
        "axe.run().then(({ violations }) => violations.map(({ id, nodes }) => id + ': ' + nodes[0].html))",
      )
      expect([width, colorScheme, found]).toEqual([width, colorScheme, []])
    }
    expect(await page.evaluate('document.documentElement.scrollWidth <= innerWidth')).toBe(true)
    expect(wrong).toEqual([])
    await page.close()
  }
})
