/**
 * A world holds cohorts of lanes. It is set up by program, planned, and takes its memory at its first use, when all who
 * need columns have said so; from then on nothing is allocated. Each lane is an entity of a bitecs world, and each group of
 * columns a component of it.
 */
import { createWorld as createEcs, createEntityIndex, type World as EcsWorld } from 'bitecs'
import { Clock } from './clock.ts'
import { type Action, type ActionMask, actionWindows } from './components/action.ts'
import { type Arena, layArena, takeArena } from './components/arena.ts'
import {
  type Column,
  type Columns,
  column,
  listColumns,
  type Plan,
  type PlannedColumn,
  saved,
  zipColumns,
} from './components/column.ts'
import { type Episode, episodePlan, Phase } from './components/episode.ts'
import type { Memory } from './components/memory.ts'
import type { Observation } from './components/observation.ts'
import { type RolloutColumns, type RowWidths, rolloutPlan } from './components/rollout.ts'
import { type Sliding, slidingWindows } from './components/sliding.ts'
import { type Transition, transitionWindows } from './components/transition.ts'
import { actionMaskWidth, type EnvironmentDefinition, type Lanes, statePlan } from './environments/environment.ts'
import { InputError, show, unknownWord } from './errors.ts'
import { bestKernelBuild, createKernels, type KernelBuild, type Kernels } from './kernels/bind.ts'
import { createLanes } from './lanes.ts'
import type { Policy, PolicyDefinition, PolicyModel } from './policies/policy.ts'
import { checkSeed, Random } from './random.ts'
import { choiceSizes, spaceType, spaceWidth } from './space.ts'

/**
 * When a lane whose episode ended begins a new one. `same-step`: before the next action, so every row of a rollout is a
 * step. `next-step`: instead of the next step, which leaves a dead row (valid = 0). `disabled`: when `restart` says so.
 */
export type Autoreset = 'same-step' | 'next-step' | 'disabled'

/** The lanes of one environment under one policy. */
export interface CohortOptions {
  environment: EnvironmentDefinition
  policy: PolicyDefinition
  /** How many lanes: a whole number ≥ 1. */
  numLanes: number
  /** How the cohort is called in columns, checkpoints and trainers; the policy's id where it is not given. */
  name?: string
  /** Number of the first lane in the whole run, which keys its random numbers; follows the cohort before. */
  firstLane?: number
  /** Default `same-step`. */
  autoreset?: Autoreset
  /** Sample actions (default), or take the most probable one. */
  explore?: boolean
}

/** What all cohorts of a world share. */
export interface SharedOptions {
  /** Keys every random number: a whole number in [0, 2^53). Default 0. */
  seed?: number
  /** Which kernel bodies. Default: the fastest that this runtime can run. */
  kernels?: KernelBuild
}

/** A world of one cohort, or of several. */
export type WorldOptions = SharedOptions & (CohortOptions | { cohorts: readonly CohortOptions[] })

/** What a recorder and a learner add to a cohort before its memory is taken. */
export interface Reservation {
  /** Rows that the rollout keeps of each lane. */
  numSteps: number
  /** The learner's own columns. */
  learner: Plan
}

/**
 * A cohort that has its memory. observation, actionMask, memory, action, transition, episode and state are the components
 * of its lanes; actionMask and memory have no elements, and are no components, where environment and policy have none.
 */
export interface Cohort {
  readonly name: string
  readonly environment: EnvironmentDefinition
  readonly policyDefinition: PolicyDefinition
  readonly model: PolicyModel
  readonly autoreset: Autoreset
  readonly explore: boolean
  readonly numLanes: number
  /** This thread's share of the lanes: from ≤ n < to. */
  readonly from: number
  readonly to: number
  /** True if its rollout is kept for a learner or a file. */
  readonly recorded: boolean
  /** True if the components slide along row blocks; else one block is written in place, tick after tick. */
  readonly sliding: boolean
  readonly numSteps: number

  /** The cohort's entities, as a bitecs query found them; none in a thread that shares another's columns. */
  readonly lanes: Uint32Array
  readonly observation: Observation
  readonly actionMask: ActionMask
  readonly memory: Memory
  readonly action: Action
  readonly transition: Transition
  readonly episode: Episode
  /** The environment's own columns. */
  readonly state: Columns<Plan>

  /** What the environment is handed: the same columns under its own names. */
  readonly environmentLanes: Lanes
  readonly policy: Policy
  readonly weights: Float32Array
  readonly rollout: RolloutColumns
  readonly learner: Columns<Plan>
  readonly bootstrap: BootstrapList
  /** The policy's answer, while it is awaited; null for a policy that answers at once. */
  answer: Answer | null
  /** True while the cohort takes no part in ticks: it waits for an answer, or its rollout is full and others' are not. */
  rests: boolean
  /** Steps until it rests: what is left of the rollout that is being collected. */
  ticksLeft: number
  /** Bounds of the action space: low and high of a box, sizes of choices. */
  readonly bounds: { readonly low: Float32Array; readonly high: Float32Array; readonly sizes: Int32Array }
  /** The components that slide. */
  readonly sliders: readonly Slider[]
  /** Room for a list of this thread's lanes. */
  readonly laneList: Uint32Array
  readonly windows: {
    readonly action: readonly Action[]
    readonly transition: readonly Transition[]
  }
  /** The row block of the rollout that this tick fills; numSteps when the rollout is full. */
  t: number
  /** Number of the weights. */
  version: number
}

/** A policy's answer that is awaited. */
export interface Answer {
  hasArrived: boolean
  /** What it failed with, if it did. */
  failure: { readonly cause: unknown } | null
  /** Settles when it has arrived; never fails. */
  arrival: Promise<void>
}

/** A component that slides along the rollout, and what the next rollout begins with. */
export interface Slider<C extends Float32Array | Uint8Array = Float32Array | Uint8Array> {
  readonly component: Sliding<C>
  /** Its windows on the rollout's row blocks. */
  readonly windows: readonly Sliding<C>[]
  /** What the next rollout begins with, and where it begins: this thread's share of both. */
  readonly carried: C
  readonly firstBlock: C
}

/** Final observations of this thread's truncated rows that wait for their value, with what the policy remembers there. */
export interface BootstrapList {
  /** Place in the rollout. */
  readonly row: Uint32Array
  readonly observation: Float32Array
  readonly memory: Float32Array
  readonly value: Float32Array
  length: number
}

/** What is known of a cohort before it has memory. */
interface CohortDraft {
  readonly options: CohortOptions
  readonly name: string
  readonly firstLane: number
  readonly model: PolicyModel
  reservation?: Reservation
}

/**
 * Plans a world of one cohort, or of several.
 * @throws InputError where an option is wrong, or the policy cannot serve the environment's spaces.
 * @example
 * const world = await createWorld({ environment: cartPole(), policy: mlp(), numLanes: 16, seed: 1 })
 */
export async function createWorld(options: WorldOptions): Promise<World> {
  for (const { policy } of cohortsOf(options)) await policy?.prepare?.()
  return new World(options)
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
  #cohorts: readonly Cohort[] | undefined
  #arena: Arena | undefined
  #columns: object | undefined
  readonly #memory: WebAssembly.Memory | undefined
  #kernels: Kernels | undefined

  /** Use `createWorld`. A thread that shares the columns of another's world says which memory and which share. */
  constructor(options: WorldOptions, shared?: { memory: WebAssembly.Memory; index: number }) {
    if (typeof options !== 'object' || options === null) {
      throw new InputError('createWorld(options)', show(options), 'an object with environment, policy and numLanes')
    }
    this.threads = { count: 1, index: shared?.index ?? 0 }
    this.#memory = shared?.memory
    this.seed = checkSeed(options.seed ?? 0)
    this.kernelBuild = options.kernels ?? bestKernelBuild()
    this.#drafts = draftCohorts(cohortsOf(options))
    const index = createEntityIndex()
    index.maxId = -1 // The first entity is 0, so that entities count the rows of the world.
    this.ecs = createEcs(index)
  }

  /** The cohorts, in the order of their lanes. Takes the world's memory if nothing has yet. */
  get cohorts(): readonly Cohort[] {
    if (this.#cohorts === undefined) this.#take()
    return this.#cohorts!
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
    if (cohort === undefined) throw unknownWord('cohort', name, this.names)
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
   * Splits the lanes among threads, before the memory is taken: each works in columns of its own.
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
    if (draft === undefined) throw unknownWord('cohort', name, this.names)
    return draft
  }

  #plan(): Record<string, CohortPlan> {
    return Object.fromEntries(this.#drafts.map((draft) => [draft.name, cohortPlan(draft, this.threads.count)]))
  }

  #take(): void {
    const plan = this.#plan()
    const { arena, columns } = this.#memory === undefined ? takeArena(plan) : layArena(plan, this.#memory)
    const kernels = createKernels(arena.memory, this.kernelBuild)
    this.#arena = arena
    this.#columns = columns
    this.#kernels = kernels
    this.#cohorts = this.#drafts.map((draft, index) =>
      createCohort(draft, columns[draft.name]!, this, kernels, this.#memory === undefined ? index : undefined),
    )
  }
}

function cohortsOf(options: WorldOptions): readonly CohortOptions[] {
  if (typeof options !== 'object' || options === null) return []
  return 'cohorts' in options ? options.cohorts : [options]
}

function draftCohorts(cohorts: readonly CohortOptions[]): CohortDraft[] {
  if (cohorts.length === 0) throw new InputError('cohorts', 'none', 'at least one cohort')
  const drafts: CohortDraft[] = []
  let nextLane = 0
  for (const options of cohorts) {
    const { environment, policy, numLanes, autoreset, explore } = options
    if (typeof environment?.reset !== 'function' || typeof environment.step !== 'function') {
      throw new InputError('environment', show(environment), 'an environment, like cartPole()')
    }
    if (typeof policy?.build !== 'function') throw new InputError('policy', show(policy), 'a policy, like mlp()')
    const name = options.name ?? policy.id
    if (drafts.some((draft) => draft.name === name)) {
      throw new InputError('cohort name', `${show(name)} twice`, 'a `name` of its own for each cohort')
    }
    if (!Number.isSafeInteger(numLanes) || numLanes < 1 || numLanes > 0xffffffff) {
      throw new InputError('numLanes', show(numLanes), 'a whole number ≥ 1')
    }
    const firstLane = options.firstLane ?? nextLane
    if (!Number.isSafeInteger(firstLane) || firstLane < 0 || firstLane + numLanes > 0xffffffff) {
      throw new InputError('firstLane', show(firstLane), 'a whole number ≥ 0 whose lanes are below 4294967295')
    }
    if (autoreset !== undefined && !['same-step', 'next-step', 'disabled'].includes(autoreset)) {
      throw unknownWord('autoreset', String(autoreset), ['same-step', 'next-step', 'disabled'])
    }
    if (explore !== undefined && typeof explore !== 'boolean')
      throw new InputError('explore', show(explore), 'true or false')
    drafts.push({
      options,
      name,
      firstLane,
      model: policy.build(environment.observationSpace, environment.actionSpace),
    })
    nextLane = firstLane + numLanes
  }
  return drafts
}

type CohortPlan = ReturnType<typeof cohortPlan>

function cohortPlan({ options, model, reservation }: CohortDraft, threads: number) {
  const { environment, numLanes } = options
  const { actionSpace } = environment
  const widths = rowWidths(environment, model)
  const actionWidth = spaceWidth(actionSpace)
  const isBox = actionSpace.kind === 'box'
  const listLength = reservation === undefined ? 0 : (model.answersLater ? reservation.numSteps + 1 : 2) * numLanes
  return {
    weights: saved(column('f32', model.numParameters)),
    episode: episodePlan(numLanes),
    state: statePlan(environment, numLanes),
    carried: {
      observation: saved(column('f32', numLanes, widths.observation)),
      actionMask: saved(column('u8', numLanes, widths.actionMask)),
      memory: saved(column('f32', numLanes, widths.memory)),
    },
    rollout: rolloutPlan(reservation?.numSteps ?? 1, numLanes, widths, actionSpace),
    clipped: column(spaceType(actionSpace), isBox ? numLanes : 0, actionWidth),
    bounds: {
      low: column('f32', isBox ? actionWidth : 0),
      high: column('f32', isBox ? actionWidth : 0),
      sizes: column('i32', isBox ? 0 : actionWidth),
    },
    bootstrap: {
      row: column('u32', listLength),
      observation: column('f32', listLength, widths.observation),
      memory: column('f32', listLength, widths.memory),
      value: column('f32', listLength),
    },
    laneList: column('u32', numLanes),
    workspaces: Object.fromEntries(Array.from({ length: threads }, (_, i) => [`thread${i}`, model.workspace()])),
    learner: reservation?.learner ?? {},
  }
}

function rowWidths(environment: EnvironmentDefinition, model: PolicyModel): RowWidths {
  return {
    observation: spaceWidth(environment.observationSpace),
    actionMask: actionMaskWidth(environment),
    memory: model.memoryWidth ?? 0,
  }
}

function createCohort(
  draft: CohortDraft,
  columns: Columns<CohortPlan>,
  world: World,
  kernels: Kernels,
  /** The cohort's number, if its columns are new and wait for their first values. */
  fresh: number | undefined,
): Cohort {
  const { options, name, firstLane, model, reservation } = draft
  const { environment, policy: policyDefinition, numLanes } = options
  const { actionSpace } = environment
  const recorded = reservation !== undefined
  const autoreset = options.autoreset ?? 'same-step'
  const sliding = recorded || autoreset === 'disabled' // Lanes that ended must go on seeing what they saw.
  const numSteps = reservation?.numSteps ?? 1
  const { rollout, carried, episode, weights, laneList, bootstrap } = columns
  const { count, index } = world.threads
  const from = Math.floor((index * numLanes) / count)
  const to = Math.floor(((index + 1) * numLanes) / count)

  const clipped = actionSpace.kind === 'box' ? (columns.clipped as Float32Array) : undefined
  const windows = {
    action: actionWindows(rollout, clipped, numSteps, numLanes, spaceWidth(actionSpace)),
    transition: transitionWindows(rollout, numSteps, numLanes),
  }
  const slide = { sliding, numSteps, numLanes, from, to }
  const observation = createSlider(rollout.observation, carried.observation, slide)
  const actionMask = createSlider(rollout.actionMask, carried.actionMask, slide)
  const memory = createSlider(rollout.memory, carried.memory, slide)
  const sliders = [observation, actionMask, memory].filter(({ component }) => component.current.length > 0)
  const action = { ...windows.action[0]! }
  const transition = { ...windows.transition[0]! }
  const components = [...sliders.map(({ component }) => component), action, transition, episode, columns.state]
  /** This thread's part of a list that has room for all lanes. */
  const shareOf = <C extends Float32Array | Uint32Array>(list: C): C => {
    const perLane = list.length / numLanes
    return list.subarray(from * perLane, to * perLane) as C
  }
  const random = new Random(world.seed)
  if (fresh !== undefined) {
    for (let n = 0; n < numLanes; n++) episode.lane[n] = firstLane + n
    episode.episode.fill(0xffffffff) // Minus one: the first reset makes it 0.
    episode.phase.fill(Phase.fresh)
    model.initialise(weights, random, fresh)
  }
  if (actionSpace.kind === 'box') {
    columns.bounds.low.set(actionSpace.low)
    columns.bounds.high.set(actionSpace.high)
  } else columns.bounds.sizes.set(choiceSizes(actionSpace))

  return {
    name,
    environment,
    policyDefinition,
    model,
    autoreset,
    explore: options.explore ?? true,
    numLanes,
    from,
    to,
    recorded,
    sliding,
    numSteps,
    lanes: fresh === undefined ? new Uint32Array(0) : createLanes(world.ecs, components, numLanes),
    observation: observation.component,
    actionMask: actionMask.component,
    memory: memory.component,
    action,
    transition,
    episode,
    state: columns.state,
    environmentLanes: {
      state: columns.state,
      observation: observation.component.current,
      actionMask: actionMask.component.current,
      action: action.applied,
      reward: transition.reward,
      terminated: transition.terminated,
      truncated: transition.truncated,
      lane: episode.lane,
      episode: episode.episode,
      step: episode.step,
      random,
      kernels,
    },
    policy: model.bind(weights, columns.workspaces[`thread${index}`]!, kernels, random),
    weights,
    rollout,
    learner: columns.learner,
    bootstrap: {
      row: shareOf(bootstrap.row),
      observation: shareOf(bootstrap.observation),
      memory: shareOf(bootstrap.memory),
      value: shareOf(bootstrap.value),
      length: 0,
    },
    bounds: columns.bounds,
    sliders,
    laneList: laneList.subarray(from, to),
    windows,
    answer: null,
    rests: false,
    ticksLeft: Number.POSITIVE_INFINITY,
    t: numSteps,
    version: 0,
  }
}

/** A component over a column that slides, and this thread's part in sliding it on. */
function createSlider<C extends Float32Array | Uint8Array>(
  column: C,
  carried: C,
  {
    sliding,
    numSteps,
    numLanes,
    from,
    to,
  }: { sliding: boolean } & Pick<Cohort, 'numSteps' | 'numLanes' | 'from' | 'to'>,
): Slider<C> {
  const windows = sliding ? slidingWindows(column, carried, numSteps) : [{ current: carried, next: carried }]
  const width = carried.length / numLanes
  const share = (whole: C) => whole.subarray(from * width, to * width) as C
  return { component: { ...windows[0]! }, windows, carried: share(carried), firstBlock: share(column) }
}

/** Ends the cohort's rollout where it stands: the next one begins with what the lanes see and remember now. */
export function closeRollout(cohort: Cohort): void {
  const { t, numSteps, sliders, from, to, numLanes, bootstrap } = cohort
  if (t > 0 && t < numSteps) {
    for (const { windows, carried } of sliders) {
      const { next } = windows[t - 1]!
      const width = next.length / numLanes
      carried.set(next.subarray(from * width, to * width))
    }
    bootstrap.length = 0
  }
  cohort.t = numSteps
}

/**
 * Points a cohort's components at row block `t` of its rollout. It has one block if it is not recorded.
 */
export function openRow(cohort: Cohort, t: number): void {
  const { windows, sliders, action, transition, environmentLanes } = cohort
  for (const slider of sliders) {
    const { current, next } = slider.windows[t]!
    slider.component.current = current
    slider.component.next = next
  }
  Object.assign(action, windows.action[t])
  Object.assign(transition, windows.transition[t])
  environmentLanes.action = action.applied
  environmentLanes.reward = transition.reward
  environmentLanes.terminated = transition.terminated
  environmentLanes.truncated = transition.truncated
}
