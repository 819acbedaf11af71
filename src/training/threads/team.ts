/**
 * A team of threads over shared columns: the caller's thread and its workers. They meet at a barrier in shared memory
 * and send no messages, except batches of texts, whose size is not known before. A worker sleeps while it waits. The
 * caller never does: it spins briefly, then lets its event loop run until the others arrive, so errors, Ctrl-C and the
 * progress line get through.
 */
import { InputError, nameCaller, show } from '../../base/errors.ts'
import { warn } from '../../base/host.ts'
import { numCores } from '../../base/threads/cores.ts'
import { startThread, type Thread } from '../../base/threads/thread.ts'
import { loadKernels } from '../../kernels/bind.ts'
import { Aborted, type WorkerOrder } from './orders.ts'

/** The message of a worker whose program throws. */
export interface WorkerFailure {
  readonly message: string
  readonly stack?: string | undefined
  /** The parts of an `InputError`, which stays the caller's mistake. */
  readonly input?: { readonly subject: string; readonly got: string; readonly expected: string }
}

export function failureOf(error: unknown): WorkerFailure {
  if (!(error instanceof Error)) return { message: show(error) }
  const { message, stack } = error
  if (!(error instanceof InputError)) return { message, stack }
  const { subject, got, expected } = error
  return { message, stack, input: { subject, got, expected } }
}

const ARRIVED = 0
const GENERATION = 1
const ABORTED = 2

/** Checks of the barrier before sleeping; none if threads outnumber cores, since spinning delays others. */
const SPINS = 20_000

export class Barrier {
  readonly #control: Int32Array
  readonly #count: number
  readonly #spins: number

  constructor(control: Int32Array, count: number, cores: number) {
    this.#control = control
    this.#count = count
    this.#spins = count <= cores ? SPINS : 0
  }

  /** Sleeps until all have arrived. Only for workers. */
  meetAsleep(): void {
    const generation = this.#arrive()
    this.#check()
    while (generation !== undefined && !this.#isOver(generation)) Atomics.wait(this.#control, GENERATION, generation)
    this.#check()
  }

  /** Resolves when all have arrived, and rejects when canceled; undefined if all have arrived already. */
  meet(): Promise<void> | undefined {
    const generation = this.#arrive()
    this.#check() // After abort() no other thread would arrive.
    if (generation !== undefined && !this.#isOver(generation)) return this.#wait(generation)
    this.#check()
    return undefined
  }

  /** Cancels all further meetings. */
  abort(): void {
    Atomics.store(this.#control, ABORTED, 1)
    this.#open()
  }

  /** Arrives at the meeting. The last one opens it and gets undefined, the others the generation to wait for. */
  #arrive(): number | undefined {
    const generation = Atomics.load(this.#control, GENERATION)
    if (Atomics.add(this.#control, ARRIVED, 1) + 1 < this.#count) return generation
    Atomics.store(this.#control, ARRIVED, 0)
    this.#open()
    return undefined
  }

  #open(): void {
    Atomics.add(this.#control, GENERATION, 1)
    Atomics.notify(this.#control, GENERATION)
  }

  #isOver(generation: number): boolean {
    for (let i = 0; i < this.#spins; i++) if (Atomics.load(this.#control, GENERATION) !== generation) return true
    return Atomics.load(this.#control, GENERATION) !== generation
  }

  async #wait(generation: number): Promise<void> {
    while (Atomics.load(this.#control, GENERATION) === generation) {
      await Atomics.waitAsync(this.#control, GENERATION, generation).value // abort() ends it too.
    }
    this.#check()
  }

  #check(): void {
    if (Atomics.load(this.#control, ABORTED) !== 0) throw new Aborted('another thread failed')
  }
}

/** Threads of dropped trainers that were not closed. */
const unclosed = new FinalizationRegistry<{ end(): boolean }>((threads) => {
  if (!threads.end()) return
  if (!isToldOfUnclosed) {
    const message = 'a trainer with threads was dropped without close(): its threads are ended now'
    warn(message, {
      code: 'COLONNADE_UNCLOSED_TRAINER',
      detail: 'close() ends them at once; until then each holds memory and descriptors',
    })
  }
  isToldOfUnclosed = true
})
let isToldOfUnclosed = false

/** Ends threads when their trainer is garbage collected. They must not reference it, or it never is. */
export function endWhenDropped(trainer: object, threads: { end(): boolean }): void {
  unclosed.register(trainer, threads)
}

/** The idle time that Node.js reports for a worker that has ended. */
const ENDED = -1

export class Team {
  readonly #workers: readonly Thread[]
  readonly #barrier: Barrier
  #failure: Error | undefined
  /** The stack in its worker. */
  #stack: string | undefined
  #isOver = false
  /** Settles when ended workers have exited. */
  gone: Promise<unknown> = Promise.resolve()
  /** Called when the workers are ended, for any reason. */
  onEnd: () => void = () => {}

  private constructor(
    workers: readonly Thread[],
    indices: readonly number[],
    barrier: Barrier,
    describe: (index: number) => string,
  ) {
    this.#workers = workers
    this.#barrier = barrier
    for (const [i, worker] of workers.entries()) {
      const end = (reason: string, { stack, input }: Partial<WorkerFailure> = {}): void => {
        if (this.#isOver) return
        const who = `worker ${indices[i]} of ${describe(indices[i]!)}`
        this.#failure =
          input === undefined
            ? new Error(`${who} ${reason}`)
            : new InputError(`${who} failed: ${input.subject}`, input.got, input.expected)
        if (stack !== undefined) this.#failure.stack = `${this.#failure.message}\n${stack}`
        this.#stack = stack
        this.end()
      }
      const fail = (failure: WorkerFailure): void => end(`failed: ${failure.message}`, failure)
      worker.on('message', fail)
      worker.on('error', (error: unknown) => fail(failureOf(error)))
      worker.on('exit', (code) => end(`ended with code ${code}`))
    }
  }

  /** Starts workers with these orders. `describe` gives a worker's lanes as text. */
  static async start(orders: readonly WorkerOrder[], describe: (index: number) => string): Promise<Team> {
    const { control, count, kernels } = orders[0]!
    const modules = await loadKernels(kernels)
    const entry = new URL('./worker.js', import.meta.url)
    const workers = orders.map((order) => startThread(entry, { ...order, modules }, `colonnade ${order.index}`))
    const indices = orders.map(({ index }) => index)
    const team = new Team(workers, indices, new Barrier(control, count, numCores()), describe)
    try {
      await team.meet()
      team.check() // Node.js reports a worker's end only to earlier listeners.
    } catch {
      throw team.failure
    }
    return team
  }

  /** Meets the workers; undefined if all have arrived already. Throws Aborted if one will not; see `failure`. */
  meet(): Promise<void> | undefined {
    return this.#barrier.meet()
  }

  /** Throws Aborted if a worker has ended, though this thread has not heard of it yet. Does nothing in a runtime that cannot tell. */
  check(): void {
    const isEnded = ({ performance }: Thread) => performance?.eventLoopUtilization?.().idle === ENDED
    if (this.#workers.some(isEnded)) throw new Aborted('another thread ended')
  }

  /** Resolves once this thread has heard why meetings are canceled. */
  async told(): Promise<void> {
    while (!this.#isOver) await new Promise((resolve) => setTimeout(resolve, 1))
  }

  /** Sends each worker a message to read after the next meeting; shared memory is not copied. */
  post(message: object): void {
    for (const worker of this.#workers) worker.postMessage(message)
  }

  /** Why meetings are canceled. A caller's mistake has the caller's stack beside the worker's. */
  get failure(): Error {
    if (this.#failure instanceof InputError) nameCaller(this.#failure, this.#stack)
    return this.#failure ?? new Error('the trainer was closed during an update')
  }

  /** Whether the workers keep the process alive. */
  hold(isHeld: boolean): void {
    for (const worker of this.#workers) isHeld ? worker.ref() : worker.unref()
  }

  fail(reason: Error): void {
    this.#failure = reason
    this.end()
  }

  /** Ends the workers. Returns whether there were any. */
  end(): boolean {
    if (this.#isOver) return false
    this.#isOver = true
    this.#barrier.abort()
    this.gone = Promise.all(this.#workers.map((worker) => worker.terminate()))
    this.onEnd()
    return true
  }

  get isOver(): boolean {
    return this.#isOver
  }
}
