/**
 * The reading of files from others. A file in a format of many parts can be damaged, or made, so that its reader never
 * ends or takes all memory; so it is read in a thread that is killed at its limits, and what went wrong there is an
 * `InputError` here. One thread for a format is started, when the first file of it is read, and kept.
 *
 * An Arrow file comes back as bytes whose every offset and length was looked at, so that the caller's thread can make
 * its table without a copy; Parquet comes back as rows.
 */
import { stat } from 'node:fs/promises'
import { totalmem } from 'node:os'
import { InputError } from '../errors.ts'
import { serve } from './serve.ts'
import { WorkerPool } from './workers.ts'

/** How much the reading of one file, or of one row group of a Parquet file, may take. */
export interface ReadLimits {
  /** Milliseconds; default 30,000 and 1,000 more for each MiB of the file. */
  readonly timeoutMs?: number
  /** MiB of objects, and of arrays; default 4,096, or half of the machine's memory if that is less. */
  readonly memoryMib?: number
}

const MEMORY_MIB = Math.min(4096, Math.floor(totalmem() / 2 ** 21))
/** A heap too small for the reader itself would end the process, not the thread. */
const HEAP_MIB_MIN = 64
const pools = new Map<string, WorkerPool>()

/** What comes back from the thread. */
type Answer<T> = { readonly value: T } | { readonly refused: readonly [subject: string, got: string, expected: string] }

/** What every task says, beside what its worker wants to know. */
interface Task {
  readonly path: string
  readonly expected: string
  readonly memoryMib: number
}

/**
 * Lets the worker at `entry` read a file. `expected` describes the accepted files, for errors.
 * @throws InputError for a file that is not there, that the worker refuses, or whose reading goes beyond the limits.
 */
export async function readGuarded<T>(
  entry: URL,
  path: string,
  task: object,
  expected: string,
  { timeoutMs, memoryMib = MEMORY_MIB }: ReadLimits = {},
): Promise<T> {
  for (const [name, value] of Object.entries({ timeoutMs, memoryMib })) {
    if (value === undefined || (Number.isFinite(value) && value > 0)) continue
    throw new InputError(`limits.${name}`, String(value), 'a number above 0')
  }
  const { size } = await stat(path).catch((cause: Error) => {
    throw new InputError(path, cause.message, expected, { cause })
  })
  const key = `${entry.href} ${memoryMib}`
  const pool = pools.get(key) ?? new WorkerPool(entry, { size: 1, memoryMib: Math.max(memoryMib, HEAP_MIB_MIN) })
  pools.set(key, pool)
  const limitMs = timeoutMs ?? 30_000 + (1000 * size) / 2 ** 20
  const outcome = await pool.run<Answer<T>>({ ...task, path, expected, memoryMib } satisfies Task, limitMs)
  if ('answer' in outcome) {
    if ('value' in outcome.answer) return outcome.answer.value
    throw new InputError(...outcome.answer.refused)
  }
  const { failure, error } = outcome
  if (failure === 'hung') {
    const seconds = Number((limitMs / 1000).toPrecision(3))
    throw new InputError(path, `no result of its reader in ${seconds} s`, `${expected}; limits.timeoutMs allows more`)
  }
  throw new InputError(path, `a reader that failed (${error})`, `${expected}; limits.memoryMib allows more`)
}

/**
 * The worker's side: answers tasks with what `read` makes of them. A failure of whatever kind is the file's. A thread that has
 * failed is not used again where something may be left half done (`leavesWork`): it must not disturb the next file.
 */
export function serveReads<T = unknown>(
  read: (task: T & Task) => Promise<{ readonly value: unknown; readonly moved?: ArrayBuffer[] }>,
  { leavesWork }: { readonly leavesWork: boolean },
): void {
  const allow = limitArrays()
  serve<T & Task>(async (task) => {
    try {
      allow(task.memoryMib)
      const { value, moved = [] } = await read(task)
      return { answer: { value }, moved }
    } catch (error) {
      const { message } = error as Error
      const isTold = error instanceof InputError
      const refused = isTold
        ? [error.subject, error.got, error.expected]
        : [task.path, `a file that cannot be read (${message})`, task.expected]
      return { answer: { refused }, isSpent: leavesWork }
    }
  })
}

/**
 * Lets typed arrays be made by number of elements only up to a sum of bytes, which begins anew with each task. The heap's
 * limit does not count them, and a damaged number of values asks for gigabytes.
 */
function limitArrays(): (memoryMib: number) => void {
  let left = Number.POSITIVE_INFINITY
  let allowed = 0
  const spend = (bytes: number): void => {
    left -= bytes
    if (left < 0) throw new RangeError(`arrays of more than ${allowed} MiB`)
  }
  const global = globalThis as unknown as Record<string, new (...values: unknown[]) => object>
  for (const name of Object.getOwnPropertyNames(globalThis)) {
    const Kind = /^(Big)?(Int|Uint|Float)\d+(Clamped)?Array$|^ArrayBuffer$/.test(name) ? global[name]! : undefined
    if (Kind === undefined) continue
    const { BYTES_PER_ELEMENT = 1 } = Kind as unknown as { BYTES_PER_ELEMENT?: number }
    global[name] = new Proxy(Kind, {
      construct(target, values, made) {
        if (typeof values[0] === 'number') spend(values[0] * BYTES_PER_ELEMENT)
        return Reflect.construct(target, values, made) as object
      },
    })
  }
  return (memoryMib) => {
    allowed = memoryMib
    left = memoryMib * 2 ** 20
  }
}
