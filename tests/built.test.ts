/** What the build makes of the modules: few files to load, and one object for each name, however it is imported. */
import { execFileSync } from 'node:child_process'
import { cpSync, mkdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { describe, expect, test } from 'vitest'
import { MAIN } from './support/command.ts'
import { temporaryFolder } from './support/temporary.ts'

const INDEX = new URL('../dist/src/index.js', import.meta.url).href
const HOOK = fileURLToPath(new URL('./support/list-loaded.mjs', import.meta.url))

/** What a program of Node prints, and which files it loads. */
async function loadedBy(...program: string[]): Promise<{ output: string; files: string[] }> {
  const list = join(await temporaryFolder(), 'loaded.txt')
  const env = { ...process.env, LOADED: list }
  const output = execFileSync(process.execPath, ['--import', HOOK, ...program], { encoding: 'utf8', env })
  const files = readFileSync(list, 'utf8').split('\n')
  return { output, files: files.filter((url) => url.startsWith('file:')) }
}

const run = (code: string) => loadedBy('--input-type=module', '--eval', code)
const packagesOf = (files: readonly string[]) => [
  ...new Set(files.flatMap((url) => /node_modules\/((?:@[^/]+\/)?[^/]+)/.exec(url)?.[1] ?? [])),
]

describe('start-up', () => {
  test('the version is told without the index', async () => {
    const { output, files } = await loadedBy(MAIN, '--version')
    expect(output).toMatch(/^\d+\.\d+\.\d+\n$/)
    expect(files.map((url) => url.replace(/.*\/dist\/src\//, '')).sort()).toEqual([
      'base/errors.js',
      'base/pair.js',
      'base/version.js',
      'cli/main.js',
      'cli/show/streams.js',
      'cli/words/command.js',
      'cli/words/stray.js',
      'cli/words/words.js',
    ])
  })

  test('the first tick of a program loads two dozen files at most, and of packages bitecs alone', async () => {
    const { output, files } = await run(`
      import { cartPole, createWorld, mlp, tick } from '${INDEX}'
      const world = await createWorld({ environment: cartPole(), policy: mlp(), numLanes: 4, seed: 1 })
      await tick(world)
      console.log(world.cohorts[0].episode.step.join())`)
    expect(output).toBe('1,1,1,1\n')
    expect(packagesOf(files)).toEqual(['bitecs'])
    expect(files.length).toBeLessThan(24)
  })
})

describe('a module at its own path', () => {
  test('has the very objects of the index, and definitions name it', async () => {
    const { output } = await run(`
      import * as index from '${INDEX}'
      const factories = [...index.policies, ...index.environments, ...index.textEnvironments, index.ppo]
      const made = factories.filter(({ id }) => id !== 'dataset').map((factory) => [factory, factory().module])
      const wrong = []
      for (const [factory, module] of made) {
        if (!Object.values(await import(module)).includes(factory)) wrong.push(factory.id)
      }
      console.log(JSON.stringify({ count: made.length, wrong, mlp: index.mlp().module }))`)
    const { count, wrong, mlp } = JSON.parse(output)
    expect(count).toBeGreaterThan(12)
    expect(wrong).toEqual([])
    expect(mlp).toBe(new URL('./policies/mlp.js', INDEX).href)
  })
})

test('packages that an example installed are no sources, even if one links to this folder', async () => {
  const folder = await temporaryFolder()
  const installed = join(folder, 'examples/pond/node_modules')
  for (const path of ['scripts', 'src/kernels', 'bench', 'examples/pond/node_modules/three']) {
    mkdirSync(join(folder, path), { recursive: true })
  }
  cpSync(fileURLToPath(new URL('../scripts/stamp.mjs', import.meta.url)), join(folder, 'scripts/stamp.mjs'))
  symlinkSync(folder, join(installed, 'colonnade'), 'junction')
  for (const path of ['src/kernels/gae.ts', 'examples/pond/pond.ts', 'examples/pond/node_modules/three/three.ts']) {
    writeFileSync(join(folder, path), '')
  }
  const { SOURCES } = (await import(pathToFileURL(join(folder, 'scripts/stamp.mjs')).href)) as {
    SOURCES: { modules(): string[] }
  }
  expect(SOURCES.modules().filter((path) => path.endsWith('.ts'))).toEqual([
    'src/kernels/gae.ts',
    'examples/pond/pond.ts',
  ])
})
