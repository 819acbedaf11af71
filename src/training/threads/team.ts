/**
 * A team of threads over shared columns: the caller's thread and its workers. They meet at a barrier in shared memory
 * and send no messages, except batches of texts, whose size is not known before. A worker sleeps while it waits. The
 * caller never does: it spins briefly, then lets its event loop run until the others arrive, so errors, Ctrl-C and the
 * progress line get through.
 */
import type { TokenThreadColumns } from '../../algorithms/tokens/token-thread.ts'
import type { DefinitionRecord } from '../../base/definition.ts'
import { InputError, nameCaller, show } from '../../base/errors.ts'
import { ownFile } from '../../base/files/own-files.ts'
import { warn } from '../../base/host.ts'
import { numCores, startThread, type Thread } from '../../base/threads/thread.ts'
import type { WasmMemory } from '../../components/arena.ts'
import type { Sent } from '../../components/places.ts'
import type { DecodingColumns } from '../../engines/local/local-columns.ts'
import type { KernelBuild } from '../../kernels/kernels.ts'
import type { TransformerConfig } from '../../language/transformer/config.ts'
import type { LoraSettings } from '../../language/transformer/lora.ts'
import type { CacheBits } from '../../language/transformer/model.ts'
import type { BaseWeights } from '../../language/transformer/quantized.ts'
import type { Sampling } from '../../language/transformer/sampling.ts'
import type { EpisodeCohort } from '../../world/episodes/cohort.ts'
import type { Autoreset } from '../../world/episodes/options.ts'
import type { SelfPlayOptions } from '../../world/episodes/self-play.ts'
import { collecting, shareStart } from '../../world/episodes/shares.ts'
import type { SystemOrder } from '../../world/system.ts'
import type { World } from '../../world/world.ts'

/** The order of a worker of any team. */
export interface ThreadOrder {
  readonly memory: WasmMemory
  readonly control: Int32Array
  readonly command: Float64Array
  /** Index among the world's threads. */
  readonly index: number
  /** How many threads meet. */
  readonly count: number
  readonly seed: number
  readonly kernels: KernelBuild
  /** Room for this thread's trace, if one is recorded. */
  readonly trace: Float64Array | undefined
}

/** The order from which a worker builds its part of a trainer of lanes. */
export interface LanesOrder extends ThreadOrder {
  readonly kind: 'lanes'
  /** The world's number of threads, and how many of them only collect. */
  readonly threads: { readonly count: number; readonly actors: number }
  /** Shared by an actor and the thread it works for; null for a learning thread. */
  readonly actor: ActorColumns | null
  /** How learning threads share work; null for an actor. */
  readonly sharing: SharingColumns | null
  /** How many rollouts have columns; undefined if all threads collect, then all learn. */
  readonly numBuffers: number | undefined
  /** This thread's progress mark. */
  readonly beat: Int32Array
  readonly cohorts: readonly {
    readonly name: string
    readonly environment: DefinitionRecord
    /** A policy, or the cohort whose policy it shares. */
    readonly policy: DefinitionRecord | string
    readonly numLanes: number
    /** The number of lanes, in a cohort with births and deaths. */
    readonly present?: number
    readonly firstLane: number
    /** If it is not the world's. */
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

/** The order from which a worker builds its part of a trainer of language models, without environment or files. */
export interface TextOrder extends ThreadOrder {
  readonly kind: 'text'
  readonly config: TransformerConfig
  readonly valueHead: boolean
  readonly quantizeActivations: boolean
  readonly checkpointing: boolean
  readonly cacheBits: CacheBits
  /** The adapter's settings; null without one. */
  readonly lora: LoraSettings | null
  readonly context: number
  readonly sampling: Sampling
  readonly explore: boolean
  /** Views of columns in `memory`, and places of those in `apart`: its own, and shared ones. */
  readonly columns: Sent<TextThreadColumns>
  /** As in the world's arena. */
  readonly apart: SharedArrayBuffer | null
}

/** The columns of a cohort of conversations that a worker uses. */
export interface TextThreadColumns {
  /** If threads help the engine. */
  readonly decoding?: DecodingColumns
  readonly learner?: TokenThreadColumns
  readonly weights: BaseWeights
  /** Empty without an adapter. */
  readonly adapter: Float32Array
}

export type WorkerOrder = LanesOrder | TextOrder

/** A worker's work for a command; at each `yield` all threads meet. */
export type WorkerProgram = (command: Float64Array) => Generator<void | Promise<void>, unknown>

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
export const CONTROL_WORDS = 3

/** Checks of the barrier before sleeping; none if threads outnumber cores, since spinning delays others. */
const SPINS = 20_000

let isWorker = false

/** Marks this thread as a worker of a team, before it imports anything else. */
export function joinTeam(): void {
  isWorker = true
}

/** Refuses a call in a worker, where an imported module would train again. @throws InputError in a team's worker. */
export function refuseInWorker(action: string): void {
  if (!isWorker) return
  const expected = 'a module that only defines things, or does the rest only as the main module'
  throw new InputError(action, 'a call from a module that a worker imports', expected)
}

/** Thrown out of a meeting that is canceled. */
export class Aborted extends Error {}

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
    this.#check() // After abort() nobody else would arrive.
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

/** What Node.js says of the idle time of a worker that has ended. */
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
    const { control, count } = orders[0]!
    const entry = ownFile(new URL('./worker.js', import.meta.url))
    const workers = orders.map((order) => startThread(entry, order, `colonnade ${order.index}`))
    const indices = orders.map(({ index }) => index)
    const team = new Team(workers, indices, new Barrier(control, count, numCores()), describe)
    try {
      await team.meet()
      team.check() // Node.js tells of a worker's end only if it was asked before.
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

export function laneCohorts(world: World): EpisodeCohort[] {
  return world.cohorts.filter((cohort) => cohort.kind === 'episodes')
}

/** A thread's lanes as text. References the world, not its trainer. */
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

/** How learning threads share work: see `sharing.ts`. */
export interface SharingColumns {
  readonly words: Int32Array
  /** The numbers of a run. */
  readonly told: Float64Array
}

/** Memory shared by actors and the thread that they work for. */
export interface ActorColumns {
  /** See `Word` of `thread-crew.ts`; then each actor's number of collected rollouts. */
  readonly words: Int32Array
  /** For each actor: seconds waited; then for each buffer: when each actor began its rollout, in ms since the epoch. */
  readonly times: Float64Array
}
