/**
 * A world holds cohorts of lanes. It is set up by program, planned, and takes its memory at its first use, when all who
 * need columns have said so; from then on nothing is allocated. Each lane is an entity of a bitecs world, and each group of
 * columns a component of it.
 */
import { createWorld as createEcs, createEntityIndex, type World as EcsWorld } from 'bitecs'
import { Clock } from './clock.ts'
import {
  type Cohort,
  type CohortDraft,
  type CohortOptions,
  type CohortPlan,
  cohortObjects,
  cohortPlan,
  createCohort,
  draftCohorts,
  type Reservation,
} from './cohort.ts'
import { type Arena, layArena, takeArena } from './components/arena.ts'
import {
  type Column,
  type Columns,
  listColumns,
  type Plan,
  type PlannedColumn,
  zipColumns,
} from './components/column.ts'
import { InputError, show, unknownWord } from './errors.ts'
import { bestKernelBuild, createKernels, type KernelBuild, type Kernels } from './kernels/bind.ts'
import type { PolicyModel } from './policies/policy.ts'
import { checkSampling, type Sampling } from './policies/transformer/sampling.ts'
import { checkSeed } from './random.ts'
import {
  createTextCohort,
  draftTextCohort,
  isTextCohort,
  type TextCohort,
  type TextCohortOptions,
  type TextCohortPlan,
  type TextDraft,
  textCohortPlan,
} from './text-cohort.ts'

/** What all cohorts of a world share. */
export interface SharedOptions {
  /** Keys every random number: a whole number in [0, 2^53). Default 0. */
  seed?: number
  /** Which kernel bodies. Default: the fastest that this runtime can run. */
  kernels?: KernelBuild
}

/** A world of one cohort, or of several. */
export type WorldOptions = SharedOptions &
  (CohortOptions | TextCohortOptions | { cohorts: readonly (CohortOptions | TextCohortOptions)[] })

/**
 * Plans a world of one cohort, or of several.
 * @throws InputError where an option is wrong, or the policy cannot serve the environment's spaces.
 * @example
 * const world = await createWorld({ environment: cartPole(), policy: mlp(), numLanes: 16, seed: 1 })
 */
export async function createWorld(options: WorldOptions): Promise<World> {
  const conversations: TextDraft[] = []
  for (const cohort of allCohortsOf(options)) {
    if (isTextCohort(cohort)) conversations.push(await draftTextCohort(cohort))
    else await cohort.policy?.prepare?.()
  }
  return new World(options, { conversations })
}

/** Cohorts of lanes over one memory. */
export class World {
  /** How many threads share the lanes, and which of them this is. */
  readonly threads: { count: number; readonly index: number }
  /** What this thread's time is charged to. */
  readonly clock = new Clock()
  readonly seed: number
  readonly kernelBuild: KernelBuild
  /** The bitecs world: its entities are the lanes. */
  readonly ecs: EcsWorld
  readonly #drafts: readonly CohortDraft[]
  readonly #textDrafts: readonly TextDraft[]
  #conversations: readonly TextCohort[] | undefined
  #cohorts: readonly Cohort[] | undefined
  #arena: Arena | undefined
  #columns: object | undefined
  readonly #memory: WebAssembly.Memory | undefined
  #kernels: Kernels | undefined

  /** Use `createWorld`. A thread that shares the columns of another's world says which memory and which share. */
  constructor(
    options: WorldOptions,
    {
      conversations = [],
      ...shared
    }: { memory?: WebAssembly.Memory; index?: number; conversations?: readonly TextDraft[] } = {},
  ) {
    if (typeof options !== 'object' || options === null) {
      throw new InputError('createWorld(options)', show(options), 'an object with environment, policy and numLanes')
    }
    this.threads = { count: 1, index: shared.index ?? 0 }
    this.#memory = shared.memory
    this.seed = checkSeed(options.seed ?? 0)
    this.kernelBuild = options.kernels ?? bestKernelBuild()
    this.#textDrafts = conversations
    this.#drafts = draftCohorts(cohortsOf(options), conversations)
    const index = createEntityIndex()
    index.maxId = -1 // The first entity is 0, so that entities count the rows of the world.
    this.ecs = createEcs(index)
  }

  /** The cohorts, in the order of their lanes. Takes the world's memory if nothing has yet. */
  get cohorts(): readonly Cohort[] {
    if (this.#cohorts === undefined) this.#take()
    return this.#cohorts!
  }

  /** The cohorts of conversations. Takes the world's memory if nothing has yet. */
  get conversations(): readonly TextCohort[] {
    if (this.#conversations === undefined) this.#take()
    return this.#conversations!
  }

  /** This thread's kernels. Takes the world's memory if nothing has yet. */
  get kernels(): Kernels {
    if (this.#kernels === undefined) this.#take()
    return this.#kernels!
  }

  /** The memory that holds every column. Takes it if nothing has yet. */
  get arena(): Arena {
    if (this.#arena === undefined) this.#take()
    return this.#arena!
  }

  /** The names of the cohorts, without taking memory. */
  get names(): readonly string[] {
    return this.#drafts.map((draft) => draft.name)
  }

  /** What is known of a cohort without taking memory: its options and its network's shapes. */
  draft(name: string): { readonly options: CohortOptions; readonly firstLane: number; readonly model: PolicyModel } {
    return this.#draft(name)
  }

  /**
   * The cohort of that name. Takes the world's memory if nothing has yet.
   * @throws InputError that names the nearest cohort.
   */
  cohort(name: string): Cohort {
    const cohort = this.cohorts.find((candidate) => candidate.name === name)
    if (cohort === undefined) throw this.#unknownCohort(name)
    return cohort
  }

  /**
   * Gives a cohort a recorder, and a learner its columns.
   * @throws InputError if the memory is taken already, or the cohort has a recorder.
   */
  reserve(name: string, reservation: Reservation): void {
    if (this.#cohorts !== undefined) {
      throw new InputError(
        'world',
        'one whose memory is taken',
        'createTrainer before the first tick and before `cohorts` is read',
      )
    }
    const draft = this.#draft(name)
    if (draft.reservation !== undefined)
      throw new InputError(`cohort ${name}`, 'a second recorder', 'one recorder a cohort')
    draft.reservation = reservation
  }

  /**
   * The only cohort of conversations, or that of the name. Takes the world's memory if nothing has yet.
   * @throws InputError that names those that there are.
   */
  talk(name?: string): TextCohort {
    const [first, ...others] = this.conversations
    const found = name === undefined && others.length === 0 ? first : this.conversations.find((c) => c.name === name)
    if (found !== undefined) return found
    throw this.#unknownTalk(name)
  }

  /** How the cohorts of conversations sample, without taking memory. */
  textOptions(): {
    readonly name: string
    readonly sampling: Sampling
    readonly groupSize: number
    readonly explore: boolean
  }[] {
    return this.#textDrafts.map(({ name, options: { sampling = {}, groupSize = 1, explore = true } }) => ({
      name,
      sampling: checkSampling(sampling),
      groupSize,
      explore,
    }))
  }

  /** Gives a cohort of conversations, the only one or that of the name, the columns of its learner. Throws as `reserve`. */
  reserveTalk(learner: (draft: TextDraft) => Plan, name?: string): void {
    const draft = this.#textDrafts.find((candidate) => name === undefined || candidate.name === name)
    if (draft === undefined) throw this.#unknownTalk(name)
    if (this.#cohorts !== undefined || draft.learner !== undefined) {
      throw new InputError(
        `cohort ${draft.name}`,
        'one that has its memory, or a learner',
        'one trainer, before the first tick',
      )
    }
    draft.learner = learner(draft)
  }

  /**
   * Splits the lanes among threads, before the memory is taken: each works in columns of its own. Of a cohort of conversations,
   * they only speak for the model, which needs no module.
   * @throws InputError if the memory is taken already, a policy stays in its thread, or a definition has no module from which a thread could make it.
   */
  split(count: number): void {
    if (this.#cohorts !== undefined) {
      throw new InputError('threads', 'a world whose memory is taken', 'createTrainer before the first tick')
    }
    if (!Number.isSafeInteger(count) || count < 1 || count > 64) {
      throw new InputError('threads', show(count), 'a whole number from 1 to 64')
    }
    for (const { options, model } of count > 1 ? this.#drafts : []) {
      if (model.staysInThread) {
        const got = `${count} threads`
        throw new InputError(
          `policy ${options.policy.id}`,
          got,
          "threads: 1: its device serves only the caller's thread",
        )
      }
      for (const [noun, { id, module }] of Object.entries({
        environment: options.environment,
        policy: options.policy,
      })) {
        if (module !== undefined) continue
        const remedy = 'a definition with `module: import.meta.url`, which other threads can make; or threads: 1'
        throw new InputError(`${noun} ${id}`, `no module, and ${count} threads`, remedy)
      }
    }
    this.threads.count = count
  }

  /** Every column with its bytes, as it stands now: before the memory is taken, or after. */
  plan(): PlannedColumn[] {
    return listColumns(this.#plan())
  }

  /** Every column with its typed array. Takes the world's memory if nothing has yet. */
  columns(): { readonly planned: PlannedColumn; readonly column: Column }[] {
    if (this.#columns === undefined) this.#take()
    return zipColumns(this.#plan(), this.#columns!)
  }

  /** Gives back what policies hold of devices. The world can still be used: they take it again when they are asked. */
  close(): void {
    for (const { policy } of this.#cohorts ?? []) policy.dispose?.()
  }

  #draft(name: string): CohortDraft {
    const draft = this.#drafts.find((candidate) => candidate.name === name)
    if (draft === undefined) throw this.#unknownCohort(name)
    return draft
  }

  #unknownCohort(name: string): InputError {
    if (this.names.length > 0) return unknownWord('cohort', name, this.names)
    return new InputError('world', 'one of conversations alone', 'an environment that is not text, like cartPole()')
  }

  #unknownTalk(name: string | undefined): InputError {
    const names = this.#textDrafts.map((draft) => draft.name)
    if (names.length > 0) return unknownWord('cohort of conversations', name, names)
    return new InputError(
      'world',
      'one without conversations',
      "a text environment, like textEnvironmentFactory('text/reverse')()",
    )
  }

  #plan(): Record<string, CohortPlan | TextCohortPlan> {
    return Object.fromEntries([
      ...this.#drafts.map((draft) => [draft.name, cohortPlan(draft, this.threads.count)] as const),
      ...this.#textDrafts.map((draft) => [draft.name, textCohortPlan(draft, this.threads.count)] as const),
    ])
  }

  #take(): void {
    const plan = this.#plan()
    const objects = this.#drafts.flatMap(cohortObjects)
    const { arena, columns } = this.#memory === undefined ? takeArena(plan, objects) : layArena(plan, this.#memory)
    const kernels = createKernels(arena.memory, this.kernelBuild)
    this.#arena = arena
    this.#columns = columns
    this.#kernels = kernels
    this.#cohorts = this.#drafts.map((draft, index) =>
      createCohort(
        draft,
        columns[draft.name] as Columns<CohortPlan>,
        this,
        kernels,
        this.#memory === undefined ? index : undefined,
      ),
    )
    this.#conversations = this.#textDrafts.map((draft, index) =>
      createTextCohort(
        draft,
        columns[draft.name] as Columns<TextCohortPlan>,
        this,
        kernels,
        this.#drafts.length + index,
      ),
    )
    for (const draft of this.#textDrafts) delete draft.begins // It is in the columns.
  }
}

/**
 * Refuses what is no world. A promise of one is the likeliest: `createWorld` is awaited.
 * @throws InputError that names the call.
 */
export function checkWorld(subject: string, world: unknown): asserts world is World {
  if (world instanceof World) return
  const got = world instanceof Promise ? 'a promise' : show(world)
  throw new InputError(subject, got, 'a world: await createWorld(…)')
}

function cohortsOf(options: WorldOptions): readonly CohortOptions[] {
  return allCohortsOf(options).filter((cohort) => !isTextCohort(cohort)) as CohortOptions[]
}

function allCohortsOf(options: WorldOptions): readonly (CohortOptions | TextCohortOptions)[] {
  if (typeof options !== 'object' || options === null) return []
  return 'cohorts' in options ? options.cohorts : [options]
}
