/**
 * A team of threads that run one program over shared columns: the caller's thread and its workers. They meet at a barrier;
 * nothing else passes between them. A worker waits asleep. The caller never does: it spins for a moment, then lets its
 * event loop run until the others have come, so errors, Ctrl-C and the progress line always arrive.
 */
import type { Worker } from 'node:worker_threads'
import type { DefinitionRecord } from '../definition.ts'
import type { Autoreset } from '../world.ts'

/** What a worker makes its part of the team from. */
export interface WorkerOrder {
  readonly memory: WebAssembly.Memory
  readonly control: Int32Array
  readonly command: Float64Array
  readonly index: number
  readonly count: number
  /** Room for this thread's trace, if one is kept. */
  readonly trace: Float64Array | undefined
  readonly seed: number
  readonly kernels: 'plain' | 'simd' | 'relaxed'
  readonly cohorts: readonly {
    readonly name: string
    readonly environment: DefinitionRecord
    readonly policy: DefinitionRecord
    readonly numLanes: number
    readonly firstLane: number
    readonly autoreset: Autoreset
    readonly explore: boolean
  }[]
  readonly algorithms: Readonly<Record<string, DefinitionRecord>>
}

/** What a worker says when its program throws. */
export interface WorkerFailure {
  readonly message: string
  readonly stack: string
}

/** Words of the control column. */
const ARRIVED = 0
const GENERATION = 1
const ABORTED = 2
export const CONTROL_WORDS = 3

/** Looks at the barrier before a thread sleeps; none where threads outnumber cores, for then it would keep one from working. */
const SPINS = 20_000

/** Thrown out of a meeting that will not take place. */
export class Aborted extends Error {}

/** The meeting point of `count` threads. */
export class Barrier {
  readonly #control: Int32Array
  readonly #count: number
  readonly #spins: number

  constructor(control: Int32Array, count: number, cores: number) {
    this.#control = control
    this.#count = count
    this.#spins = count <= cores ? SPINS : 0
  }

  /** Sleeps until all have come. Only for workers. */
  meetAsleep(): void {
    const generation = this.#arrive()
    while (generation !== undefined && !this.#isOver(generation)) Atomics.wait(this.#control, GENERATION, generation)
    this.#check()
  }

  /** Resolves when all have come, or rejects when `failure` does; undefined if they have come already. */
  meet(failure: Promise<never>): Promise<void> | undefined {
    const generation = this.#arrive()
    if (generation !== undefined && !this.#isOver(generation)) return this.#wait(generation, failure)
    this.#check()
    return undefined
  }

  /** Tells everyone that no meeting will take place any more. */
  abort(): void {
    Atomics.store(this.#control, ABORTED, 1)
    this.#open()
  }

  /** Comes to the meeting. The last to come opens it and gets undefined, the others the generation to wait for. */
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

  async #wait(generation: number, failure: Promise<never>): Promise<void> {
    while (Atomics.load(this.#control, GENERATION) === generation) {
      const { value } = Atomics.waitAsync(this.#control, GENERATION, generation)
      await Promise.race([value, failure])
    }
    this.#check()
  }

  #check(): void {
    if (Atomics.load(this.#control, ABORTED) !== 0) throw new Aborted('another thread failed')
  }
}

/** The caller's side of a team. */
export class Team {
  readonly #workers: readonly Worker[]
  readonly #barrier: Barrier
  readonly #failure: Promise<never>
  #isOver = false

  private constructor(workers: readonly Worker[], barrier: Barrier, describe: (index: number) => string) {
    this.#workers = workers
    this.#barrier = barrier
    this.#failure = new Promise((_, reject) => {
      for (const [i, worker] of workers.entries()) {
        const fail = (reason: string, stack?: string): void => {
          if (this.#isOver) return
          const error = new Error(`worker ${i + 1} of ${describe(i + 1)} ${reason}`)
          if (stack !== undefined) error.stack = `${error.message}\n${stack}`
          reject(error)
          this.end()
        }
        worker.on('message', ({ message, stack }: WorkerFailure) => fail(`failed: ${message}`, stack))
        worker.on('error', (error: Error) => fail(`failed: ${error.message}`, error.stack))
        worker.on('exit', (code) => fail(`ended with code ${code}`))
      }
    })
    this.#failure.catch(() => undefined) // Reported by the meeting that waits for it, or by the next one.
  }

  /** Starts workers 1 … count − 1. `describe` says in words which lanes a worker has. */
  static async start(orders: readonly WorkerOrder[], describe: (index: number) => string): Promise<Team> {
    const { Worker } = await import('node:worker_threads')
    const { availableParallelism } = await import('node:os')
    const { control, count } = orders[0]!
    const entry = new URL('./worker.js', import.meta.url)
    const workers = orders.map((workerData) => new Worker(entry, { workerData, name: `colonnade ${workerData.index}` }))
    const team = new Team(workers, new Barrier(control, count, availableParallelism()), describe)
    await team.meet()
    return team
  }

  /** Meets the workers; undefined if all have come already. */
  meet(): Promise<void> | undefined {
    return this.#barrier.meet(this.#failure)
  }

  /** Rejects with what went wrong, if a worker failed while nobody waited for it. */
  async check(): Promise<void> {
    await Promise.race([this.#failure, undefined])
  }

  /** Whether the workers keep the process alive. */
  hold(isHeld: boolean): void {
    for (const worker of this.#workers) isHeld ? worker.ref() : worker.unref()
  }

  /** Sends the workers home. */
  end(): void {
    this.#isOver = true
    this.#barrier.abort()
    for (const worker of this.#workers) void worker.terminate()
  }
}
