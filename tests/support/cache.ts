/** Caches large prerequisites of tests with other software, in a folder of temporary files. */
import { existsSync } from 'node:fs'
import { mkdir, readFile, rename, rm, stat, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { start } from './command.ts'

/** The folder, or why it could not be made here. */
export type Made = { readonly folder: string } | { readonly why: string }

/** Runs a program to its end in the folder being made, or below it. */
export type Run = (program: string, words: readonly string[], below?: string) => Promise<void>

/** Default time limit of making, shorter than a hook's. */
const MAKE_MS = 270_000
/** How long a failure is remembered, so that not every test file waits for it again. */
const FAILURE_MS = 10 * 60_000

/**
 * The folder of this name, filled by `make` if missing. Of parallel test files one makes it, and the others wait. The
 * name should contain versions.
 */
export async function cached(
  name: string,
  make: (folder: string, run: Run) => Promise<void>,
  makeMs = MAKE_MS,
): Promise<Made> {
  const root = join(tmpdir(), 'colonnade-tests')
  await mkdir(root, { recursive: true })
  const folder = join(root, name)
  const [lock, part, failure] = [`${folder}.lock`, `${folder}.part`, `${folder}.failed`]
  while (true) {
    if (existsSync(folder)) return { folder }
    const failed = await stat(failure).catch(() => undefined)
    if (failed !== undefined && Date.now() - failed.mtimeMs < FAILURE_MS)
      return { why: await readFile(failure, 'utf8') }
    if (await take(lock)) break
    await sleep(300)
  }
  try {
    console.warn(`making ${folder}: once, some minutes at most`)
    await rm(part, { recursive: true, force: true })
    await mkdir(part)
    const deadline = AbortSignal.timeout(makeMs)
    await make(part, (program, words, below = '') => run(program, words, join(part, below), deadline))
    await rename(part, folder)
    return { folder }
  } catch (error) {
    const why = (error as Error).message
    await rm(part, { recursive: true, force: true })
    await writeFile(failure, why)
    return { why }
  } finally {
    await rm(lock, { force: true })
  }
}

/** Installs packages from npm's registry, without running their install scripts. */
export async function installPackages(folder: string, run: Run, packages: readonly string[]): Promise<void> {
  await writeFile(join(folder, 'package.json'), '{ "private": true }')
  const options = ['--ignore-scripts', '--no-audit', '--no-fund', '--loglevel=error', '--fetch-retry-mintimeout=1000']
  await run('npm', ['install', ...packages, ...options])
}

/** Runs a program. Throws its error output if it fails or exceeds the time. */
async function run(program: string, words: readonly string[], cwd: string, signal: AbortSignal): Promise<void> {
  const ended = await start(program, words, { cwd, signal, timeout: 0 }).ended.catch((cause: Error) => cause)
  if (!(ended instanceof Error) && ended.code === 0) return
  const said = (ended instanceof Error ? ended.message : ended.stderr).trim().split('\n')
  const errors = said.filter((line) => /error/i.test(line))
  const reason = (errors.length > 0 ? errors : said).slice(0, 3).join(' | ')
  throw new Error(`${program} ${words.slice(0, 2).join(' ')}: ${signal.aborted ? 'not done in time' : reason}`)
}

/** Makes a file with our process's number, unless it exists; replaces that of a dead process. */
async function take(lock: string): Promise<boolean> {
  try {
    await writeFile(lock, String(process.pid), { flag: 'wx' })
    return true
  } catch {
    const owner = Number(await readFile(lock, 'utf8').catch(() => '0'))
    if (owner > 0 && !isAlive(owner)) await rm(lock, { force: true })
    return false
  }
}

function isAlive(owner: number): boolean {
  try {
    return process.kill(owner, 0)
  } catch {
    return false
  }
}
