/**
 * A team of threads over shared columns: the caller's thread and its workers. They meet at a barrier in shared memory;
 * no message passes, but for the batches of texts, whose size nobody knows before. A worker waits asleep. The caller
 * never does: it spins for a moment, then lets its event loop run until the others have come, so errors, Ctrl-C and the
 * progress line always arrive.
 */
import type { Worker } from 'node:worker_threads'
import type { TokenThreadColumns } from '../../algorithms/tokens/token-thread.ts'
import type { DefinitionRecord } from '../../base/definition.ts'
import { InputError, nameCaller, show } from '../../base/errors.ts'
import { ownFile } from '../../base/files/own-files.ts'
import type { WasmMemory } from '../../components/arena.ts'
import type { DecodingColumns } from '../../engines/local/local-columns.ts'
import type { KernelBuild } from '../../kernels/kernels.ts'
import type { TransformerConfig } from '../../language/transformer/config.ts'
import type { LoraSettings } from '../../language/transformer/lora.ts'
import type { BaseWeights } from '../../language/transformer/quantized.ts'
import type { Sampling } from '../../language/transformer/sampling.ts'
import type { EpisodeCohort } from '../../world/episodes/cohort.ts'
import type { Autoreset } from '../../world/episodes/options.ts'
import type { SelfPlayOptions } from '../../world/episodes/self-play.ts'
import { collecting, shareStart } from '../../world/episodes/shares.ts'
import type { SystemOrder } from '../../world/system.ts'
import type { World } from '../../world/world.ts'

/** What a worker of any team is told. */
export interface ThreadOrder {
  readonly memory: WasmMemory
  readonly control: Int32Array
  readonly command: Float64Array
  /** Which of the world's threads it is. */
  readonly index: number
  /** How many threads meet. */
  readonly count: number
  readonly seed: number
  readonly kernels: KernelBuild
  /** Room for this thread's trace, if one is kept. */
  readonly trace: Float64Array | undefined
}

/** What a worker makes its part of a trainer of lanes from. */
export interface LanesOrder extends ThreadOrder {
  readonly kind: 'lanes'
  /** How many threads the world has, and how many of them only collect. */
  readonly threads: { readonly count: number; readonly actors: number }
  /** What an actor and the thread that it works for tell each other; null for a thread that learns. */
  readonly actor: ActorColumns | null
  /** How many rollouts have columns; undefined where all threads collect, then all learn. */
  readonly numBuffers: number | undefined
  /** Where this thread says that it goes on. */
  readonly beat: Int32Array
  readonly cohorts: readonly {
    readonly name: string
    readonly environment: DefinitionRecord
    /** Or the cohort whose policy it is. */
    readonly policy: DefinitionRecord | string
    readonly numLanes: number
    /** How many of them there are, in a cohort whose lanes come and go. */
    readonly present?: number
    readonly firstLane: number
    /** Where it is not the world's. */
    readonly seed?: number
    readonly autoreset: Autoreset
    readonly explore: boolean
    readonly weightSets?: number
    readonly learningSets?: number
    readonly selfPlay?: SelfPlayOptions
    readonly systems: readonly SystemOrder[]
  }[]
  readonly algorithms: Readonly<Record<string, DefinitionRecord>>
}

/** What a worker makes its part of a trainer of language models from: no environment, and no file. */
export interface TextOrder extends ThreadOrder {
  readonly kind: 'text'
  readonly config: TransformerConfig
  readonly valueHead: boolean
  readonly quantizeActivations: boolean
  /** How the adapter is made; null where there is none. */
  readonly lora: LoraSettings | null
  readonly context: number
  readonly sampling: Sampling
  readonly explore: boolean
  /** Views of columns in `memory`: its own, and those that all share. */
  readonly columns: TextThreadColumns
}

/** The columns of a cohort of conversations that a worker works in, or reads. */
export interface TextThreadColumns {
  /** Where threads help the engine. */
  readonly decoding?: DecodingColumns
  readonly learner?: TokenThreadColumns
  readonly weights: BaseWeights
  /** No elements where there is no adapter. */
  readonly adapter: Float32Array
}

/** What a worker makes its part of the team from. */
export type WorkerOrder = LanesOrder | TextOrder

/** What a worker does at a command; at each `yield` all threads meet. */
export type WorkerProgram = (command: Float64Array) => Generator<void | Promise<void>, unknown>

/** What a worker says when its program throws. */
export interface WorkerFailure {
  readonly message: string
  readonly stack?: string | undefined
  /** The parts of an `InputError`, which is the caller's mistake in a worker too. */
  readonly input?: { readonly subject: string; readonly got: string; readonly expected: string }
}

/** What can be said of anything that was thrown. */
export function failureOf(error: unknown): WorkerFailure {
  if (!(error instanceof Error)) return { message: show(error) }
  const { message, stack } = error
  if (!(error instanceof InputError)) return { message, stack }
  const { subject, got, expected } = error
  return { message, stack, input: { subject, got, expected } }
}

/** Words of the control column. */
const ARRIVED = 0
const GENERATION = 1
const ABORTED = 2
export const CONTROL_WORDS = 3

/** Looks at the barrier before a thread sleeps; none where threads outnumber cores, for then it would keep one from working. */
const SPINS = 20_000

/** Whether this thread is a worker of a team. */
let isWorker = false

/** Says that this thread is a worker of a team, before it imports what it works with. */
export function joinTeam(): void {
  isWorker = true
}

/**
 * A module that defines an environment, and also trains, would train anew in every worker that imports it, with workers of
 * its own.
 * @throws InputError in a worker of a team.
 */
export function refuseInWorker(action: string): void {
  if (!isWorker) return
  const expected = 'a module that defines and does nothing else, or does the rest only where it is the main module'
  throw new InputError(action, 'a call from a module that a worker imports', expected)
}

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
    this.#check()
    while (generation !== undefined && !this.#isOver(generation)) Atomics.wait(this.#control, GENERATION, generation)
    this.#check()
  }

  /** Resolves when all have come, and rejects when they will not; undefined if they have come already. */
  meet(): Promise<void> | undefined {
    const generation = this.#arrive()
    this.#check() // Who comes after abort() would wait for nobody.
    if (generation !== undefined && !this.#isOver(generation)) return this.#wait(generation)
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

/** Threads of trainers that nobody has any more, and that nobody closed. */
const unclosed = new FinalizationRegistry<{ end(): boolean }>((threads) => {
  if (!threads.end()) return
  if (!isToldOfUnclosed) {
    process.emitWarning('a trainer with threads was dropped without close(): its threads are ended now', {
      code: 'COLONNADE_UNCLOSED_TRAINER',
      detail: 'close() ends them at once; until then each holds memory and descriptors',
    })
  }
  isToldOfUnclosed = true
})
let isToldOfUnclosed = false

/**
 * Ends threads when the trainer that they work for is dropped; `end` says whether there were any. They must not lead back to
 * the trainer: what live threads lead to is never dropped.
 */
export function endWhenDropped(trainer: object, threads: { end(): boolean }): void {
  unclosed.register(trainer, threads)
}

/** The caller's side of a team. */
export class Team {
  readonly #workers: readonly Worker[]
  readonly #barrier: Barrier
  #failure: Error | undefined
  /** Where in its worker it was thrown. */
  #stack: string | undefined
  #isOver = false
  #gone: Promise<unknown> = Promise.resolve()
  /** Called when the workers are sent home, whatever the reason. */
  onEnd: () => void = () => {}

  private constructor(
    workers: readonly Worker[],
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

  /** Starts the workers that have these orders. `describe` says in words which lanes a worker has. */
  static async start(orders: readonly WorkerOrder[], describe: (index: number) => string): Promise<Team> {
    const { Worker } = await import('node:worker_threads')
    const { availableParallelism } = await import('node:os')
    const { control, count } = orders[0]!
    const entry = ownFile(new URL('./worker.js', import.meta.url))
    // Workers inherit the caller's flags, but may not be told that a file is what came on standard input.
    const isInline = process.execArgv.some((flag) => flag.startsWith('--input-type'))
    const workers = orders.map((workerData) => {
      const name = `colonnade ${workerData.index}`
      return new Worker(entry, { workerData, name, ...(isInline && { execArgv: [] }) })
    })
    const indices = orders.map(({ index }) => index)
    const team = new Team(workers, indices, new Barrier(control, count, availableParallelism()), describe)
    try {
      await team.meet()
    } catch {
      throw team.failure
    }
    return team
  }

  /** Meets the workers; undefined if all have come already. Aborted if one will not: then `failure` says why. */
  meet(): Promise<void> | undefined {
    return this.#barrier.meet()
  }

  /** Gives each worker something to take from its port after the next meeting; memory that is shared is not copied. */
  post(message: object): void {
    for (const worker of this.#workers) worker.postMessage(message)
  }

  /** Why there will be no meeting any more. A mistake of the caller's names the caller's line beside that in the worker. */
  get failure(): Error {
    if (this.#failure instanceof InputError) nameCaller(this.#failure, this.#stack)
    return this.#failure ?? new Error('the trainer was closed in the middle of an update')
  }

  /** Whether the workers keep the process alive. */
  hold(isHeld: boolean): void {
    for (const worker of this.#workers) isHeld ? worker.ref() : worker.unref()
  }

  /** Sends the workers home, for this reason. */
  fail(reason: Error): void {
    this.#failure = reason
    this.end()
  }

  /** Sends the workers home. Returns whether they were there. */
  end(): boolean {
    if (this.#isOver) return false
    this.#isOver = true
    this.#barrier.abort()
    this.#gone = Promise.all(this.#workers.map((worker) => worker.terminate()))
    this.onEnd()
    return true
  }

  /** Whether the workers were sent home. */
  get isOver(): boolean {
    return this.#isOver
  }

  /** Settles when workers that were sent home have gone. */
  get gone(): Promise<unknown> {
    return this.#gone
  }
}

/** The cohorts whose lanes step. */
export function laneCohorts(world: World): EpisodeCohort[] {
  return world.cohorts.filter((cohort) => cohort.kind === 'episodes')
}

/** Says a thread's lanes in words. Leads to the world, and not to its trainer. */
export function shareOf(world: World): (index: number) => string {
  return (index) => {
    const { count } = world.threads
    const collector = collecting({ ...world.threads, index })
    const shares = laneCohorts(world).map(({ name, present, episode, environment: { numAgents } }) => {
      const [from, to] = [collector.index, collector.index + 1].map((i) =>
        shareStart(Math.max(0, i), collector.count, present, numAgents),
      ) as [number, number]
      return from === to ? `no lanes of ${name}` : `lanes ${episode.lane[from]}–${episode.lane[to - 1]} of ${name}`
    })
    return `${count} threads (${shares.join(', ')})`
  }
}

/** What actors and the thread that they work for tell each other: memory that both have. */
export interface ActorColumns {
  /** See `Word` of `actors.ts`; behind these, how many rollouts each actor has collected since the training began. */
  readonly words: Int32Array
  /** Of each actor: seconds that it waited; then of each buffer when each actor began its rollout, in ms since the epoch. */
  readonly times: Float64Array
}
