/**
 * A world holds cohorts of lanes. It is planned first and allocates its memory at its first use, after all users of columns have reserved
 * them; from then on nothing is allocated. Each lane is an entity of a bitecs world, and each group of columns is a component.
 *
 * The first use is the first tick, `createTrainer`, or reading `world.cohorts`. Until then recorder and learner add their columns to the
 * plan (`world.plan()`).
 */
import { createWorld as createEcs, createEntityIndex, type World as EcsWorld } from 'bitecs'
import { Clock } from '../base/clock.ts'
import { checkCount, checkOptions, InputError, show, unknownWord } from '../base/errors.ts'
import { checkSeed } from '../base/random.ts'
import { type Arena, layArena, listColumns, takeArena, type WasmMemory, zipColumns } from '../components/arena.ts'
import type { Column, Columns, Plan, PlannedColumn } from '../components/column.ts'
import { createKernels, kernelBuildOf, loadKernels } from '../kernels/bind.ts'
import type { KernelBuild, Kernels } from '../kernels/kernels.ts'
import type { Cohort, CohortKind } from './cohort.ts'
import type { ConversationCohort, ConversationCohortOptions, ConversationDraft } from './conversations/cohort.ts'
import type { EpisodeCohort } from './episodes/cohort.ts'
import { createEpisodes } from './episodes/columns.ts'
import {
  checkEpisodeThreads,
  draftEpisodes,
  type EpisodeCohortPlan,
  episodeObjects,
  planEpisodes,
} from './episodes/draft.ts'
import { type EpisodeCohortOptions, type EpisodeDraft, episodeOptions } from './episodes/options.ts'
import type { CohortDraft, CohortOptions } from './housing.ts'

/** Options that all cohorts of a world share. */
export interface SharedOptions {
  /** Keys every random number: a whole number in [0, 2^53). Default 0. */
  seed?: number
  /** The kernel build. Default `best`: the fastest that this runtime supports. */
  kernels?: KernelBuild | 'best'
}

/** Options of a world with one cohort or several. */
export type WorldOptions = SharedOptions & (CohortOptions | { cohorts: readonly CohortOptions[] })

/** The kind of cohort that the options describe. */
export type CohortOf<O extends CohortOptions> = O extends ConversationCohortOptions ? ConversationCohort : EpisodeCohort
/** A cohort's name; any string if the name defaults to the policy's id. */
export type NameOf<O extends CohortOptions> = O extends { name: infer Name extends string } ? Name : string

type DraftOf<C extends Cohort> = C extends EpisodeCohort ? EpisodeDraft : ConversationDraft

/** The memory of another thread's world that a thread shares, and its share; without it, of an actor in its own process. */
interface SharedColumns {
  readonly memory?: WasmMemory
  readonly index: number
}

/**
 * Plans a world of one cohort or several.
 * @throws InputError for a wrong option, and a policy that does not fit its environment.
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

/** As `createWorld`; with `shared`, over the columns of another thread's world. */
export async function openWorld(options: WorldOptions, shared?: SharedColumns): Promise<World> {
  if (typeof options !== 'object' || options === null) {
    throw new InputError('createWorld(options)', show(options), 'an object with environment, policy and numLanes')
  }
  const { seed = 0, kernels: named, ...others } = options
  const kernels = kernelBuildOf(named)
  await loadKernels(kernels)
  if ('cohorts' in others) checkOptions('a world', others, ['cohorts', 'seed', 'kernels'])
  const cohorts = 'cohorts' in others ? others.cohorts : [others]
  if (!Array.isArray(cohorts) || cohorts.length === 0) {
    const got = Array.isArray(cohorts) ? 'none' : show(cohorts)
    throw new InputError('cohorts', got, Array.isArray(cohorts) ? 'at least one cohort' : 'a list of cohorts')
  }
  checkSeed(seed)
  const drafts: CohortDraft[] = []
  for (const each of cohorts) {
    const draft = await draftCohort(each, drafts, shared !== undefined, kernels)
    if (drafts.some(({ name }) => name === draft.name)) {
      throw new InputError('cohort name', `${show(draft.name)} twice`, 'a distinct `name` for each cohort')
    }
    drafts.push(draft)
  }
  return new World(drafts, { seed, kernels }, shared)
}

/** Promises of a cohort that awaits none: requested in every tick, so the list is created once. */
const NOTHING: readonly Promise<void>[] = []

/** What a world asks of a cohort of episodes. Its systems are in `systems/tick.ts`, above the world. */
const episodes: CohortKind<EpisodeCohortOptions, EpisodeDraft, EpisodeCohort> = {
  options: episodeOptions,
  draft: draftEpisodes,
  checkThreads: checkEpisodeThreads,
  plan: planEpisodes,
  objects: episodeObjects,
  create(draft, columns, world, kernels, isFresh) {
    return createEpisodes(draft, columns as Columns<EpisodeCohortPlan>, world, kernels, isFresh)
  },
  owed({ answer, rests, late }) {
    if (answer !== null) return [answer.arrival]
    return rests || late.size === 0 ? NOTHING : late.arrivals()
  },
  canGoOn: ({ rests, late, from, to }) => !rests && late.size < to - from,
  release({ policy, environment, state }) {
    policy.dispose?.()
    environment.close?.(state)
  },
}

type AnyKind = CohortKind<CohortOptions, CohortDraft, Cohort>
const kinds: { readonly episodes: AnyKind; conversations?: AnyKind } = { episodes: episodes as unknown as AnyKind }

export function kindOf({ kind }: { readonly kind: Cohort['kind'] }): AnyKind {
  return kinds[kind]!
}

/** Code that other rooms load for conversations, so that a page of episodes loads none of it. */
const loads: (() => Promise<void>)[] = []

/** Runs `load` before the first cohort of conversations is drafted. */
export function loadForConversations(load: () => Promise<void>): void {
  loads.push(load)
}

async function conversationsKind(): Promise<AnyKind> {
  if (kinds.conversations === undefined) {
    const { conversations } = await import('./conversations/kind.ts')
    await Promise.all(loads.map((load) => load()))
    kinds.conversations = conversations as unknown as AnyKind
  }
  return kinds.conversations
}

/**
 * Creates the draft of a cohort, of the kind of its environment. `helps`: in a thread that helps the one of `createWorld`.
 * @throws InputError for an unknown option, and as the kind's `draft` does.
 */
async function draftCohort(
  options: CohortOptions,
  before: readonly CohortDraft[],
  helps: boolean,
  kernels: KernelBuild,
): Promise<CohortDraft> {
  if (typeof options !== 'object' || options === null) {
    throw new InputError('cohort', show(options), 'an object with environment, policy and numLanes')
  }
  const isText = (options as Partial<ConversationCohortOptions>).environment?.kind === 'text'
  const kind = isText ? await conversationsKind() : kinds.episodes
  checkOptions(`a cohort of ${isText ? 'conversations' : 'episodes'}`, options, kind.options)
  return kind.draft(options, before, helps, kernels)
}

/** Cohorts of lanes over one memory. `C` is their kind, `Name` their names. */
export class World<out C extends Cohort = Cohort, out Name extends string = string> {
  /** Number of threads that share the work, this thread's index, and the number of threads that only collect. */
  readonly threads: { count: number; readonly index: number; actors: number }
  /** Measures this thread's time. */
  readonly clock = new Clock()
  readonly seed: number
  readonly kernelBuild: KernelBuild
  /** The bitecs world, whose entities are the lanes. */
  readonly ecs: EcsWorld
  readonly #drafts: readonly CohortDraft[]
  #cohorts: readonly Cohort[] | undefined
  #arena: Arena | undefined
  /** Listed once: a run that can be abandoned saves its state before each update. */
  #columns: readonly { readonly planned: PlannedColumn; readonly column: Column }[] | undefined
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
    index.maxId = -1 // Entities start at 0, so that they count the rows of the world.
    this.ecs = createEcs(index)
  }

  /** The cohorts in order. Allocates the memory on first use. */
  get cohorts(): readonly C[] {
    if (this.#cohorts === undefined) this.#take()
    return this.#cohorts as readonly Cohort[] as readonly C[]
  }

  /** This thread's kernels. Allocates the memory on first use. */
  get kernels(): Kernels {
    if (this.#kernels === undefined) this.#take()
    return this.#kernels!
  }

  /** The memory of all columns. Allocates it on first use. */
  get arena(): Arena {
    if (this.#arena === undefined) this.#take()
    return this.#arena!
  }

  /** The names of the cohorts, without allocating memory. */
  get names(): readonly Name[] {
    return this.#drafts.map((draft) => draft.name as Name)
  }

  /** The drafts of the cohorts (options and policy shapes), without allocating memory. */
  get drafts(): readonly CohortDraft[] {
    return this.#drafts
  }

  /** Returns the cohort with that name, or the only one. Allocates the memory on first use. @throws InputError with the nearest name. */
  cohort(name?: Name): C {
    const { name: found } = this.draft(name)
    return this.cohorts.find((candidate) => candidate.name === found)!
  }

  /**
   * Returns the draft of the cohort with that name, or of the only one, without allocating memory.
   * @throws InputError with the nearest name.
   */
  draft(name?: Name): DraftOf<C> {
    const sole = name === undefined && this.#drafts.length === 1 ? this.#drafts[0] : undefined
    const draft = sole ?? this.#drafts.find((candidate) => candidate.name === name)
    if (draft !== undefined) return draft as DraftOf<C>
    if (name !== undefined) throw unknownWord('cohort', name, this.names)
    throw new InputError('cohort', `no name for one of ${this.names.length} cohorts`, `one of ${this.names.join(', ')}`)
  }

  /**
   * Reserves a learner's columns in a cohort, and a recorder in a cohort of episodes.
   * @throws InputError if the memory is already allocated, or the cohort already has a learner or recorder.
   */
  reserve<D extends CohortDraft>(draft: D, reservation: NonNullable<D['reservation']>): void {
    if (this.#cohorts !== undefined) {
      const expected = 'createTrainer before the first tick and before `cohorts` is read'
      throw new InputError('world', 'a world whose memory is already allocated', expected)
    }
    if (draft.reservation !== undefined) {
      throw new InputError(`cohort ${draft.name}`, 'a second recorder', 'one recorder per cohort')
    }
    draft.reservation = reservation
  }

  /**
   * Divides the lanes among threads before the memory is allocated; each thread has its own workspace. In a cohort of conversations
   * threads only decode. The last `actors` threads collect rollouts while the others learn.
   * @throws InputError if the memory is already allocated, a policy cannot leave its thread, or a definition has no module from which a
   * thread could create it.
   */
  split(count: number, actors = 0): void {
    if (this.#cohorts !== undefined) {
      const expected = 'createTrainer before the first tick'
      throw new InputError('threads', 'a world whose memory is already allocated', expected)
    }
    checkCount('threads', count, 1, 64)
    if (!Number.isSafeInteger(actors) || actors < 0 || actors >= count) {
      throw new InputError('actors', show(actors), `a whole number from 0 to ${count - 1}: fewer than the threads`)
    }
    for (const draft of this.#drafts) kindOf(draft).checkThreads(draft, count)
    this.threads.count = count
    this.threads.actors = actors
  }

  /** Every column with its bytes, before or after the memory is allocated. */
  plan(): PlannedColumn[] {
    return listColumns(this.#plan())
  }

  /** Every column with its typed array. Allocates the memory on first use. */
  columns(): readonly { readonly planned: PlannedColumn; readonly column: Column }[] {
    if (this.#columns === undefined) this.#take()
    return this.#columns!
  }

  /** Releases policies' devices and environments' processes. The world stays usable and acquires them again on demand. */
  close(): void {
    for (const cohort of this.#cohorts ?? []) kindOf(cohort).release(cohort)
  }

  /** Cohorts of episodes come first: threads that share their lanes lay out only these columns. */
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
    const kernels = createKernels(arena.memory, this.kernelBuild, arena.columns)
    this.#arena = arena
    this.#columns = zipColumns(plan, columns)
    this.#kernels = kernels
    this.#cohorts = this.#drafts.map((draft) =>
      kindOf(draft).create(draft, ownColumns(draft, columns), this, kernels, isFresh),
    )
  }
}

/** A cohort's columns, including weights that it shares with another cohort. */
function ownColumns(draft: CohortDraft, columns: Columns<Plan>): Columns<Plan> {
  const own = columns[draft.name] as Columns<Plan>
  if (draft.kind !== 'episodes' || draft.sharesWith === null) return own
  return { ...own, weights: (columns[draft.sharesWith] as Columns<Plan>).weights! }
}

const KIND_ORDER: readonly Cohort['kind'][] = ['episodes', 'conversations']

/**
 * Checks that a value is a world. A common mistake is a promise: `createWorld` must be awaited.
 * @throws InputError that names the call.
 */
export function checkWorld(subject: string, world: unknown): asserts world is World {
  if (world instanceof World) return
  const got = world instanceof Promise ? 'a promise' : show(world)
  throw new InputError(subject, got, 'a world: await createWorld(…)')
}
