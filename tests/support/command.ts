import { type ChildProcess, type SpawnOptions, spawn } from 'node:child_process'
import { existsSync } from 'node:fs'
import { mkdir, rm, symlink } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { format } from 'node:util'
import { vi } from 'vitest'

/** The built command line, as in `bin`. */
export const MAIN = fileURLToPath(new URL('../../dist/src/cli/main.js', import.meta.url))

if (!existsSync(MAIN)) throw new Error(`${MAIN} is not there: npm run build`)

/** Node's flags for running these tests' TypeScript, with built files for imports of the source. */
export const SOURCE = ['--import', new URL('./built.mjs', import.meta.url).href]

/** Settings of a short training: 8 updates of 256 steps. */
export const SMALL = [
  'totalSteps=2048',
  'numLanes=8',
  'mlp.hidden=8',
  'ppo.numSteps=32',
  'ppo.numMinibatches=1',
  'ppo.updateEpochs=1',
  'ppo.gamma=0.95',
]

export interface Ended {
  /** Exit code; null if a signal ended it. */
  readonly code: number | null
  readonly stdout: string
  readonly stderr: string
}

export interface Started {
  readonly process: ChildProcess
  readonly ended: Promise<Ended>
  /** Settles when the process has printed this on standard output or error, or has ended. */
  printed(text: string): Promise<void>
}

/** Starts a program with piped output. It is killed after a minute, and then has no exit code. */
export function start(program: string, words: readonly string[], options: SpawnOptions = {}): Started {
  const process = spawn(program, words, {
    timeout: 60_000,
    killSignal: 'SIGKILL',
    ...options,
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  const text = { stdout: '', stderr: '' }
  for (const name of ['stdout', 'stderr'] as const) {
    process[name]!.setEncoding('utf8').on('data', (chunk: string) => {
      text[name] += chunk
      process.emit('printed')
    })
  }
  const ended = new Promise<Ended>((resolve, reject) => {
    process.on('error', reject)
    process.on('close', (code) => {
      resolve({ code, ...text })
      process.emit('printed')
    })
  })
  const printed = (wanted: string) =>
    new Promise<void>((resolve) => {
      const look = () => {
        const isThere = text.stdout.includes(wanted) || text.stderr.includes(wanted)
        if (!isThere && process.exitCode === null && process.signalCode === null) return
        process.off('printed', look)
        resolve()
      }
      process.on('printed', look)
      look()
    })
  return { process, ended, printed }
}

/** Runs `colonnade` to its end, with these additional environment variables. */
export function colonnade(
  words: readonly string[],
  cwd?: string,
  environment: Readonly<Record<string, string>> = {},
): Promise<Ended> {
  return start(process.execPath, [MAIN, ...words], { cwd, env: { ...process.env, ...environment } }).ended
}

/** The same for a package installed in a folder, with its optional packages. */
export async function colonnadeIn(
  folder: string,
  words: readonly string[],
  environment: Readonly<Record<string, string>> = {},
): Promise<Ended> {
  const link = join(folder, 'node_modules', 'colonnade')
  await mkdir(dirname(link), { recursive: true })
  await rm(link, { force: true })
  await symlink(fileURLToPath(new URL('../..', import.meta.url)), link)
  const main = join(link, 'dist/src/cli/main.js')
  return start(process.execPath, [main, ...words], { cwd: folder, env: { ...process.env, ...environment } }).ended
}

let turn: Promise<unknown> = Promise.resolve()

/**
 * Runs a command in this process, if it needs no process of its own. One at a time: they share the working directory,
 * the exit code and the output.
 */
export function inProcess(words: readonly string[], cwd = process.cwd()): Promise<Ended> {
  const ended = turn.then(() => runHere(words, cwd))
  turn = ended.catch(() => undefined)
  return ended
}

async function runHere(words: readonly string[], cwd: string): Promise<Ended> {
  const { runCommand } = await import('../../dist/src/cli/words/command.js')
  const text = { stdout: '', stderr: '' }
  const print = (name: keyof typeof text) => (what: string | Uint8Array) => {
    text[name] += typeof what === 'string' ? what : Buffer.from(what).toString()
    return true
  }
  const line =
    (name: keyof typeof text) =>
    (first?: unknown, ...more: unknown[]) => {
      text[name] += `${format(first, ...more)}\n`
    }
  const printed = [
    vi.spyOn(process.stdout, 'write').mockImplementation(print('stdout')),
    vi.spyOn(process.stderr, 'write').mockImplementation(print('stderr')),
    ...(['log', 'info'] as const).map((name) => vi.spyOn(console, name).mockImplementation(line('stdout'))),
    ...(['error', 'warn'] as const).map((name) => vi.spyOn(console, name).mockImplementation(line('stderr'))),
  ]
  const [before, exitCode] = [process.cwd(), process.exitCode]
  process.exitCode = undefined
  process.chdir(cwd)
  try {
    await runCommand(words)
    return { code: Number(process.exitCode ?? 0), ...text }
  } finally {
    process.chdir(before)
    process.exitCode = exitCode
    for (const spy of printed) spy.mockRestore()
  }
}

/** A whole number from an environment variable. @throws Error for another one, before anything is measured. */
export function countFrom(name: string, usual: number, least = 1): number {
  const given = process.env[name] ?? String(usual)
  if (/^\d+$/.test(given) && Number(given) >= least) return Number(given)
  throw new Error(`${name}: got ${JSON.stringify(given)}, expected a whole number from ${least}`)
}

/** Reports on the terminal what could not be tested, and why; vitest's skip is silent. */
export function skipLoudly(context: { skip(note?: string): never }, why: string): never {
  console.warn(`SKIPPED: ${why}`)
  return context.skip(why)
}
