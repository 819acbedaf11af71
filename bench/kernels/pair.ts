/** The network on two threads: this one and a worker, which share blocks as the C twin's threads do. */
import { Worker } from 'node:worker_threads'
import { createKernels } from '../../src/kernels/bind.ts'
import type { KernelBuild, Kernels } from '../../src/kernels/kernels.ts'
import { Columns, networkMemory } from './columns.ts'
import { Network, type TwinRows } from './network.ts'

/** What the worker is told: the number of the job, how many are done, whether jobs follow at once, what, and on which rows. */
export const Told = { issued: 0, finished: 1, awake: 2, job: 3, rows: 4, length: 5 } as const
export const Job = { forward: 0, update: 1, end: 2 } as const
/** Until the second thread has a core of its own. */
const WAKING_MS = 20
const JOBS = { forward: Job.forward, update: Job.update } as const

/** What both threads make of one memory: the same columns in the same places. */
export interface Half {
  readonly network: Network
  readonly rows: readonly TwinRows[]
  readonly kernels: Kernels
}

export function makeHalf(
  memory: WebAssembly.Memory,
  build: KernelBuild,
  rows: readonly number[],
  hidden: number,
): Half {
  const columns = new Columns(memory)
  const network = new Network(columns, 2, hidden)
  return { network, rows: rows.map((count) => network.rows(columns, count)), kernels: createKernels(memory, build) }
}

export function workShare({ network, rows, kernels }: Half, job: number, index: number, thread: number): void {
  if (job === Job.forward) network.forwardShare(kernels, rows[index]!, thread)
  else network.differentiateShare(kernels, rows[index]!, thread)
}

export class Pair {
  readonly #half: Half
  readonly #told = new Int32Array(new SharedArrayBuffer(4 * Told.length))

  private constructor(half: Half) {
    this.#half = half
  }

  static async start(build: KernelBuild, rows: readonly number[], hidden = 64): Promise<Pair> {
    const memory = networkMemory()
    const pair = new Pair(makeHalf(memory, build, rows, hidden))
    const worker = new Worker(new URL('./worker.js', import.meta.url), {
      workerData: { memory, build, rows, hidden, told: pair.#told },
    })
    await new Promise((resolve, reject) => worker.once('message', resolve).once('error', reject))
    worker.unref()
    return pair
  }

  /** Runs one job once for its sum, then `calls` times: mean seconds of a call, as the C twin does. */
  run(job: keyof typeof JOBS, rowsIndex: number, calls: number): { seconds: number; sum: number } {
    this.#half.network.restart()
    Atomics.store(this.#told, Told.awake, 1)
    Atomics.notify(this.#told, Told.awake)
    const sum = this.#call(JOBS[job], rowsIndex)
    const woken = performance.now() + WAKING_MS
    while (performance.now() < woken) this.#call(JOBS[job], rowsIndex)
    const start = performance.now()
    for (let i = 0; i < calls; i++) this.#call(JOBS[job], rowsIndex)
    const seconds = (performance.now() - start) / 1000 / calls
    Atomics.store(this.#told, Told.awake, 0)
    return { seconds, sum }
  }

  close(): void {
    Atomics.store(this.#told, Told.job, Job.end)
    Atomics.add(this.#told, Told.issued, 1)
    Atomics.store(this.#told, Told.awake, 1)
    Atomics.notify(this.#told, Told.awake)
  }

  #call(job: number, index: number): number {
    const { network, rows, kernels } = this.#half
    if (job === Job.update) network.prepare(kernels, rows[index]!)
    this.#told[Told.job] = job
    this.#told[Told.rows] = index
    const number = Atomics.add(this.#told, Told.issued, 1) + 1
    workShare(this.#half, job, index, 0)
    while (Atomics.load(this.#told, Told.finished) !== number);
    return job === Job.update ? network.finish(kernels) : network.forwardSum()
  }
}
