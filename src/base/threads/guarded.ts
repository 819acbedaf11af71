/**
 * Reads untrusted files. A file in a complex format can be damaged, or crafted, so that its reader never ends or fills
 * the memory; so it is read in a thread that is killed at its limits, and failures there are `InputError`s here. Each
 * format has one thread, started with its first file.
 *
 * An Arrow file is returned as bytes with verified offsets and lengths, so that the caller's thread makes its table
 * without a copy; Parquet is returned as rows.
 */
import { stat } from 'node:fs/promises'
import { totalmem } from 'node:os'
import { InputError } from '../errors.ts'
import { serve } from './serve.ts'
import { WorkerPool } from './workers.ts'

/** Limits of reading one file, or one row group of a Parquet file. */
export interface ReadLimits {
  /** Milliseconds; default 30,000, plus 1,000 per MiB of the file. */
  readonly timeoutMs?: number
  /** MiB of objects, and of arrays; default 4,096, or half of the machine's memory if that is less. */
  readonly memoryMib?: number
}

const MEMORY_MIB = Math.min(4096, Math.floor(totalmem() / 2 ** 21))
/** A heap too small for the reader itself would end the process, not the thread. */
const HEAP_MIB_MIN = 64
const pools = new Map<string, WorkerPool>()

type Answer<T> = { readonly value: T } | { readonly refused: readonly [subject: string, got: string, expected: string] }

interface Task {
  readonly path: string
  readonly expected: string
  readonly memoryMib: number
}

/** Lets a worker read a file. @throws InputError if it is missing, refused, or exceeds the limits. */
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
    throw new InputError(path, `no result of its reader in ${seconds} s`, `${expected}; limits.timeoutMs can be raised`)
  }
  throw new InputError(path, `a reader that failed (${error})`, `${expected}; limits.memoryMib can be raised`)
}

/** The worker's side: answers tasks with `read`. After a failure that leaves work (`leavesWork`) it is not reused. */
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
        : [task.path, `an unreadable file (${message})`, task.expected]
      return { answer: { refused }, isSpent: leavesWork }
    }
  })
}

/** Limits the bytes of typed arrays made by length, per task: the heap's limit does not count them. */
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
