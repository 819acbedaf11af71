/**
 * The playground in Chromium: it learns by the keyboard alone, shows it, goes on with other settings, gives what was learned as files, plays
 * beside a person, runs environments that somebody writes and ends hostile ones, and is restored by a link; and axe finds no fault. Asked by
 * `npm run test:page` alone.
 */
import { readFileSync } from 'node:fs'
import { tableFromIPC } from 'apache-arrow'
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest'
import { SAMPLE } from '../../playground/sample.ts'
import { type Browser, openChromium, type Page } from '../support/chromium.ts'
import { skipLoudly } from '../support/command.ts'
import type { Served } from '../support/isolated.ts'
import { servePlayground } from '../support/playground.ts'

/** Of tests that learn: a page is drawn by software where there is no GPU. */
const TIMEOUT = 600_000

let why = ''
let browser: Browser | undefined
let axe = ''
let served: Served | undefined
/** What comes before a script of the page, by its name. */
const before = new Map<string, string>()

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
  served = await servePlayground(before)
}, 300_000)

/** A page that is left open goes on learning beside the next test. */
const opened = new Set<Page>()
afterEach(async () => {
  before.clear()
  await Promise.all([...opened].map((page) => page.close()))
  opened.clear()
})

afterAll(async () => {
  await browser?.close()
  served?.close()
})

/** Waits until it holds. */
async function until(page: Page, script: string): Promise<void> {
  while (!(await page.evaluate(script))) await new Promise((resolve) => setTimeout(resolve, 100))
}

async function open(width: number, height: number, hash = '') {
  const page = await browser!.newPage({ viewport: { width, height } })
  opened.add(page)
  const wrong: string[] = []
  page.on('pageerror', (error) => wrong.push(String(error)))
  let started = 0
  // One draws, and runs nothing of an environment.
  page.on('worker', (worker) => !worker.url().endsWith('/painter.js') && started++)
  // Downloads stay in the page.
  await page.goto(served!.address + hash)
  await until(page, "document.querySelector('#did').textContent + document.querySelector('#said').textContent !== ''")
  return { page, wrong, workers: () => started }
}

/** Whether the canvas has another picture than a moment ago. */
const MOVES = `(async () => {
  const canvas = document.querySelector('#lanes')
  const before = canvas.toDataURL()
  await new Promise((resolve) => setTimeout(resolve, 1500))
  return canvas.toDataURL() !== before
})()`
const steps = "Number(document.querySelector('#steps').textContent.replaceAll(',', ''))"

test(
  'learns CartPole by the keyboard, pauses, goes on with another learning rate, and gives files',
  async (context) => {
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
  },
  TIMEOUT,
)

const textOf = (page: Page, id: string) => page.evaluate<string>(`document.getElementById('${id}').textContent`)
const entropy = "Number(document.querySelector('#entropy-now').textContent)"

test(
  'goes on with another entropy coefficient, which shows at once',
  async (context) => {
    if (why !== '') skipLoudly(context, why)
    const { page, wrong } = await open(640, 600)
    await page.keyboard.press('Space')
    await until(page, `${steps} > 60000`)
    const before = await page.evaluate<number>(entropy)
    expect(before).toBeLessThan(0.5)
    await page.focus('#entropy')
    await page.keyboard.press('End')
    expect(await textOf(page, 'entropy-shown')).toBe('0.200')
    await until(page, "document.querySelector('#said').textContent.startsWith('From step')")
    const begun = await page.evaluate<number>(steps)
    await page.evaluate("for (let i = 0; i < 8; i++) document.querySelector('#toggle').click()")
    await until(page, `${steps} > ${begun} + 40000`)
    expect(await textOf(page, 'said')).toMatch(/^From step/)
    expect(await page.evaluate<number>(entropy)).toBeGreaterThan(before + 0.05)
    expect(wrong).toEqual([])
  },
  TIMEOUT,
)

test('shows what the policy sees, and plays beside a person', async (context) => {
  if (why !== '') skipLoudly(context, why)
  const { page, wrong } = await open(1440, 900)
  await until(page, "document.querySelectorAll('#numbers meter').length === 4")
  expect(await textOf(page, 'did')).toMatch(/^It chose [01] \(\d+ %\), expects .*, and has \d/)
  await page.focus('#play')
  await page.keyboard.press('Enter')
  await until(page, "document.querySelector('#caption').textContent.startsWith('Left: the policy')")
  // A cart that is only pushed to the right falls within some twelve steps.
  await page.keyboard.down('ArrowRight')
  const mine = "Number(document.querySelector('#caption').textContent.split(' ').at(-1).slice(0, -1))"
  // The episode in which the key was pressed can last longer.
  await until(page, `${mine} > 4`)
  await until(page, `${mine} < 4`)
  let most = 0
  for (let i = 0; i < 60; i++) {
    await page.evaluate('new Promise((resolve) => setTimeout(resolve, 50))')
    most = Math.max(most, await page.evaluate<number>(mine))
  }
  expect(most).toBeGreaterThan(5)
  expect(most).toBeLessThan(15)
  await page.keyboard.up('ArrowRight')
  await page.keyboard.press('Escape')
  await until(page, "document.querySelector('#caption').textContent.startsWith('1,000 lanes')")
  expect(wrong).toEqual([])
})

/** Draws by a painter each of whose pictures takes 60 milliseconds more. */
const SLOW = `{
  const { clearRect } = OffscreenCanvasRenderingContext2D.prototype
  let drawn = 0
  OffscreenCanvasRenderingContext2D.prototype.clearRect = function (...given) {
    const end = performance.now() + 60
    while (performance.now() < end);
    drawn++
    return clearRect.apply(this, given)
  }
  const channel = new BroadcastChannel('drawn')
  channel.onmessage = () => channel.postMessage(drawn)
}
`

test('the page does not wait for pictures that are slow, and says that fewer lanes are drawn', async (context) => {
  if (why !== '') skipLoudly(context, why)
  before.set('painter.js', SLOW)
  const { page, wrong } = await open(1440, 900)
  await page.keyboard.press('Space')
  await until(page, "/^125 of 1,000 lanes are drawn/.test(document.querySelector('#caption').textContent)")
  const [frames, pictures] = await page.evaluate<[number, number]>(`(async () => {
    const channel = new BroadcastChannel('drawn')
    const drawn = () => new Promise((resolve) => {
      channel.onmessage = ({ data }) => resolve(data)
      channel.postMessage('?')
    })
    const before = await drawn()
    let frames = 0
    let isOver = false
    const count = () => { frames++; if (!isOver) requestAnimationFrame(count) }
    requestAnimationFrame(count)
    await new Promise((resolve) => setTimeout(resolve, 3000))
    isOver = true
    return [frames, (await drawn()) - before]
  })()`)
  expect(pictures).toBeGreaterThan(5)
  expect(frames).toBeGreaterThan(1.5 * pictures)
  // Another scene begins with all of its lanes.
  await page.evaluate(`{
    const choice = document.querySelector('#environment')
    choice.value = 'Pendulum-v1'
    choice.dispatchEvent(new Event('change'))
  }`)
  await until(page, "document.querySelector('#caption').textContent.startsWith('1,000 lanes. Pendulums')")
  expect(wrong).toEqual([])
})

/** A page whose frames come late, each 40 milliseconds after the one before. */
const LATE = `
globalThis.requestAnimationFrame = (act) => setTimeout(() => act(performance.now()), 40)
`
/** A trainer that tells how long it rests, for each millisecond since its last rest. */
const RESTS = `{
  const { setTimeout } = globalThis
  const rests = []
  let begunAt = performance.now()
  globalThis.setTimeout = (act, ms) => {
    rests.push(ms / (performance.now() - begunAt))
    return setTimeout(() => { begunAt = performance.now(); act() }, ms)
  }
  const channel = new BroadcastChannel('rests')
  channel.onmessage = () => channel.postMessage(rests.slice(-21))
}
`

test('where frames come late, it trains a quarter of its time, and says so', async (context) => {
  if (why !== '') skipLoudly(context, why)
  before.set('main.js', LATE).set('worker.js', RESTS)
  const { page, wrong } = await open(1440, 900)
  await page.keyboard.press('Space')
  await until(page, "document.querySelector('#caption').textContent.endsWith('it trains 2 / 8 of its time.')")
  const begun = await page.evaluate<number>(steps)
  await until(page, `${steps} > ${begun} + 40000`)
  const rests = await page.evaluate<number[]>(`new Promise((resolve) => {
    const channel = new BroadcastChannel('rests')
    channel.onmessage = ({ data }) => resolve(data)
    channel.postMessage('?')
  })`)
  expect(rests.length).toBe(21)
  // Three quarters are three times as long as the rest.
  expect(rests.toSorted((a, b) => a - b)[10]).toBeCloseTo(3, 0)
  expect(wrong).toEqual([])
})

test('a person plays actions that have no bounds', async (context) => {
  if (why !== '') skipLoudly(context, why)
  const unbounded = 'box({ low: -Infinity, high: Infinity, shape: [1] })'
  const code = SAMPLE.replace('discrete(3)', unbounded).replace('(action[n] - 1)', 'Math.tanh(action[n])')
  const { page, wrong } = await open(1440, 900, `#environment=own&code=${encodeURIComponent(code)}`)
  await page.evaluate("document.querySelector('#use').click()")
  await until(page, "document.querySelector('#caption').textContent.startsWith('240 lanes')")
  await page.evaluate("document.querySelector('#play').click()")
  await until(page, '/you, by .*: 0\\.[1-9]/.test(document.querySelector("#caption").textContent)')
  await page.keyboard.down('ArrowRight')
  await page.evaluate('new Promise((resolve) => setTimeout(resolve, 1000))')
  const caption = await textOf(page, 'caption')
  expect(Number(/: (\S+)\.$/.exec(caption)?.[1]), caption).toBeGreaterThan(0.5)
  expect(wrong).toEqual([])
})

test(
  'learns an environment that somebody writes, and ends a hostile one',
  async (context) => {
    if (why !== '') skipLoudly(context, why)
    const { page, wrong } = await open(640, 600, '#environment=own&seed=3')
    await page.evaluate("document.querySelector('#toggle').click()")
    await until(page, "Number(document.querySelector('#return').textContent) > 70")
    const sample = await page.evaluate<string>("document.querySelector('#code').value")
    const hostile = [
      ['for (;;);', /^Stopped: your environment did not return for 8 seconds/],
      [
        'const all = []; for (let i = 0; i < 8; i++) all.push(new Float64Array(2 ** 27).fill(1))',
        /GiB of arrays, expected at most the 1 GiB/,
      ],
      ['new Uint8Array(2 ** 33)', /got 8.0 GiB of arrays/],
      ['const all = []; for (;;) all.push({})', /^Stopped: your environment did not return/],
      ["throw new Error('mine')", /mine/],
    ] as const
    for (const [line, told] of hostile) {
      const evil = sample.replace(/(step\(.*\{\n)/, `$1      ${line}\n`)
      expect(evil).not.toBe(sample)
      await page.evaluate(`document.querySelector('#code').value = ${JSON.stringify(evil)}`)
      await page.focus('#code')
      await page.keyboard.press('Control+Enter')
      await page.evaluate("document.querySelector('#toggle').click()")
      await until(page, "document.querySelector('#said.wrong')?.textContent")
      expect([line, await textOf(page, 'said')]).toEqual([line, expect.stringMatching(told)])
      expect(await textOf(page, 'toggle')).toBe('Start')
    }
    for (const [text, told] of [
      ["import fs from 'node:fs'\nexport default fs", /imports of box, defineEnvironment/],
      ['const a = 1', /no default export/],
      ['export default 3', /got 3/],
      ['export default }', /Unexpected token/],
    ] as const) {
      await page.evaluate(`document.querySelector('#code').value = ${JSON.stringify(text)}`)
      await page.focus('#code')
      await page.keyboard.press('Control+Enter')
      await until(page, "document.querySelector('#said.wrong')?.textContent")
      expect([text, await textOf(page, 'said')]).toEqual([text, expect.stringMatching(told)])
    }
    await page.evaluate(`document.querySelector('#code').value = ${JSON.stringify(sample)}`)
    await page.evaluate("document.querySelector('#restart').click()")
    await page.evaluate("document.querySelector('#toggle').click()")
    await until(page, "Number(document.querySelector('#return').textContent) > 50")
    expect(wrong).toEqual([])
  },
  TIMEOUT,
)

test('a link restores the environment, the settings and the text', async (context) => {
  if (why !== '') skipLoudly(context, why)
  const first = await open(1440, 900, '#environment=Pendulum-v1&seed=42&learningRate=0.001&entropyCoef=0.05')
  const state = `['environment', 'seed', 'rate-shown', 'entropy-shown'].map((id) => {
    const element = document.getElementById(id)
    return element.value || element.textContent
  })`
  await until(first.page, "document.querySelector('#rate-shown').textContent !== ''")
  const shown = await first.page.evaluate<string[]>(state)
  expect(shown).toEqual(['Pendulum-v1', '42', '1.0e-3', '0.050'])
  const text = 'export default 1 // + & # %\n'
  const own = await open(1440, 900, `#environment=own&seed=5&code=${encodeURIComponent(text)}`)
  expect(await textOf(own.page, 'said')).toMatch(/^This environment came with a link/)
  await own.page.evaluate('new Promise((resolve) => setTimeout(resolve, 1000))')
  expect([first.workers() > 0, own.workers()]).toEqual([true, 0])
  const link = await own.page.evaluate<string>("(document.querySelector('#link').click(), location.hash)")
  const again = await open(1440, 900, link)
  expect(await again.page.evaluate("document.querySelector('#code').value")).toBe(text)
  // Only “Use it” runs it.
  await again.page.keyboard.press('Space')
  for (const id of ['toggle', 'restart', 'play']) await again.page.evaluate(`document.querySelector('#${id}').click()`)
  await again.page.evaluate('new Promise((resolve) => setTimeout(resolve, 500))')
  expect([again.workers(), await textOf(again.page, 'toggle')]).toEqual([0, 'Start'])
  await again.page.evaluate("document.querySelector('#use').click()")
  await until(again.page, "document.querySelector('#said.wrong')?.textContent")
  expect(await textOf(again.page, 'said')).toMatch(/got 1/)
  // After a fault other settings and Start begin again.
  await again.page.focus('#rate')
  await again.page.keyboard.press('ArrowLeft')
  await again.page.evaluate(`document.querySelector('#code').value = ${JSON.stringify(SAMPLE)}`)
  await again.page.evaluate("document.querySelector('#toggle').click()")
  await until(again.page, `${steps} > 0`)
  const strange = await open(1440, 900, '#environment=none&seed=-3&learningRate=x&entropyCoef=9')
  expect((await strange.page.evaluate<string[]>(state)).slice(0, 2)).toEqual(['CartPole-v1', '1'])
})

test('axe finds no fault, wide and narrow, and nothing is wider than the page', async (context) => {
  if (why !== '') skipLoudly(context, why)
  for (const [width, height, hash] of [
    [1440, 900, ''],
    [390, 844, ''],
    [1440, 900, '#environment=own'],
    [390, 844, '#environment=own'],
  ] as const) {
    const { page, wrong } = await open(width, height, hash)
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
  }
})
