/** What tests of others' software need and is too large to make each time: kept in a folder beside other temporary files. */
import { existsSync } from 'node:fs'
import { mkdir, readFile, rename, rm, stat, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { start } from './command.ts'

/** Where it is, or why it could not be made here. */
export type Made = { readonly folder: string } | { readonly why: string }

const INSTALL_MS = 240_000
/** For so long a failure is believed, so that each test file need not wait for it anew. */
const FAILURE_MS = 10 * 60_000

/**
 * The folder of this name, filled by `make` if it is not there. Test files run side by side: one makes it, the others
 * wait. The name should have the versions in it.
 */
export async function cached(name: string, make: (folder: string) => Promise<void>): Promise<Made> {
  const root = join(tmpdir(), 'colonnade-tests')
  const [folder, lock, failure] = ['', '.lock', '.failed'].map((ending) => join(root, name + ending)) as [
    string,
    ...string[],
  ]
  await mkdir(root, { recursive: true })
  while (true) {
    if (existsSync(folder)) return { folder }
    const failed = await stat(failure!).catch(() => undefined)
    if (failed !== undefined && Date.now() - failed.mtimeMs < FAILURE_MS)
      return { why: await readFile(failure!, 'utf8') }
    const isOurs = await writeFile(lock!, String(process.pid), { flag: 'wx' }).then(
      () => true,
      () => false,
    )
    if (isOurs) break
    const owner = Number(await readFile(lock!, 'utf8').catch(() => '0'))
    if (owner > 0 && !isAlive(owner)) await rm(lock!, { force: true })
    await sleep(300)
  }
  const part = `${folder}.${process.pid}`
  try {
    console.warn(`making ${folder}: once, some minutes at most`)
    await mkdir(part)
    await make(part)
    await rename(part, folder)
    return { folder }
  } catch (error) {
    const why = (error as Error).message
    await rm(part, { recursive: true, force: true })
    await writeFile(failure!, why)
    return { why }
  } finally {
    await rm(lock!, { force: true })
  }
}

/** Runs a program to its end; throws with the last lines of what it said if it fails or takes too long. */
export async function run(program: string, words: readonly string[], cwd: string): Promise<void> {
  const { code, stderr } = await start(program, words, { cwd, timeout: INSTALL_MS }).ended.catch((cause: Error) => ({
    code: null,
    stderr: cause.message,
  }))
  if (code === 0) return
  const said = stderr.trim().split('\n').slice(-3).join(' | ')
  throw new Error(
    `${program} ${words.slice(0, 4).join(' ')}: ${code === null ? 'ended early' : `code ${code}`}: ${said}`,
  )
}

/** Installs packages from npm's registry into a folder, without running their install scripts. */
export async function installPackages(folder: string, packages: readonly string[]): Promise<void> {
  await writeFile(join(folder, 'package.json'), '{ "private": true }')
  const quiet = ['--ignore-scripts', '--no-audit', '--no-fund', '--loglevel=error', '--fetch-retries=1']
  await run('npm', ['install', ...quiet, ...packages], folder)
}

function isAlive(process_: number): boolean {
  try {
    return process.kill(process_, 0)
  } catch {
    return false
  }
}
