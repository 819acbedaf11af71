/**
 * Pages that somebody builds of the packed file, by each bundler and by none, opened in Chromium: each trains CartPole until it is
 * solved, and Pendulum, Breakout and a transformer for some updates, and has the weights of Node's relaxed build. Asked by `npm run test:bundlers` alone.
 */
import { createHash } from 'node:crypto'
import { cpSync, mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { extname, join, normalize } from 'node:path'
import { gzipSync } from 'node:zlib'
import { afterAll, beforeAll, expect, test } from 'vitest'
import * as colonnade from '../../dist/src/index.js'
import type { PageReport } from '../../src/index.page.ts'
import { cached, installPackages } from '../support/cache.ts'
import { type Browser, openChromium, until } from '../support/chromium.ts'
import { skipLoudly, start } from '../support/command.ts'
import { temporaryFolder } from '../support/temporary.ts'

const { pack, install } = (await import(new URL('../../scripts/packed.mjs', import.meta.url).href)) as {
  pack(folder: string): { tarball: string }
  install(folder: string, tarball: string): void
}

const TOOLS = [
  ...['esbuild@0.28.2', 'vite@8.3.8', 'rollup@4.68.8', '@rollup/plugin-node-resolve@16.0.3'],
  ...['webpack@5.112.2', 'webpack-cli@6.0.0'],
]
const { configureRun, startRun } = colonnade
const SEEDS = [1, 2, 3]
/** Kilobytes, compressed, of a page that trains CartPole with PPO, with the kernels that it loads. */
const KILOBYTES_MAX = 150

/** What every page and Node do. */
const TRAIN = `
async function train(colonnade, name, seed, kernels, threads = 1) {
  const { createTrainer, createWorld, languageModel, mlp, ppo, rl, sft, textEnvironmentFactory } = colonnade
  if (name === 'reverse') {
    const environment = textEnvironmentFactory('text/reverse')({ maxLength: 4 })
    const policy = languageModel({ width: 32, layers: 2 })
    const world = await createWorld({ environment, policy, numLanes: 64, groupSize: 8, seed, kernels })
    const trainer = createTrainer(world, [sft({ updates: 5 }), rl({ updates: 3, groupsPerUpdate: 8, groupSize: 8 })])
    for await (const _ of trainer.updates());
    return resultOf(world, trainer, null)
  }
  const environment = colonnade[name]()
  const { run, policy, algorithm } = environment.presets[0]
  const options = { environment, policy: mlp(policy.parameters), numLanes: run.numLanes, seed, kernels }
  const world = await createWorld(options)
  const trainer = createTrainer(world, ppo(algorithm.parameters), { threads })
  for await (const { update } of trainer.updates({ totalSteps: 1e6 })) {
    if (name === 'cartPole' ? trainer.progress().solvedAtStep !== null : update === 12) break
  }
  return resultOf(world, trainer, trainer.progress().episodeReturnLast100.mean)
}
function resultOf(world, trainer, solved) {
  const { buffer, byteOffset, byteLength } = world.cohort().weights
  const { steps } = trainer
  trainer.close()
  return { kernels: world.kernelBuild, steps, solved, weights: new Uint8Array(buffer, byteOffset, byteLength).slice() }
}
`
const LANES = '{ breakout, cartPole, createTrainer, createWorld, mlp, pendulum, ppo }'
const WORDS = '{ languageModel, rl, sft, textEnvironmentFactory }'

/** The program of a page that imports these names. */
const programOf = (lanes: string, words?: string) => `
import ${lanes} from 'colonnade'
${words === undefined ? '' : `import ${words} from 'colonnade/text'`}
${TRAIN}
globalThis.train = async (name, seed, threads) => {
  const { weights, ...rest } = await train({ ...${lanes}, ...${words ?? '{}'} }, name, seed, undefined, threads)
  const hash = new Uint8Array(await crypto.subtle.digest('SHA-256', weights))
  return { ...rest, isShared: crossOriginIsolated, hash: [...hash].map((byte) => byte.toString(16).padStart(2, '0')).join('') }
}
`
const PROGRAM = `${programOf(LANES, WORDS)}
import { doctor } from 'colonnade'
globalThis.examine = doctor
`

interface Trained {
  readonly kernels: string
  readonly steps: number
  readonly solved: number | null
  readonly isShared: boolean
  readonly hash: string
}

let why = ''
let project: string
let tools: string
let browser: Browser | undefined
let server: Server | undefined
const expected = new Map<string, Trained>()

beforeAll(async () => {
  if (import.meta.env.MODE !== 'bundlers') {
    why = 'pages of bundlers in Chromium (npm run test:bundlers asks them)'
    return
  }
  const opened = await openChromium()
  const made = await cached(`bundlers-${TOOLS.join('-').replaceAll(/[@/]/g, '_')}`, async (path, run) => {
    await installPackages(path, run, TOOLS)
    await run('node', ['node_modules/esbuild/install.js'])
  })
  if ('why' in opened || 'why' in made) {
    why = [opened, made].flatMap((each) => ('why' in each ? [each.why] : [])).join('; ')
    return
  }
  browser = opened.browser
  tools = made.folder
  project = await temporaryFolder()
  install(project, pack(project).tarball)
  writeFileSync(join(project, 'main.js'), PROGRAM)
  const train = new Function(`${TRAIN}; return train`)() as (
    ...given: [typeof colonnade, string, number, string]
  ) => Promise<Trained & { weights: Uint8Array }>
  for (const name of ['cartPole', 'pendulum', 'breakout', 'reverse']) {
    for (const seed of SEEDS) {
      const { weights, ...rest } = await train(colonnade, name, seed, 'relaxed')
      const hash = createHash('sha256').update(weights).digest('hex')
      expected.set(`${name} ${seed}`, { ...rest, hash })
    }
  }
  server = createServer(serve)
  await new Promise<void>((resolve) => server!.listen(0, '127.0.0.1', resolve))
}, 600_000)

afterAll(async () => {
  await browser?.close()
  server?.close()
})

const TYPES: Readonly<Record<string, string>> = {
  '.html': 'text/html',
  '.js': 'text/javascript',
  '.mjs': 'text/javascript',
}

/** Serves the project's files; below /isolated/ with the headers by which a page is isolated. */
function serve({ url = '' }: { url?: string }, answer: import('node:http').ServerResponse): void {
  const { pathname } = new URL(url, 'http://page')
  const isIsolated = pathname.startsWith('/isolated/')
  try {
    const path = normalize(pathname.replace('/isolated/', '/'))
    const bytes = readFileSync(join(project, path))
    answer.setHeader('content-type', TYPES[extname(path)] ?? 'application/octet-stream')
    if (isIsolated) {
      answer.setHeader('cross-origin-opener-policy', 'same-origin')
      answer.setHeader('cross-origin-embedder-policy', 'require-corp')
    }
    answer.end(bytes)
  } catch {
    answer.statusCode = 404
    answer.end()
  }
}

/** Runs a tool in the project. Returns its warnings. */
async function build(tool: string, ...words: string[]): Promise<string[]> {
  const path = join(tools, 'node_modules/.bin', tool)
  const { code, stdout, stderr } = await start(path, words, {
    cwd: project,
    timeout: 0,
    env: { ...process.env, NODE_PATH: join(tools, 'node_modules') },
  }).ended
  if (code !== 0) throw new Error(`${tool}: ${stderr}${stdout}`)
  const said = `${stdout}\n${stderr}`.split('\n')
  return said.filter(
    (line) => /^\s*(\(!\) |▲ |WARNING|\[[A-Z_]+\] )/.test(line) && !/Circular dependenc|size limit/i.test(line),
  )
}

/**
 * Opens a page, lets it train what begins so, with two threads where it is isolated, and compares. Returns the kilobytes that it loaded,
 * compressed.
 */
async function opens(path: string, { isIsolated = false, only = '' } = {}): Promise<number> {
  const { port } = server!.address() as AddressInfo
  const page = await browser!.newPage()
  const asked = new Set<string>()
  const wrong: string[] = []
  page.on('request', (request) => asked.add(new URL(request.url()).pathname))
  page.on('pageerror', (error) => wrong.push(String(error)))
  let started = 0
  page.on('worker', () => started++)
  await page.goto(`http://127.0.0.1:${port}/${isIsolated ? 'isolated/' : ''}${path}`)
  await until(page, "typeof globalThis.train === 'function'").catch((error: Error) => wrong.push(error.message))
  expect(wrong).toEqual([])
  for (const [of, { kernels, ...other }] of expected) {
    const [name, seed] = of.split(' ')
    if (!of.startsWith(only)) continue
    const threads = isIsolated && name !== 'reverse' ? 2 : 1
    const workers = started
    const { isShared, ...trained } = await page.evaluate<Trained>(`train('${name}', ${seed}, ${threads})`)
    expect(started - workers).toBe(threads - 1)
    expect(isShared).toBe(isIsolated)
    expect([of, trained]).toEqual([of, { kernels, ...other }])
    if (name === 'cartPole') expect(trained.solved!).toBeGreaterThanOrEqual(475)
  }
  if (only === '') {
    const { threads, why, checks } = await page.evaluate<PageReport>('examine()')
    const there = Object.fromEntries(checks.map(({ name, isThere }) => [name, isThere]))
    expect(there).toMatchObject({ crossOriginIsolated: isIsolated, SharedArrayBuffer: isIsolated })
    expect(there).toMatchObject({ 'WebAssembly relaxed SIMD': true, 'private file system': true })
    if (isIsolated) expect(threads).toBe(await page.evaluate('navigator.hardwareConcurrency'))
    else expect([threads, why]).toEqual([1, expect.stringContaining('Cross-Origin-Embedder-Policy: require-corp')])
  }
  expect(wrong).toEqual([])
  await page.close()
  const files = [...asked]
    .filter((each) => each.endsWith('js'))
    .map((each) => join(project, each.replace('/isolated/', '/')))
  return files.reduce((sum, file) => sum + gzipSync(readFileSync(file), { level: 9 }).byteLength / 1000, 0)
}

/** A page of a bundler that trains CartPole once, with two threads. */
const OF_THREADS = { isIsolated: true, only: 'cartPole 1' }

/** Writes the page of a bundle. */
function pageOf(folder: string, script: string): string {
  writeFileSync(join(project, folder, 'index.html'), `<!doctype html><script type="module" src="./${script}"></script>`)
  return `${folder}/index.html`
}

test('esbuild', async (context) => {
  if (why !== '') skipLoudly(context, why)
  expect(
    await build('esbuild', 'main.js', '--bundle', '--format=esm', '--splitting', '--minify', '--outdir=esbuild'),
  ).toEqual([])
  await opens(pageOf('esbuild', 'main.js'))
  await opens(pageOf('esbuild', 'main.js'), OF_THREADS)
})

test('a page of esbuild that trains CartPole alone is small', async (context) => {
  if (why !== '') skipLoudly(context, why)
  writeFileSync(join(project, 'cart.js'), programOf('{ cartPole, createTrainer, createWorld, mlp, ppo }'))
  await build('esbuild', 'cart.js', '--bundle', '--format=esm', '--splitting', '--minify', '--outdir=cart')
  const kilobytes = await opens(pageOf('cart', 'cart.js'), { only: 'cartPole' })
  expect(kilobytes).toBeGreaterThan(60)
  expect(kilobytes).toBeLessThan(KILOBYTES_MAX)
  console.log(`CartPole with PPO, by esbuild: ${kilobytes.toFixed(1)} kB`)
})

test('Vite', async (context) => {
  if (why !== '') skipLoudly(context, why)
  writeFileSync(join(project, 'index.html'), '<!doctype html><script type="module" src="/main.js"></script>')
  expect(await build('vite', 'build', '--logLevel', 'warn', '--outDir', 'vite', '--base', './')).toEqual([])
  await opens('vite/index.html')
  await opens('vite/index.html', OF_THREADS)
}, 300_000)

test('Rollup', async (context) => {
  if (why !== '') skipLoudly(context, why)
  const plugin = join(tools, 'node_modules/@rollup/plugin-node-resolve/dist/es/index.js')
  const config = `import resolve from '${plugin}'
  export default { input: 'main.js', plugins: [resolve({ browser: true })], output: { dir: 'rollup', format: 'es' } }`
  writeFileSync(join(project, 'rollup.config.mjs'), config)
  expect(await build('rollup', '-c')).toEqual([])
  await opens(pageOf('rollup', 'main.js'))
  await opens(pageOf('rollup', 'main.js'), OF_THREADS)
}, 300_000)

test('webpack', async (context) => {
  if (why !== '') skipLoudly(context, why)
  const config = { mode: 'production', entry: './main.js', performance: { hints: false } }
  const text = `module.exports = { ...${JSON.stringify(config)}, output: { path: __dirname + '/webpack', filename: 'main.js' } }`
  writeFileSync(join(project, 'webpack.config.cjs'), text)
  expect(await build('webpack', '-c', 'webpack.config.cjs')).toEqual([])
  await opens(pageOf('webpack', 'main.js'))
  await opens(pageOf('webpack', 'main.js'), OF_THREADS)
}, 300_000)

/** What a page does with a run: begins it, keeps it, and goes on with it once it is opened again. Node runs the whole. */
const KEEPER = `
import { configureRun, forgetFolder, keepFolder, keptFolders, loadFolder, readFile, resumeRun, startRun } from 'colonnade'
async function train(run, updates) {
  const stop = new AbortController()
  let seen = 0
  await run.train({ signal: stop.signal, onUpdate: () => ++seen >= updates && stop.abort() })
  await keepFolder(run.folder)
}
globalThis.begin = async (environment, given) => {
  await train(await startRun(await configureRun(environment, given), 'runs/kept'), 2)
  await train(await resumeRun('runs/kept'), 1)
  return keptFolders()
}
globalThis.goOn = async () => {
  const isThere = await loadFolder('runs/kept')
  const run = await resumeRun('runs/kept')
  await run.train()
  await forgetFolder('runs/kept')
  const { checkpointNumber } = run.trainer
  const path = 'runs/kept/checkpoints/' + String(checkpointNumber).padStart(8, '0') + '/manifest.json'
  const { files } = JSON.parse(new TextDecoder().decode(await readFile(path)))
  return { isThere, files, left: await keptFolders(), again: await loadFolder('runs/kept') }
}
`
const OF_LANES = { numLanes: '8', totalSteps: '1600' }
const RUNS = [
  ['CartPole-v1', OF_LANES],
  ['CartPole-v1', { ...OF_LANES, algorithm: 'dqn', 'dqn.learningStarts': '400' }],
  ['Pendulum-v1', { ...OF_LANES, algorithm: 'sac', 'sac.learningStarts': '400' }],
  ['Breakout-MinAtar', { ...OF_LANES, policy: 'convolutional', 'ppo.numSteps': '32' }],
  ['text/reverse', { numLanes: '16', 'sft.updates': '4', 'rl.updates': '4', 'rl.groupsPerUpdate': '4' }],
] as const

test('a run outlives its page in the private file system, and ends with the bits of one of Node', async (context) => {
  if (why !== '') skipLoudly(context, why)
  writeFileSync(join(project, 'keeper.js'), KEEPER)
  await build('esbuild', 'keeper.js', '--bundle', '--format=esm', '--splitting', '--minify', '--outdir=keeper')
  const { port } = server!.address() as AddressInfo
  const address = `http://127.0.0.1:${port}/${pageOf('keeper', 'keeper.js')}`
  const page = await browser!.newPage()
  for (const [environment, given] of RUNS) {
    for (const seed of SEEDS) {
      const keys = { ...given, seed: String(seed) }
      const folder = join(await temporaryFolder(), 'whole')
      const whole = await configureRun(environment as string, { ...keys, kernels: 'relaxed' })
      await (await startRun(whole, folder)).train()
      const last = readdirSync(join(folder, 'checkpoints')).sort().at(-1)!
      const { files } = JSON.parse(readFileSync(join(folder, 'checkpoints', last, 'manifest.json'), 'utf8'))
      await page.goto(address)
      await until(page, "typeof globalThis.begin === 'function'")
      const kept = await page.evaluate(`begin('${environment}', ${JSON.stringify(keys)})`)
      expect(kept).toEqual(['/runs/kept'])
      await page.goto(`${address}?again`)
      await until(page, "typeof globalThis.goOn === 'function'")
      const ended = await page.evaluate('goOn()')
      expect([environment, seed, ended]).toEqual([environment, seed, { isThere: true, files, left: [], again: false }])
    }
  }
  await page.close()
}, 600_000)

test('no bundler: modules from a folder, by an import map; with shared memory and without', async (context) => {
  if (why !== '') skipLoudly(context, why)
  mkdirSync(join(project, 'plain'))
  for (const name of ['colonnade', 'bitecs']) {
    cpSync(join(project, 'node_modules', name), join(project, 'plain', name), { recursive: true, dereference: true })
  }
  const { exports } = JSON.parse(readFileSync(join(project, 'plain/bitecs/package.json'), 'utf8')) as {
    exports: { '.': { import: { default: string } | string } }
  }
  const way = exports['.'].import
  const bitecs = typeof way === 'string' ? way : way.default
  const imports = {
    colonnade: './colonnade/dist/page/index.js',
    'colonnade/text': './colonnade/dist/page/entries/text.js',
    bitecs: `./bitecs/${bitecs.replace('./', '')}`,
  }
  const page = `<!doctype html><script type="importmap">${JSON.stringify({ imports })}</script><script type="module">${PROGRAM}</script>`
  writeFileSync(join(project, 'plain/index.html'), page)
  await opens('plain/index.html')
  await opens('plain/index.html', { isIsolated: true })
  const built = readdirSync(join(project, 'plain/colonnade/dist/page'), { recursive: true, encoding: 'utf8' })
  expect(built.filter((name) => statSync(join(project, 'plain/colonnade/dist/page', name)).size === 0)).toEqual([])
})
