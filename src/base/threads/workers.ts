/**
 * Threads that can be killed. Untrusted text (formulas, programs, files) may take forever to judge, so it runs in a
 * worker with a time limit; a late worker is terminated and replaced. Workers are reused, and do not keep the process
 * alive.
 */
import type { ResourceLimits, Worker } from 'node:worker_threads'

/** Milliseconds within which a worker must load its modules. */
const BOOT_MS = 60_000

export type Outcome<T> =
  | { readonly answer: T }
  | { readonly failure: 'threw' | 'hung' | 'aborted' | 'died'; readonly error: string }

/** A worker's answer, whether the worker should not be reused, and buffers to transfer instead of copying. */
export type Reply =
  | { readonly answer: unknown; readonly isSpent?: boolean; readonly moved?: ArrayBuffer[] }
  | { readonly error: string }

/** At most `size` workers that run one module; further tasks wait for their turn. */
export class WorkerPool {
  readonly #entry: URL
  readonly #size: number
  readonly #limits: ResourceLimits
  readonly #idle: Worker[] = []
  readonly #queue: (() => void)[] = []
  #busy = 0

  /** A worker whose heap exceeds `memoryMib` dies; `stackMib` limits its stack. */
  constructor(
    entry: URL,
    { size = 2, memoryMib = 256, stackMib = 4 }: { size?: number; memoryMib?: number; stackMib?: number } = {},
  ) {
    this.#entry = entry
    this.#size = size
    this.#limits = { maxOldGenerationSizeMb: memoryMib, stackSizeMb: stackMib }
  }

  /** Runs one task. The time limit begins when a worker has taken it; queueing does not count. */
  async run<T>(task: unknown, timeoutMs: number, signal?: AbortSignal): Promise<Outcome<T>> {
    if (this.#busy < this.#size) this.#busy++
    else await new Promise<void>((resolve) => this.#queue.push(resolve)) // The predecessor's turn is passed on.
    try {
      if (signal?.aborted) return { failure: 'aborted', error: 'aborted before it began' }
      const worker = this.#idle.pop() ?? (await this.#start())
      if ('failure' in worker) return worker
      if (signal?.aborted) {
        this.#keep(worker)
        return { failure: 'aborted', error: 'aborted while its worker started' }
      }
      worker.ref()
      const { outcome, isSpent } = await ask<T>(worker, task, timeoutMs, signal)
      if (isSpent) void worker.terminate()
      else this.#keep(worker)
      return outcome
    } finally {
      const next = this.#queue.shift()
      if (next === undefined) this.#busy--
      else next()
    }
  }

  #keep(worker: Worker): void {
    worker.unref()
    this.#idle.push(worker)
  }

  async #start(): Promise<Worker | { failure: 'died'; error: string }> {
    const { Worker } = await import('node:worker_threads')
    // Workers inherit the caller's flags, except that of input from standard input.
    const isInline = process.execArgv.some((flag) => flag.startsWith('--input-type'))
    const worker = new Worker(this.#entry, {
      name: 'colonnade guarded',
      resourceLimits: this.#limits,
      ...(isInline && { execArgv: [] }),
    })
    worker.on('exit', () => {
      const place = this.#idle.indexOf(worker)
      if (place >= 0) this.#idle.splice(place, 1)
    })
    worker.on('error', () => {}) // The caller of a task listens as well; an idle worker's error belongs to no task.
    const { outcome, isSpent } = await settle<null>(worker, BOOT_MS, undefined)
    if (!isSpent) return worker
    void worker.terminate()
    return { failure: 'died', error: `the worker did not start: ${'error' in outcome ? outcome.error : ''}` }
  }
}

function ask<T>(worker: Worker, task: unknown, timeoutMs: number, signal?: AbortSignal): Promise<Settled<T>> {
  const settled = settle<T>(worker, timeoutMs, signal)
  worker.postMessage(task)
  return settled
}

interface Settled<T> {
  readonly outcome: Outcome<T>
  /** The worker is dead, busy forever, or unreliable. */
  readonly isSpent: boolean
}

/** The worker's next message, or what happened instead. */
function settle<T>(worker: Worker, timeoutMs: number, signal: AbortSignal | undefined): Promise<Settled<T>> {
  return new Promise((resolve) => {
    const end = (outcome: Outcome<T>, isSpent: boolean): void => {
      clearTimeout(timer)
      worker.off('message', answered).off('error', broke).off('exit', left)
      signal?.removeEventListener('abort', aborted)
      resolve({ outcome, isSpent })
    }
    const answered = (reply: Reply): void => {
      if ('error' in reply) end({ failure: 'threw', error: reply.error }, false)
      else end({ answer: reply.answer as T }, reply.isSpent === true)
    }
    const broke = (error: Error): void => end({ failure: 'died', error: error.message }, true)
    const left = (code: number): void => end({ failure: 'died', error: `the worker ended with code ${code}` }, true)
    const aborted = (): void => end({ failure: 'aborted', error: 'aborted' }, true)
    const timer = setTimeout(() => end({ failure: 'hung', error: `no answer within ${timeoutMs} ms` }, true), timeoutMs)
    worker.on('message', answered).on('error', broke).on('exit', left)
    signal?.addEventListener('abort', aborted, { once: true })
  })
}
