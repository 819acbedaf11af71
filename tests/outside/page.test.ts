/**
 * The page in a real browser: Chromium that is installed (COLONNADE_CHROMIUM, or chromium on the path), driven by playwright-core.
 * Asked by `npm run test:page` alone.
 */
import { appendFile, mkdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { tableFromArrays, tableToIPC } from 'apache-arrow'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { workNames } from '../../src/base/clock.ts'
import type { Dashboard, openDashboard as Open } from '../../src/entries/loggers.ts'
import { type Browser, openChromium, until } from '../support/chromium.ts'
import { skipLoudly } from '../support/command.ts'
import { metricLines, writeConversations, writeRun } from '../support/run-folders.ts'
import { temporaryFolder } from '../support/temporary.ts'

const HOSTILE = '<img src=x onerror=alert(1)>'
/** A picture of one field. */
const GIF = Buffer.from('R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7', 'base64')

let why = ''
let folder: string
let dashboard: Dashboard | undefined
let browser: Browser | undefined
let axe = ''

beforeAll(async () => {
  if (import.meta.env.MODE !== 'page') {
    why = 'the page in Chromium (npm run test:page asks it)'
    return
  }
  const opened = await openChromium()
  if ('why' in opened) {
    why = opened.why
    return
  }
  ;({ browser, axe } = opened)
  folder = await temporaryFolder()
  for (const seed of [1, 2]) {
    const lines = Array.from({ length: 50 }, (_, i) => ({ update: i, episodeReturn: seed * i, entropy: 1 / (i + 1) }))
    await writeRun(join(folder, `run-${seed}`), { seed, metrics: metricLines(...lines), status: 'complete' })
  }
  await writeRun(join(folder, HOSTILE), { learningRate: 9, metrics: metricLines({ [HOSTILE]: 1, episodeReturn: 3 }) })
  await mkdir(join(folder, HOSTILE, 'rollouts'))
  const rows = { reward: Float64Array.from({ length: 120 }, (_, i) => i / 4), answer: Array(120).fill(HOSTILE) }
  await writeFile(join(folder, HOSTILE, 'rollouts/9.arrow'), tableToIPC(tableFromArrays(rows), 'file'))
  const phaseSeconds = Object.fromEntries(workNames.map((name) => [name, 1]))
  const said = [HOSTILE, 'ask <tool_call>{"name":"clock","arguments":{}}</tool_call>', 'no\nno']
  await writeRun(join(folder, 'words'), {
    isOfText: true,
    metrics: metricLines({ update: 1, reward: 0.5, phaseSeconds }),
  })
  await writeConversations(join(folder, 'words/trajectories/1.arrow'), said)
  const { openDashboard } = (await import('../../dist/src/entries/loggers.js')) as { openDashboard: typeof Open }
  dashboard = await openDashboard({ folder, port: 0 })
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
  // Two seeds are a row, with the mean and the deviation of their last returns.
  const row = (name: string) =>
    `[...document.querySelectorAll('table.runs tbody tr')].find((each) => each.innerText.includes(${JSON.stringify(name)}))`
  await until(page, `/50\\s+73\\.5 ± 34\\.65/.test(${row('run-1 (2 runs)')}?.innerText)`)

  await page.evaluate("document.querySelector('#times summary').click()")
  await until(page, "document.querySelector('#times table') !== null")
  const colors = await page.evaluate<string[]>(
    "[...document.querySelectorAll('#times .legend .swatch')].map((swatch) => swatch.style.backgroundColor)",
  )
  expect([colors.length, new Set(colors).size]).toEqual([workNames.length, workNames.length])

  await appendFile(join(folder, 'run-2', 'metrics.jsonl'), metricLines({ update: 50, episodeReturn: 777 }))
  await until(page, `/50\\.5 ± .*413 ± /.test(${row('run-1 (2 runs)')}?.innerText)`)

  await page.focus('.chart canvas')
  await page.keyboard.press('End')
  const spoken = (i: number) => `document.querySelectorAll('.chart p')[${i}].textContent`
  await until(page, `/^50: run-1 \\(2 runs\\) /.test(${spoken(0)})`)
  expect(await page.evaluate(spoken(1))).toMatch(/^50: /) // Charts share the cursor.

  await page.evaluate("document.querySelector('#files summary').click()")
  await until(page, "document.querySelector('#files').innerText.includes('1 to 50 of 120 rows')")
  expect(await page.evaluate("document.querySelector('#files table').innerText")).toContain(HOSTILE)
  await page.evaluate("[...document.querySelectorAll('#files button')].at(-1).click()")
  await until(page, "document.querySelector('#files').innerText.includes('51 to 100 of 120 rows')")
  await page.focus('#files input')
  for (const key of 'reward > 29') await page.keyboard.press(key === ' ' ? 'Space' : key)
  await page.keyboard.press('Enter')
  await until(page, "document.querySelector('#files').innerText.includes('1 to 3 of 3 of 120 rows')")
  await page.evaluate(
    "{ const input = document.querySelector('#files input'); input.value = 'FROM rows'; input.dispatchEvent(new Event('change')) }",
  )
  await until(page, "document.querySelector('#files').innerText.includes('npm install @duckdb/duckdb-wasm')")

  await page.evaluate("document.querySelector('#conversations summary').click()")
  await until(page, "document.querySelectorAll('.conversation').length === 3")
  const conversations = "document.querySelector('#conversations')"
  expect(await page.evaluate(`${conversations}.innerText`)).toContain(HOSTILE)
  expect(await page.evaluate(`${conversations}.querySelector('.call').title`)).toBe('calls clock')
  const last = `[...${conversations}.querySelectorAll('.tokens.model')][0].lastChild`
  // The advantage of the first is the greatest: its color is the strongest.
  expect(await page.evaluate(`${last}.style.backgroundColor`)).toBe('rgba(213, 94, 0, 0.5)')
  const choose = (words: string) =>
    page.evaluate(
      `{ const select = [...${conversations}.querySelectorAll('select')].at(-1); select.value = '${words}'; select.dispatchEvent(new Event('change')) }`,
    )
  await choose('advantage')
  expect(await page.evaluate(`${last}.style.backgroundColor`)).toBe('rgba(47, 127, 184, 0.5)')
  await choose('mask')
  expect(await page.evaluate(`${last}.style.backgroundColor`)).toBe('rgba(47, 127, 184, 0.3)')
  // Who looks at the newest file goes on with the next one.
  await writeConversations(join(folder, 'words/trajectories/2.arrow'), ['anew'])
  await appendFile(join(folder, 'words/metrics.jsonl'), metricLines({ update: 2, reward: 0.5 }))
  await until(page, "document.querySelectorAll('.conversation').length === 1")

  // The words of a table with many columns are not broken into letters: it is moved sideways.
  await page.evaluate(
    "{ const select = document.querySelector('#files select'); select.value = 'words'; select.dispatchEvent(new Event('change')) }",
  )
  await page.evaluate(
    "{ const input = document.querySelector('#files input'); input.value = ''; input.dispatchEvent(new Event('change')) }",
  )
  const heads = "[...document.querySelectorAll('#files thead th')]"
  await until(page, `${heads}.length > 15`)
  const lines = await page.evaluate<number>(
    `Math.max(...${heads}.map((head) => head.getBoundingClientRect().height / parseFloat(getComputedStyle(head).lineHeight)))`,
  )
  expect(lines).toBeLessThan(4)

  await page.evaluate("document.querySelector('#replay summary').click()")
  await until(page, "document.querySelector('#replay').innerText.includes('colonnade replay ')")
  await writeFile(join(folder, HOSTILE, 'replay.gif'), GIF)
  await until(page, "document.querySelector('#replay img')?.naturalWidth === 1")

  // What was made at an update is marked on the first chart's curve: a click shows its histograms, or its picture.
  await writeFile(join(folder, 'run-2', 'replay-30.gif'), GIF)
  await mkdir(join(folder, 'run-2', 'rollouts'))
  await writeFile(
    join(folder, 'run-2', 'rollouts/12.arrow'),
    tableToIPC(tableFromArrays({ reward: Float64Array.of(0.5, 1, 1) }), 'file'),
  )
  await appendFile(join(folder, 'run-2', 'metrics.jsonl'), metricLines({ update: 51, episodeReturn: 778 }))
  await page.focus('.chart canvas') // Charts out of sight are not drawn.
  const mark = (words: string) => `document.querySelector('.mark[title="${words}, run-2"]')`
  await until(page, `${mark('rows of update 12')} !== null && ${mark('picture of update 30')} !== null`)
  await page.evaluate(`${mark('rows of update 12')}.click()`)
  await until(
    page,
    "document.querySelector('#histograms svg')?.getAttribute('aria-label').includes('3 numbers from 0.5 to 1')",
  )
  await page.evaluate(`${mark('picture of update 30')}.click()`)
  await until(page, "document.querySelector('#replay img')?.src.includes('replay-30.gif')")

  // A note and tags of both seeds, written in the page, are in their folders and in the table.
  await page.evaluate('document.querySelector(\'[data-focus="notes row run-1"]\').click()')
  await page.focus('#notes textarea')
  for (const key of 'late') await page.keyboard.press(key)
  await page.focus('#notes input')
  for (const key of 'base') await page.keyboard.press(key)
  await page.evaluate(await readFile(axe, 'utf8'))
  expect(await page.evaluate("axe.run('dialog').then(({ violations }) => violations.map(({ id }) => id))")).toEqual([])
  await page.keyboard.press('Enter')
  await until(page, `/base\\s+late/.test(${row('run-1 (2 runs)')}?.innerText)`)
  for (const name of ['run-1', 'run-2'])
    expect(JSON.parse(await readFile(join(folder, name, 'notes.json'), 'utf8'))).toEqual({
      note: 'late',
      tags: ['base'],
    })

  // Zoomed by keyboard, on a log scale, sorted, filtered and grouped: the address restores it.
  await page.focus('.chart canvas')
  await page.keyboard.press('+')
  await page.evaluate("[...document.querySelectorAll('header input')].at(-1).click()")
  await page.evaluate('document.querySelector(\'[data-focus="sort episodeReturn"]\').click()')
  await page.focus('#runs input[type=search]')
  for (const key of 'learningRate') await page.keyboard.press(key)
  expect(await page.evaluate("document.querySelectorAll('table.runs tbody tr').length")).toBe(0)
  for (const _ of 'learningRate') await page.keyboard.press('Backspace')
  for (const key of 'run-') await page.keyboard.press(key)
  expect(await page.evaluate("document.querySelectorAll('table.runs tbody tr').length")).toBe(1)
  await until(page, "location.hash.includes('filter=run-&')") // It follows in less than a second.
  const address = await page.evaluate<string>('location.href')
  expect(Object.fromEntries(new URLSearchParams(new URL(address).hash.slice(1)))).toEqual({
    ...{ filter: 'run-', sort: '-episodeReturn', log: 'true', range: '13.25 37.75' },
  })
  const again = await browser!.newPage()
  await again.goto(address)
  await until(again, "document.querySelectorAll('table.runs tbody tr').length === 1")
  expect(await again.evaluate("document.querySelector('thead th[aria-sort=descending]').innerText")).toContain(
    'episodeReturn',
  )
  await until(again, "document.querySelectorAll('.chart p').length > 1")
  expect(await again.evaluate('location.href')).toBe(address)
  await again.close()

  // What is saved of a chart is the two seeds' mean and band.
  const download = page.waitForEvent('download')
  await page.evaluate(
    "{ const select = document.querySelector('.chart select'); select.value = 'CSV'; select.dispatchEvent(new Event('change')) }",
  )
  const csv = await readFile(await (await download).path(), 'utf8')
  expect(csv.split('\n')[0]).toBe('series,x,y,low,high')
  expect(csv.split('\n').length).toBeGreaterThan(50)
  await page.focus('.chart canvas')
  for (let i = 0; i < 60; i++) await page.keyboard.press('+') // At some width it zooms no further.
  const isDrawn = `(() => {
    const { data } = document.querySelector('.chart canvas').getContext('2d').getImageData(0, 0, 600, 300)
    return data.some((value) => value !== 0)
  })()`
  await until(page, isDrawn)
  await page.evaluate("location.hash = ''") // All as at the beginning.
  await until(page, "document.querySelectorAll('table.runs tbody tr').length === 3")

  await page.evaluate(await readFile(axe, 'utf8'))
  const faults = await page.evaluate(
    'axe.run().then(({ violations }) => violations.map(({ id, impact }) => [id, impact]))',
  )
  expect(faults).toEqual([])
  expect([...asked]).toEqual([dashboard!.url])
  expect(wrong).toEqual([])
}, 120_000)

test('opens with broken colors in its storage, and shows what the link names although the server reads on', async (context) => {
  if (why !== '') skipLoudly(context, why)
  const page = await browser!.newPage()
  const wrong: string[] = []
  page.on('pageerror', (error) => wrong.push(String(error)))
  // The first answer has only the first run, as of a server that has read no more.
  await page.addInitScript(`{
    localStorage.setItem('colonnade.colors', '[[1')
    localStorage.setItem('colonnade.theme', 'none')
    const whole = globalThis.fetch
    let isFirst = true
    globalThis.fetch = async (path) => {
      const answer = await (await whole(path)).json()
      if (path === 'api/runs' && isFirst) {
        isFirst = false
        for (const name of ['ids', 'runs']) answer[name].length = 1
      }
      return { ok: true, json: async () => answer }
    }
  }`)
  await page.goto(`${dashboard!.url}/#show=run-2&groupBy=runs`)
  await until(page, "document.querySelectorAll('table.runs tbody tr').length === 1")
  await appendFile(join(folder, 'words/metrics.jsonl'), metricLines({ update: 3, reward: 0.5 }))
  await until(page, "document.querySelectorAll('table.runs tbody tr').length === 4")
  const shown = await page.evaluate<string[]>(
    "[...document.querySelectorAll('table.runs tbody input')].filter((box) => box.checked).map((box) => box.ariaLabel)",
  )
  expect(shown).toEqual(['show run-2'])
  await until(page, "JSON.parse(localStorage.getItem('colonnade.colors')).length === 4")
  expect(wrong).toEqual([])
  await page.close()
})
