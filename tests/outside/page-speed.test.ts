/**
 * How fast a page of Chromium trains beside Node's relaxed build, in turns: in a worker, with one thread and with two. `npm run bench:page-speed`
 * prints the figures, by the clock and by processor time; with PAGE_SPEED it writes them there. What is timed is checked first: both leave the same bits.
 */
import { fork } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, writeFileSync } from 'node:fs'
import { loadavg } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { type Browser, openChromium, type Page, until } from '../support/chromium.ts'
import { countFrom, skipLoudly } from '../support/command.ts'
import { type Served, serveIsolated } from '../support/isolated.ts'
import { link, root } from '../support/linked-page.ts'
import { processorSeconds, startedHere } from '../support/processes.ts'
import { temporaryFolder } from '../support/temporary.ts'

const TURNS = countFrom('TURNS', 9)
/** Updates of a turn, and what they train. */
const WORK = {
  small: { environment: 'cartPole', hidden: [64, 64], numLanes: 16, numSteps: 128, updates: 12 },
  wide: { environment: 'cartPole', hidden: [128, 128], numLanes: 256, numSteps: 64, updates: 2 },
  fields: { environment: 'breakout', hidden: [64, 64], numLanes: 64, numSteps: 64, updates: 2 },
} as const
const ROWS = [
  ['small', 1],
  ['wide', 1],
  ['fields', 1],
  ['wide', 2],
  ['fields', 2],
] as const

/** What both do. */
const MEASURE = `
async function measure(colonnade, { environment, hidden, numLanes, numSteps, updates }, threads, kernels) {
  const { createTrainer, createWorld, mlp, ppo } = colonnade
  const world = await createWorld({ environment: colonnade[environment](), policy: mlp({ hidden }), numLanes, seed: 1, kernels })
  const trainer = createTrainer(world, ppo({ numSteps }), { threads })
  let [start, from] = [0, 0]
  for await (const { update, steps } of trainer.updates({ totalSteps: (1 + updates) * numLanes * numSteps })) {
    if (update === 1) [start, from] = [performance.now(), steps] // Threads have started.
  }
  const rate = (1000 * (trainer.steps - from)) / (performance.now() - start)
  const { weights } = world.cohort()
  const bits = new Uint32Array(weights.buffer, weights.byteOffset, weights.length)
  const hash = bits.reduce((sum, each) => (Math.imul(sum, 31) + each) | 0, 7)
  trainer.close()
  return { rate, hash }
}
`
const NAMES = '{ breakout, cartPole, createTrainer, createWorld, mlp, ppo }'

interface Measured {
  readonly rate: number
  /** Processor seconds of its process. */
  readonly processor: number
  readonly hash: number
}

let why = ''
let browser: Browser | undefined
let served: Served | undefined
let page: Page
let child: ReturnType<typeof fork> | undefined

beforeAll(async () => {
  if (import.meta.env.MODE !== 'page-speed') {
    why = "a page's speed beside Node's (npm run bench:page-speed measures it)"
    return
  }
  const opened = await openChromium()
  if ('why' in opened) {
    why = opened.why
    return
  }
  browser = opened.browser
  const chunks = await link(
    `import ${NAMES} from 'colonnade'
    ${MEASURE}
    addEventListener('message', async ({ data: [work, threads] }) => {
      postMessage(await measure(${NAMES}, work, threads).catch(({ message }) => ({ message })))
    })`,
    'esm',
  )
  const files = new Map(chunks.map(({ fileName, code }) => [`/${fileName}`, code]))
  served = await serveIsolated((path) => {
    const code = files.get(path)
    return code === undefined ? ['text/html', '<!doctype html><title>speed</title>'] : ['text/javascript', code]
  })
  page = await browser.newPage()
  await page.goto(served.address)
  const entry = chunks.find(({ isEntry }) => isEntry)!.fileName
  await page.evaluate(`{
    const worker = new Worker('/${entry}', { type: 'module' })
    globalThis.ask = (...asked) => new Promise((resolve) => {
      worker.onmessage = ({ data }) => resolve(data)
      worker.postMessage(asked)
    })
  }`)
  await until(page, 'crossOriginIsolated')
  const program = join(await temporaryFolder(), 'node.mjs')
  writeFileSync(
    program,
    `import * as colonnade from '${root}dist/src/index.js'
    ${MEASURE}
    process.on('message', async ([work, threads]) => process.send(await measure(colonnade, work, threads, 'relaxed')))`,
  )
  child = fork(program, { execArgv: [] })
}, 300_000)

afterAll(async () => {
  child?.kill()
  await browser?.close()
  served?.close()
})

/** Measures, and how long the processor was busy with it: of these processes, that which worked most. */
async function timed(ids: readonly number[], act: () => Promise<Omit<Measured, 'processor'>>): Promise<Measured> {
  const before = ids.map(processorSeconds)
  const measured = await act()
  return { ...measured, processor: Math.max(...ids.map((id, i) => processorSeconds(id) - before[i]!)) }
}

const inPage = (work: object, threads: number) =>
  timed(
    startedHere((command) => command.includes('--type=renderer')),
    () => page.evaluate(`ask(${JSON.stringify(work)}, ${threads})`),
  )

const inNode = (work: object, threads: number) =>
  timed(existsSync('/proc/self/stat') ? [child!.pid!] : [], async () => {
    child!.send([work, threads] as never)
    const [measured] = (await once(child!, 'message')) as [Omit<Measured, 'processor'>]
    return measured
  })

const medianOf = (numbers: number[]) => numbers.toSorted((a, b) => a - b)[numbers.length >> 1]!

test('trains so fast beside Node, with its bits', async (context) => {
  if (why !== '') skipLoudly(context, why)
  const rows = []
  for (const [name, threads] of ROWS) {
    const work = WORK[name]
    const [ours, theirs] = [await inPage(work, threads), await inNode(work, threads)] // They compile.
    expect(ours.hash).toBe(theirs.hash)
    const rates = { page: [] as number[], node: [] as number[] }
    const processor: number[] = []
    for (let i = 0; i < TURNS; i++) {
      const [ours, theirs] = [await inPage(work, threads), await inNode(work, threads)]
      rates.page.push(ours.rate)
      rates.node.push(theirs.rate)
      processor.push(theirs.processor / ours.processor)
    }
    const ratios = rates.page.map((rate, i) => rate / rates.node[i]!).toSorted((a, b) => a - b)
    const row = {
      ...{ work: name, threads, page: Math.round(medianOf(rates.page)), node: Math.round(medianOf(rates.node)) },
      ...{ ratio: medianOf(ratios), least: ratios[0]!, most: ratios.at(-1)!, turns: TURNS },
      // Of the same work, so that 0.5 means twice as much of the processor as in Node. A machine's load changes it little.
      ...{
        byProcessor: medianOf(processor),
        leastByProcessor: Math.min(...processor),
        mostByProcessor: Math.max(...processor),
      },
    }
    rows.push(row)
    console.log(JSON.stringify(row))
  }
  const figures = { chromium: browser!.version(), node: process.version, load: loadavg(), rows }
  console.log(JSON.stringify(figures))
  if (process.env.PAGE_SPEED !== undefined) writeFileSync(process.env.PAGE_SPEED, `${JSON.stringify(figures)}\n`)
  expect(rows).toHaveLength(ROWS.length)
}, 900_000)
