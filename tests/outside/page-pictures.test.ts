/**
 * Pictures of the page's views for the docs, of runs that are trained for them: `npm run page:pictures` makes them anew, in about
 * two minutes.
 */
import { mkdir } from 'node:fs/promises'
import { join } from 'node:path'
import { setEnvironmentData } from 'node:worker_threads'
import { afterAll, beforeAll, test } from 'vitest'
import type { Dashboard, openDashboard as Open } from '../../src/entries/loggers.ts'
import { cached, installPackages } from '../support/cache.ts'
import { type Browser, openChromium, type Page, until } from '../support/chromium.ts'
import { MAIN, skipLoudly, start } from '../support/command.ts'
import { temporaryFolder } from '../support/temporary.ts'

const DOCS = new URL('../../docs/', import.meta.url).pathname
const [WIDE, PHONE] = [
  { width: 1240, height: 760 },
  { width: 390, height: 780 },
]
const DUCKDB = '@duckdb/duckdb-wasm@1.32.0'
const QUERY = `SELECT action, count(*) AS n, avg(advantage) AS "mean advantage", stddev(advantage) AS deviation, max(logprob) AS "highest logprob"
 FROM rows WHERE valid = 1 GROUP BY action ORDER BY action`

let why = ''
let browser: Browser | undefined
let dashboard: Dashboard | undefined
const before = process.cwd()

beforeAll(async () => {
  if (import.meta.env.MODE !== 'page-pictures') {
    why = 'pictures of the page (npm run page:pictures makes them)'
    return
  }
  const opened = await openChromium()
  const made = await cached(DUCKDB.replaceAll('/', '-'), (path, run) => installPackages(path, run, [DUCKDB]))
  if ('why' in opened || 'why' in made) {
    why = 'why' in opened ? opened.why : (made as { why: string }).why
    return
  }
  ;({ browser } = opened)
  const parent = await temporaryFolder()
  const folder = join(parent, 'runs')
  await mkdir(folder)
  const colonnade = async (...words: string[]) => {
    const { code, stderr } = await start(process.execPath, [MAIN, ...words], { cwd: folder, timeout: 300_000 }).ended
    if (code !== 0) throw new Error(stderr)
  }
  for (const learningRate of ['0.0005', '0.0025']) {
    const words = [`ppo.learningRate=${learningRate}`, 'totalSteps=61440', 'seeds=1..3', 'rollouts=last']
    await colonnade('train', 'CartPole-v1', ...words, `out=lr-${learningRate}`)
  }
  await colonnade('train', 'Breakout-MinAtar', 'totalSteps=400000', 'out=breakout')
  await colonnade('replay', 'breakout', 'out=breakout/replay.gif')
  const agent = new URL('../../dist/examples/tool-agent.js', import.meta.url).pathname
  await colonnade('train', agent, 'sft.updates=100', 'rl.updates=60', 'trajectories=last', 'out=weekday')
  process.chdir(parent)
  const { openDashboard } = (await import('../../dist/src/entries/loggers.js')) as { openDashboard: typeof Open }
  setEnvironmentData('colonnade.program', join(made.folder, 'program.mjs'))
  dashboard = await openDashboard({ folder: 'runs', port: 0 })
}, 600_000)

afterAll(async () => {
  process.chdir(before)
  await browser?.close()
  await dashboard?.close()
})

/** The page with the runs that pass a filter, and this part opened, filled and in sight; without one, its top. */
async function look(page: Page, runs: string, part?: string, filled = 'true'): Promise<void> {
  await page.goto(dashboard!.url)
  await until(
    page,
    "document.querySelector('#runs').innerText.includes('8 of 8 runs') && document.querySelectorAll('.chart').length > 3",
  )
  await page.evaluate(`{
    const input = document.querySelector('#runs input')
    input.value = ${JSON.stringify(runs)}
    input.dispatchEvent(new Event('input'))
  }`)
  if (part !== undefined) {
    await page.evaluate(`document.querySelector('${part} summary')?.click()`)
    await until(page, filled)
    await page.evaluate(`document.querySelector('${part}').scrollIntoView()`)
    await page.evaluate("matchMedia('(min-width: 76rem)').matches && scrollBy(0, -60)") // The head of the page stays there.
  }
  await page.evaluate('new Promise((resolve) => setTimeout(resolve, 500))') // Curves are drawn.
}

/** Turns to a group with a tool's reply whose conversations had different rewards, colored by their advantages. */
async function findGroup(page: Page): Promise<void> {
  await choose(page, '#conversations select', 'advantage')
  const told = "document.querySelector('#conversations [role=status]').textContent"
  const isColored = "[...document.querySelectorAll('.tokens span')].some((token) => token.style.backgroundColor !== '')"
  const hasReply = "document.querySelector('#conversations').innerText.includes('turn 2, the model')"
  while (!(await page.evaluate(`${isColored} && ${hasReply}`))) {
    const before = JSON.stringify(await page.evaluate(told))
    await page.evaluate("[...document.querySelectorAll('#conversations button')].at(-1).click()") // Later.
    await until(page, `${told} !== ${before}`)
  }
}

/** Types or chooses something in a control of a part. */
const choose = (page: Page, control: string, value: string) =>
  page.evaluate(`{
    const control = [...document.querySelectorAll('${control}')].at(-1)
    control.value = ${JSON.stringify(value)}
    control.dispatchEvent(new Event('change'))
  }`)

test('makes a picture of each view', async (context) => {
  if (why !== '') skipLoudly(context, why)
  const page = await browser!.newPage({ viewport: WIDE })
  const shoot = (name: string) => page.screenshot({ path: join(DOCS, name) })
  await look(page, 'run~lr-')
  await shoot('dashboard.png')
  await page.evaluate('document.querySelector(\'[data-focus="sort episodeReturn"]\').click()')
  await page.evaluate('document.querySelector(\'[data-focus^="notes row lr-0.0025"]\').click()')
  await page.evaluate(`{
    document.querySelector('#notes textarea').value = 'learns in 30,000 steps'
    document.querySelector('#notes input').value = 'baseline'
    document.querySelector('#notes button').click()
  }`)
  await until(page, "document.querySelector('table.runs').innerText.includes('learns in 30,000 steps')")
  await page.screenshot({ path: join(DOCS, 'page/notes.png'), clip: { x: 0, y: 0, width: WIDE.width, height: 260 } })
  await look(page, 'run~lr-', '#compare', "document.querySelector('#compare table') !== null")
  await shoot('page/compare.png')
  await look(page, 'run=lr-0.0025/seed-1')
  await until(page, "document.querySelector('.mark') !== null")
  await page.evaluate("document.querySelector('.mark').click()")
  await until(page, "document.querySelectorAll('#histograms svg').length > 4")
  await page.evaluate("document.querySelector('#histograms').scrollIntoView()")
  await shoot('page/histograms.png')
  await look(page, 'run=breakout', '#replay', "document.querySelector('#replay img')?.naturalWidth > 0")
  await shoot('page/replay.png')
  await look(page, 'run=lr-0.0025/seed-1', '#files', "document.querySelector('#files table') !== null")
  await choose(page, '#files input', QUERY)
  await until(page, "document.querySelector('#files').innerText.includes('1 to 2 of 2 rows')")
  await shoot('page/files.png')
  const conversations = ['#conversations', "document.querySelector('.conversation') !== null"] as const
  await look(page, 'run=weekday', ...conversations)
  await findGroup(page)
  await shoot('page/conversations.png')
  await page.emulateMedia({ colorScheme: 'dark' })
  await look(page, 'run=weekday', ...conversations)
  await findGroup(page)
  await choose(page, '#conversations select', 'log-probability')
  await shoot('page/conversations-dark.png')
  await look(page, 'run~lr-')
  await shoot('page/dark.png')
  await page.emulateMedia({ colorScheme: 'light' })
  await page.setViewportSize(PHONE)
  await look(page, 'run~lr-', '.charts')
  await shoot('page/phone.png')
  await look(page, 'run=weekday', ...conversations)
  await findGroup(page)
  await shoot('page/conversations-phone.png')
}, 300_000)
