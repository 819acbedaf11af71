/** Injects faults into the file operations of runs, with two small runs for it. */
import { createHash } from 'node:crypto'
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { disk } from '../../src/base/files/files.ts'
import { configureRun, resumeRun, startRun } from '../../src/index.ts'
import { SMALL } from './command.ts'

/**
 * How a file operation fails. `partial`: half of it is done (half the bytes of a write, otherwise all), then the disk
 * is full.
 */
export const faults = ['ENOSPC', 'EIO', 'partial'] as const
export type Fault = (typeof faults)[number]

/** The settings of each run, also for `crashing-run.mjs`. */
export const SETTINGS = {
  control: {
    environment: 'CartPole-v1',
    words: [...SMALL, 'totalSteps=512', 'checkpointEvery=1', 'checkpointsKept=1'],
  },
  text: {
    environment: 'text/reverse',
    words: [
      ...['environment.maxLength=2', 'languageModel.width=8', 'languageModel.layers=1', 'numLanes=4', 'threads=1'],
      ...['sft.updates=1', 'sft.batchSize=2', 'rl.groupSize=2', 'rl.groupsPerUpdate=1', 'rl.updates=1'],
      ...['checkpointEvery=1', 'checkpointsKept=1'],
    ],
  },
} as const
export type Kind = keyof typeof SETTINGS

function textsOf(kind: Kind): Record<string, string> {
  return Object.fromEntries(SETTINGS[kind].words.map((word) => word.split('=')))
}

/** Trains in the folder: resumes its run, or starts one. */
export async function trainIn(kind: Kind, folder: string): Promise<void> {
  const isRun = existsSync(join(folder, 'config.json'))
  const begin = async () => startRun(await configureRun(SETTINGS[kind].environment as string, textsOf(kind)), folder)
  await (isRun ? await resumeRun(folder) : await begin()).train()
}

/** Lets the n-th file operation fail, or with `isForGood` all from it on. `count` returns their number. */
export function putFault(n: number, fault: Fault, isForGood: boolean): { count(): number; undo(): void } {
  const real = { ...disk }
  let count = 0
  const error = () => Object.assign(new Error(`${fault} put in`), { code: fault === 'EIO' ? 'EIO' : 'ENOSPC' })
  const isDue = () => {
    count++
    return isForGood ? count >= n : count === n
  }
  for (const [name, operation] of Object.entries(real)) {
    Object.assign(disk, {
      [name]: (...words: never[]) => {
        if (!isDue()) return (operation as (...words: never[]) => unknown)(...words)
        if (name === 'append') {
          const [path, text] = words as unknown as [string, string]
          if (fault === 'partial') real.append(path, text.slice(0, text.length >> 1))
          throw error()
        }
        return half(name, words, operation as never).then(() => {
          throw error()
        })
      },
    })
  }
  const half = async (name: string, words: never[], operation: (...words: never[]) => Promise<unknown>) => {
    if (name === 'close') return operation(...words) // Otherwise the test would run out of descriptors.
    if (fault !== 'partial') return
    if (name !== 'write') {
      const opened = await operation(...words)
      if (name === 'open') await real.close(opened as never)
      return
    }
    const [handle, bytes, from] = words as unknown as [never, Uint8Array, number]
    await real.write(handle, bytes.subarray(0, from + ((bytes.byteLength - from) >> 1)), from)
  }
  return { count: () => count, undo: () => void Object.assign(disk, real) }
}

/** What must be equal in two equal runs, by file, without times. */
export function traces(folder: string): Record<string, string> {
  const found: Record<string, string> = {}
  for (const entry of readdirSync(folder, { recursive: true, withFileTypes: true })) {
    const path = join(entry.parentPath, entry.name)
    const name = path.slice(folder.length + 1)
    if (entry.isDirectory() || name.startsWith('.owner-')) continue // A claim that could not be removed has no owner.
    if (['summary.json', 'run.log'].includes(name) || name.endsWith('manifest.json')) found[name] = ''
    else
      found[name] = createHash('sha256')
        .update(untimed(name, readFileSync(path)))
        .digest('hex')
  }
  delete found['run.log']
  return found
}

function untimed(name: string, bytes: Buffer): Buffer | string {
  if (name !== 'metrics.jsonl') return bytes
  const timed = [
    'seconds',
    'stepsPerSecond',
    'rolloutSeconds',
    'updateSeconds',
    'phaseSeconds',
    'rolloutAgeSeconds',
    'lanesIdleSeconds',
  ]
  const lines = bytes.toString().trimEnd().split('\n')
  return lines.map((line) => JSON.stringify(JSON.parse(line), (key, value) => (timed.includes(key) ? 0 : value))).join()
}
