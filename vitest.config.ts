import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { availableParallelism } from 'node:os'
import { pathToFileURL } from 'node:url'
import { defineConfig } from 'vitest/config'
import { BaseSequencer, type TestSpecification } from 'vitest/node'

const root = new URL('.', import.meta.url)

/** What the package's own names stand for. */
const ENTRIES = [
  [/^colonnade$/, 'src/index.ts'],
  [/^colonnade\/kernels$/, 'src/kernels/bind.ts'],
  [/^colonnade\/([\w-]+)$/, 'src/entries/$1.ts'],
] as const

/** A test that imports the source gets what was built of it, which Node loads at once and as users have it. */
const builtSource = {
  name: 'built-source',
  enforce: 'pre' as const,
  resolveId(specifier: string, importer: string | undefined) {
    if (importer === undefined) return null
    const entry = ENTRIES.find(([name]) => name.test(specifier))
    const path = specifier.startsWith('.')
      ? new URL(specifier, pathToFileURL(importer)).pathname.replace(root.pathname, '')
      : entry && specifier.replace(entry[0], entry[1])
    if (path === undefined || !/^(src|examples|bench)\/.*\.ts$/.test(path)) return null
    return { id: new URL(`dist/${path.slice(0, -'.ts'.length)}.js`, root).pathname, external: true }
  },
}

/** A test that mocks modules of the source imports the source itself; threads and pages that it starts run what is built. */
const builtWorkers = {
  name: 'built-workers',
  enforce: 'pre' as const,
  transform(code: string, id: string) {
    const folder = /\/src\/(.*\/)?[^/]+\.ts$/.exec(id)?.[1]
    if (folder === undefined || !id.startsWith(root.pathname)) return null
    if (id.endsWith('/training/threads/team.ts')) {
      const entry = new URL('tests/support/built-worker.mjs', root).href
      return code.replace("new URL('./worker.js', import.meta.url)", `new URL('${entry}')`)
    }
    return code.replaceAll(
      /new URL\((['`])\.\/([\w-]+-worker|\$\{name\})\.js\1, import\.meta\.url\)/g,
      (_, quote, name) => {
        return `new URL(${quote}${new URL(`dist/src/${folder}`, root).href}${name}.js${quote})`
      },
    )
  },
}

/** The files that take longest, the longest first: begun last, one of them would keep a single core while others rest. */
const LONG = [
  'policies/network-webgpu',
  'policies/webgpu',
  'algorithms/device-learner',
  'training/threads',
  'cli',
  'kernels/simd',
  'cli/text',
  'training/faults',
  'cli/stuck',
  'training/text/threads',
  'learning/ppo',
  'cli/doctor',
  'examples',
  'kernels/transformer',
  'policies/devices/binding',
  'training/actors',
  'training/settings-act',
  'learning/convolutional',
  'policies/network',
  'training/bits',
  'training/checkpoint-kill',
  'cli/alone',
  'foreign/run',
  'training/tinker',
  'trust',
  'learning/recurrent',
].map((name) => {
  const path = new URL(`tests/${name}.test.ts`, root).pathname
  if (!existsSync(path)) throw new Error(`LONG of vitest.config.ts: got ${path}, expected a test file that is there`)
  return path
})

class LongestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const place = ({ moduleId }: TestSpecification) => (LONG.indexOf(moduleId) + LONG.length + 1) % (LONG.length + 1)
    return (await super.sort(files)).toSorted((a, b) => place(a) - place(b))
  }
}

/** Tests that need modules of their own: of devices, whose libraries keep one state, of learning, and of single bytes of files. */
const ALONE =
  /^tests\/(guarded|algorithms\/device-learner|policies\/(devices|network|webgpu(?!-plan))|learning|outside)\b/

/**
 * Files that `npm test` leaves to the thorough tier (`npm run test:all`): learning, all that is installed from registries, devices
 * that are built or emulated here, kills and faults, packages, and leaks that take a thousand updates to show. Of other files it
 * leaves out what tests/support/tiers.ts says.
 */
const THOROUGH = [
  'learning/.*',
  'outside/.*',
  'algorithms/device-learner',
  'fleet/(forecast|nats|fleet-processes)',
  '(training|agents/serving)/faults',
  'agents/serving/raw-fuzz',
  'cli/(actors|alone|stuck)',
  'policies/devices/binding',
  'examples',
  'packages',
  'packed(-links)?',
  'policies/(network-(tensorflow|webgpu)|webgpu|export/onnx)',
  'training/(checkpoint-kill|tinker-skyrl)',
  'training/text/(arena|asynchronous-kill)',
].map((name) => new RegExp(`^tests/${name}\\.test\\.ts$`))

/** What a test does to modules that the source imports. */
const MOCKS = /\bvi\.(mock|doMock|resetModules)\(|in-process-team/

/** What is built is loaded as it stands: by Node, in which it is what threads and processes of their own load. */
const BUILT = /\/dist\/(src|examples|bench)\//

/**
 * Most files share modules with the files before them in their process: to load these anew takes longer than most of their
 * tests. tests/support/process.ts gives each file the process as the run began it.
 */
const FILES = readdirSync(new URL('tests', root), { recursive: true, encoding: 'utf8' })
  .filter((path) => path.endsWith('.test.ts'))
  .map((path) => `tests/${path}`)
const textOf = (path: string) => readFileSync(new URL(path, root), 'utf8')
const MOCKING = FILES.filter((path) => MOCKS.test(textOf(path)))
const APART = FILES.filter((path) => !MOCKING.includes(path) && ALONE.test(path))
const SHARING = FILES.filter((path) => !MOCKING.includes(path) && !APART.includes(path))

for (const each of THOROUGH) {
  if (FILES.some((path) => each.test(path))) continue
  throw new Error(`THOROUGH of vitest.config.ts: got ${each.source}, expected a test file that is there`)
}

/** `vitest run --mode all` has every file, as have the modes of the thorough tier. */
const leftOut = (mode: string): string[] =>
  mode === 'test' ? FILES.filter((path) => THOROUGH.some((each) => each.test(path))) : []

export default defineConfig(({ mode }) => ({
  test: {
    globalSetup: new URL('tests/support/built-now.ts', root).pathname,
    server: { deps: { external: [BUILT] } },
    execArgv: ['--import', new URL('tests/support/built.mjs', root).href],
    setupFiles: [new URL('tests/support/process.ts', root).pathname],
    projects: [
      { name: 'sharing', include: SHARING, isolate: false, plugins: [builtSource] },
      { name: 'apart', include: APART, plugins: [builtSource] },
      { name: 'mocking', include: MOCKING, plugins: [builtWorkers] },
    ].map(({ plugins, ...test }) => ({ extends: true, mode, plugins, test: { ...test, exclude: leftOut(mode) } })),
    testTimeout: ['properties', 'learn'].includes(mode) ? 1_200_000 : 120_000,
    hookTimeout: 300_000,
    // By itself vitest leaves one core idle: half of the two that most machines for tests have. And some tests wait.
    maxWorkers: Math.ceil(1.5 * availableParallelism()),
    sequence: { sequencer: LongestFirst },
  },
}))
