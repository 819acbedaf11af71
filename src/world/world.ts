/**
 * A world holds cohorts of lanes. It is set up by program, planned, and takes its memory at its first use, when all who
 * need columns have said so; from then on nothing is allocated. Each lane is an entity of a bitecs world, and each group of
 * columns a component of it.
 *
 * The first use is the first tick, `createTrainer`, or reading `world.cohorts`. Until then the recorder and the learner
 * add their columns to the plan (`world.plan()`).
 */
import { createWorld as createEcs, createEntityIndex, type World as EcsWorld } from 'bitecs'
import { Clock } from '../base/clock.ts'
import { checkCount, checkOptions, InputError, show, unknownWord } from '../base/errors.ts'
import { checkSeed } from '../base/random.ts'
import { type Arena, layArena, takeArena, type WasmMemory } from '../components/arena.ts'
import {
  type Column,
  type Columns,
  listColumns,
  type Plan,
  type PlannedColumn,
  zipColumns,
} from '../components/column.ts'
import { createKernels, kernelBuildOf } from '../kernels/bind.ts'
import type { KernelBuild, Kernels } from '../kernels/kernels.ts'
import type { Cohort } from './cohort.ts'
import type { ConversationCohort, ConversationCohortOptions, ConversationDraft } from './conversations/cohort.ts'
import type { EpisodeCohort } from './episodes/cohort.ts'
import type { EpisodeDraft } from './episodes/options.ts'
import type { CohortDraft, CohortOptions } from './housing.ts'
import { draftCohort, kindOf } from './kinds.ts'

/** What all cohorts of a world share. */
export interface SharedOptions {
  /** Keys every random number: a whole number in [0, 2^53). Default 0. */
  seed?: number
  /** Which kernel bodies. Default `best`: the fastest that this runtime can run. */
  kernels?: KernelBuild | 'best'
}

/** A world of one cohort, or of several. */
export type WorldOptions = SharedOptions & (CohortOptions | { cohorts: readonly CohortOptions[] })

/** The kind of cohort that options are for. */
export type CohortOf<O extends CohortOptions> = O extends ConversationCohortOptions ? ConversationCohort : EpisodeCohort
/** What a cohort is called; any text where the options leave it to the policy. */
export type NameOf<O extends CohortOptions> = O extends { name: infer Name extends string } ? Name : string

/** What is known of a cohort of that kind before it has memory. */
type DraftOf<C extends Cohort> = C extends EpisodeCohort ? EpisodeDraft : ConversationDraft

/** What a thread that shares the columns of another's world has of it: the memory, and which share. */
interface SharedColumns {
  readonly memory: WasmMemory
  readonly index: number
}

/**
 * Plans a world of one cohort, or of several.
 * @throws InputError where an option is wrong, or a policy cannot serve its environment.
 * @example
 * const world = await createWorld({ environment: cartPole(), policy: mlp(), numLanes: 16, seed: 1 })
 */
export function createWorld<const O extends CohortOptions>(
  options: SharedOptions & ({ cohorts: readonly O[] } | O),
): Promise<World<CohortOf<O>, NameOf<O>>>
export function createWorld(options: WorldOptions): Promise<World>
export function createWorld(options: WorldOptions): Promise<World> {
  return openWorld(options)
}

/** The same; in a thread that shares another's columns, over them. */
export async function openWorld(options: WorldOptions, shared?: SharedColumns): Promise<World> {
  if (typeof options !== 'object' || options === null) {
    throw new InputError('createWorld(options)', show(options), 'an object with environment, policy and numLanes')
  }
  const { seed = 0, kernels: named, ...others } = options
  const kernels = kernelBuildOf(named)
  if ('cohorts' in others) checkOptions('a world', others, ['cohorts', 'seed', 'kernels'])
  const cohorts = 'cohorts' in others ? others.cohorts : [others]
  if (!Array.isArray(cohorts) || cohorts.length === 0) {
    const got = Array.isArray(cohorts) ? 'none' : show(cohorts)
    throw new InputError('cohorts', got, Array.isArray(cohorts) ? 'at least one cohort' : 'a list of cohorts')
  }
  checkSeed(seed)
  const drafts: CohortDraft[] = []
  for (const each of cohorts) {
    const draft = await draftCohort(each, drafts)
    if (drafts.some(({ name }) => name === draft.name)) {
      throw new InputError('cohort name', `${show(draft.name)} twice`, 'a `name` of its own for each cohort')
    }
    drafts.push(draft)
  }
  return new World(drafts, { seed, kernels }, shared)
}

/** Cohorts of lanes over one memory. `C` is their kind, `Name` their names. */
export class World<out C extends Cohort = Cohort, out Name extends string = string> {
  /** How many threads share the work, which of them this is, and how many only collect. */
  readonly threads: { count: number; readonly index: number; actors: number }
  /** What this thread's time is charged to. */
  readonly clock = new Clock()
  readonly seed: number
  readonly kernelBuild: KernelBuild
  /** The bitecs world: its entities are the lanes. */
  readonly ecs: EcsWorld
  readonly #drafts: readonly CohortDraft[]
  #cohorts: readonly Cohort[] | undefined
  #arena: Arena | undefined
  #columns: object | undefined
  readonly #memory: WasmMemory | undefined
  #kernels: Kernels | undefined

  /** Use `createWorld`. */
  constructor(
    drafts: readonly CohortDraft[],
    { seed, kernels }: { readonly seed: number; readonly kernels: KernelBuild },
    shared?: SharedColumns,
  ) {
    this.threads = { count: 1, index: shared?.index ?? 0, actors: 0 }
    this.#memory = shared?.memory
    this.seed = seed
    this.kernelBuild = kernels
    this.#drafts = drafts
    const index = createEntityIndex()
    index.maxId = -1 // The first entity is 0, so that entities count the rows of the world.
    this.ecs = createEcs(index)
  }

  /** The cohorts, in the order in which they were given. Takes the world's memory if nothing has yet. */
  get cohorts(): readonly C[] {
    if (this.#cohorts === undefined) this.#take()
    return this.#cohorts as readonly Cohort[] as readonly C[]
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
  get names(): readonly Name[] {
    return this.#drafts.map((draft) => draft.name as Name)
  }

  /** What is known of the cohorts without taking memory: their options, and their policies' shapes. */
  get drafts(): readonly CohortDraft[] {
    return this.#drafts
  }

  /**
   * The cohort of that name, or the only one. Takes the world's memory if nothing has yet.
   * @throws InputError that names the nearest cohort.
   */
  cohort(name?: Name): C {
    const { name: found } = this.draft(name)
    return this.cohorts.find((candidate) => candidate.name === found)!
  }

  /**
   * What is known of the cohort of that name, or of the only one, without taking memory.
   * @throws InputError that names the nearest cohort.
   */
  draft(name?: Name): DraftOf<C> {
    const sole = name === undefined && this.#drafts.length === 1 ? this.#drafts[0] : undefined
    const draft = sole ?? this.#drafts.find((candidate) => candidate.name === name)
    if (draft !== undefined) return draft as DraftOf<C>
    if (name !== undefined) throw unknownWord('cohort', name, this.names)
    throw new InputError('cohort', `no name, of ${this.names.length} cohorts`, `one of ${this.names.join(', ')}`)
  }

  /**
   * Gives a cohort a learner's columns, and one of episodes a recorder.
   * @throws InputError if the memory is taken already, or the cohort has a learner or a recorder.
   */
  reserve<D extends CohortDraft>(draft: D, reservation: NonNullable<D['reservation']>): void {
    if (this.#cohorts !== undefined) {
      throw new InputError(
        'world',
        'one whose memory is already allocated',
        'createTrainer before the first tick and before `cohorts` is read',
      )
    }
    if (draft.reservation !== undefined) {
      throw new InputError(`cohort ${draft.name}`, 'a second recorder', 'one recorder a cohort')
    }
    draft.reservation = reservation
  }

  /**
   * Splits the lanes among threads, before the memory is taken: each works in columns of its own. Of a cohort of conversations,
   * they only decode. The last `actors` of the threads collect rollouts while the others learn, where there are any.
   * @throws InputError if the memory is taken already, a policy stays in its thread, or a definition has no module from which a
   * thread could make it.
   */
  split(count: number, actors = 0): void {
    if (this.#cohorts !== undefined) {
      throw new InputError(
        'threads',
        'a world whose memory is already allocated',
        'createTrainer before the first tick',
      )
    }
    checkCount('threads', count, 1, 64)
    if (!Number.isSafeInteger(actors) || actors < 0 || actors >= count) {
      throw new InputError('actors', show(actors), `a whole number from 0 to ${count - 1}: fewer than the threads`)
    }
    for (const draft of this.#drafts) kindOf(draft).checkThreads(draft, count)
    this.threads.count = count
    this.threads.actors = actors
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

  /** Gives back what policies hold of devices, and ends processes of environments. The world can still be used: they take it again when they are asked. */
  close(): void {
    for (const cohort of this.#cohorts ?? []) kindOf(cohort).release(cohort)
  }

  /** Cohorts of episodes come first: threads that share their lanes lay out their columns alone. */
  #plan(): Record<string, Plan> {
    const drafts = this.#drafts.toSorted((a, b) => KIND_ORDER.indexOf(a.kind) - KIND_ORDER.indexOf(b.kind))
    return Object.fromEntries(
      drafts.map((draft) => [draft.name, kindOf(draft).plan(draft, this.threads.count)] as const),
    )
  }

  #take(): void {
    const plan = this.#plan()
    const objects = this.#drafts.flatMap((draft) => kindOf(draft).objects(draft))
    const isFresh = this.#memory === undefined
    const { arena, columns } = isFresh ? takeArena(plan, objects) : layArena(plan, this.#memory!)
    const kernels = createKernels(arena.memory, this.kernelBuild)
    this.#arena = arena
    this.#columns = columns
    this.#kernels = kernels
    this.#cohorts = this.#drafts.map((draft) =>
      kindOf(draft).create(draft, ownColumns(draft, columns), this, kernels, isFresh),
    )
  }
}

/** A cohort's columns, with the weights of the cohort that it shares them with. */
function ownColumns(draft: CohortDraft, columns: Columns<Plan>): Columns<Plan> {
  const own = columns[draft.name] as Columns<Plan>
  if (draft.kind !== 'episodes' || draft.sharesWith === null) return own
  return { ...own, weights: (columns[draft.sharesWith] as Columns<Plan>).weights! }
}

const KIND_ORDER: readonly Cohort['kind'][] = ['episodes', 'conversations']

/**
 * Checks that a value is a world. The likeliest mistake is a promise: `createWorld` must be awaited.
 * @throws InputError that names the call.
 */
export function checkWorld(subject: string, world: unknown): asserts world is World {
  if (world instanceof World) return
  const got = world instanceof Promise ? 'a promise' : show(world)
  throw new InputError(subject, got, 'a world: await createWorld(…)')
}
