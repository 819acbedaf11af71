import { existsSync } from 'node:fs'
import { mkdir, mkdtemp, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { beforeEach, describe, expect, test } from 'vitest'
import { findPackage, importPackage, NotInstalled } from '../src/base/files/packages.ts'
import { MAIN, start } from './support/command.ts'
import { metricLines, writeConversations, writeRun } from './support/run-folders.ts'
import { temporaryFolder } from './support/temporary.ts'

const BUILT = pathToFileURL(MAIN.replace('cli/main.js', 'base/files/packages.js')).href
/** A program that says where it finds the package `colonnade-guest`, in the main thread and in one that it starts. */
const LOOK = `
  import { isMainThread, Worker } from 'node:worker_threads'
  const { findPackage } = await import(${JSON.stringify(BUILT)})
  let found
  try { found = findPackage('colonnade-guest').manifest } catch (error) { found = error.message }
  console.log(found)
  if (isMainThread) new Worker(new URL('data:text/javascript,' + encodeURIComponent(look)))`
const PROGRAM = `const look = ${JSON.stringify(LOOK.replace(/ {2}if .*$/, ''))}\n${LOOK}`

let folder: string

/** Puts a package into the node_modules of a folder; loading it writes a file of its name there. */
async function install(into: string, name = 'colonnade-guest', files: Record<string, string> = {}): Promise<string> {
  const place = join(into, 'node_modules', name)
  const mark = `require('node:fs').writeFileSync(${JSON.stringify(join(folder, 'mark'))}, 'run')`
  const all = { 'package.json': '{ "version": "1.2.3" }', 'index.js': `${mark}; exports.answer = 42`, ...files }
  for (const [file, text] of Object.entries(all)) {
    await mkdir(join(place, file, '..'), { recursive: true })
    await writeFile(join(place, file), text.replaceAll('MARK', mark))
  }
  return join(place, 'package.json')
}

/** What a program finds: first in its main thread, then in another. */
async function found(words: readonly string[], cwd: string): Promise<string[]> {
  const { stdout, stderr } = await start(process.execPath, words, { cwd }).ended
  expect(stderr).toBe('')
  return stdout.trim().split('\n')
}

beforeEach(async () => {
  folder = await temporaryFolder()
})

describe('an optional package', () => {
  test('is found beside the program, in all of its threads, and not where the program was started', async () => {
    const project = join(folder, 'project')
    const elsewhere = join(folder, 'elsewhere')
    const manifest = await install(project)
    await install(elsewhere)
    const program = join(project, 'program.mjs')
    await writeFile(program, PROGRAM)
    expect(await found([program], elsewhere)).toEqual([manifest, manifest])
  })

  test('is not found in the working directory as such, nor beside a word of a program that is a text', async () => {
    const manifest = await install(folder)
    const missing = 'package colonnade-guest is not installed (npm install colonnade-guest)'
    const evaluated = ['--input-type=module', '-e', PROGRAM]
    expect(await found(evaluated, folder)).toEqual([missing, missing])
    expect(await found([...evaluated, manifest], folder)).toEqual([missing, missing])
  })

  test('is not loaded from a run folder, also where the program lies there', async () => {
    const run = join(folder, 'run')
    const manifest = await install(join(run, 'deeper'))
    await writeRun(run)
    const program = join(run, 'deeper/program.mjs')
    await writeFile(program, PROGRAM)
    const refusal = `${manifest} lies in the run folder ${run}, from which nothing is loaded`
    expect(await found([program], '/')).toEqual([refusal, refusal])
  })

  test('is imported from the first place that has it, as CommonJS and as an ES module', async () => {
    await install(folder)
    const places = [`${await mkdtemp(join(folder, 'none-'))}/none/`, `${folder}/`]
    expect(findPackage('colonnade-guest', places).version).toBe('1.2.3')
    expect(await importPackage('colonnade-guest', undefined, places)).toMatchObject({ answer: 42 })
    await install(folder, '@scope/esm', {
      'package.json': '{ "version": "2.0.0", "type": "module", "exports": { "./*": "./*" } }',
      'deep/module.js': 'export const answer = 43',
    })
    expect(await importPackage('@scope/esm/deep/module.js', undefined, places)).toMatchObject({ answer: 43 })
  })

  test('is found by its package.json also where it does not export that, as DuckDB-Wasm', async () => {
    const exports = '{ "./blocking": "./blocking.js" }'
    const manifest = await install(folder, '@scope/hidden', {
      'package.json': `{ "version": "3.0.0", "exports": ${exports} }`,
      'blocking.js': 'exports.answer = 44',
    })
    const found = findPackage('@scope/hidden', [`${folder}/`])
    expect([found.manifest, found.version]).toEqual([manifest, '3.0.0'])
    expect(found.require('@scope/hidden/blocking')).toEqual({ answer: 44 })
    await expect(importPackage('@scope/hidden/other.js', undefined, [`${folder}/`])).rejects.toThrow(
      /not defined by "exports"/,
    )
  })

  test('that is missing is said by its name, with what to install', async () => {
    const missing = importPackage('@scope/none/deep/module.js', 'one two', [`${folder}/`])
    await expect(missing).rejects.toThrow(NotInstalled)
    await expect(missing).rejects.toThrow('package @scope/none is not installed (npm install one two)')
  })
})

test('the page of an unpacked run does not run the DuckDB-Wasm that came with it', async () => {
  const run = join(folder, 'unpacked')
  await writeRun(run, { metrics: metricLines({ update: 1 }) })
  await writeConversations(join(run, 'trajectories/1.arrow'), ['one'])
  await install(run, '@duckdb/duckdb-wasm', { 'dist/duckdb-eh.wasm': '', 'blocking.js': 'MARK' })
  const {
    process: dashboard,
    printed,
    ended,
  } = start(process.execPath, [MAIN, 'dashboard', '.', 'port=0'], { cwd: run })
  try {
    let text = ''
    dashboard.stdout!.on('data', (chunk: string) => {
      text += chunk
    })
    await printed('http://')
    const url = /http:\/\/[^\s;]+/.exec(text)![0]
    const { runs } = (await (await fetch(`${url}/api/runs`)).json()) as { runs: { id: string }[] }
    const query = new URLSearchParams({ run: runs[0]!.id, file: 'trajectories/1.arrow', sql: 'FROM rows' })
    const answer = await (await fetch(`${url}/api/rows?${query}`)).text()
    expect(answer).toContain('no package @duckdb/duckdb-wasm')
    expect(existsSync(join(folder, 'mark'))).toBe(false)
  } finally {
    dashboard.kill('SIGKILL')
    await ended
  }
})
