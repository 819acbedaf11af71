/**
 * A cohort of episodes: the lanes of one environment under one policy. First a draft, which knows its options and its network's shapes;
 * then columns, planned; then, when the world has taken its memory, components over windows on the rollout.
 */
import { type Action, type ActionMask, actionWindows } from '../components/action.ts'
import type { PlannedObjects } from '../components/arena.ts'
import { type Column, type Columns, column, type Plan, saved } from '../components/column.ts'
import { type Episode, episodePlan, Phase } from '../components/episode.ts'
import type { Memory } from '../components/memory.ts'
import type { Observation } from '../components/observation.ts'
import { type PopulationColumns, populationPlan } from '../components/population.ts'
import {
  type FinalObservations,
  finalPlan,
  type RolloutColumns,
  type RowWidths,
  rolloutPlan,
} from '../components/rollout.ts'
import { type Sliding, slidingWindows } from '../components/sliding.ts'
import { type Transition, transitionWindows } from '../components/transition.ts'
import type { DefinitionRecord } from '../definition.ts'
import { actionMaskWidth, type EnvironmentDefinition, type Lanes, statePlan } from '../environments/environment.ts'
import { InputError, show, unknownWord } from '../errors.ts'
import type { Kernels } from '../kernels/bind.ts'
import type { Policy, PolicyDefinition, PolicyModel } from '../policies/policy.ts'
import { checkSeed, Random } from '../random.ts'
import { type BoxSpace, choiceSizes, spaceWidth } from '../space.ts'
import { type Ahead, aheadPlan, createAhead, type RolloutBuffer } from './ahead.ts'
import type { Cohort, CohortDraft, Housing } from './cohort.ts'
import { LaneEntities } from './lanes.ts'
import { LateLanes } from './late.ts'
import { checkSets, createLeague, type League, leaguePlan } from './league.ts'
import { checkSelfPlay, createSelfPlay, type SelfPlay, type SelfPlayOptions, selfPlayPlan } from './self-play.ts'
import { type BoundSystem, bindSystem, checkSystems, type SystemDefinition, systemsPlan } from './system.ts'

/**
 * When a lane whose episode ended begins a new one. `same-step`: before the next action, so every row of a rollout is a
 * step. `next-step`: instead of the next step, which leaves a dead row (valid = 0). `disabled`: when `restart` says so.
 */
export type Autoreset = 'same-step' | 'next-step' | 'disabled'

/** The lanes of one environment under one policy. */
export interface EpisodeCohortOptions {
  environment: EnvironmentDefinition
  /** Or the name of a cohort before it, whose policy acts here too: with its weights, which both have. */
  policy: PolicyDefinition | string
  /** How many lanes: a whole number ≥ 1. Where they come and go, at most so many at a time. */
  numLanes: number
  /** How many of the lanes are there at first, in a cohort whose lanes come and go; all where it is not given. */
  present?: number
  /** How the cohort is called in columns, checkpoints and trainers; the policy's id where it is not given. */
  name?: string
  /** Number of the first lane in the whole run, which keys its random numbers; follows the cohort before, 0 with a `seed`. */
  firstLane?: number
  /** Keys its random numbers apart from the world's: the cohort learns what it learns alone in a world of this seed. */
  seed?: number
  /** Default `same-step`. */
  autoreset?: Autoreset
  /** Sample actions (default), or take the most probable one. */
  explore?: boolean
  /** How many sets of weights the policy has: `cohort.league` says which acts where. Default 1. */
  weightSets?: number
  /** How many of them learn, from the first on: each from the lanes in which it acts, like the roles of a game. Default 1. */
  learningSets?: number
  /** Plays games against earlier selves, which are further sets of weights, and rates them: see `SelfPlayOptions`. */
  selfPlay?: SelfPlayOptions
  /** Systems of one's own, in the order in which those with the same place run; see `defineSystem`. */
  systems?: readonly SystemDefinition[]
}

/** The names of the options. */
export const episodeOptions = Object.keys({
  ...{ environment: true, policy: true, numLanes: true, present: true, name: true, firstLane: true, seed: true },
  ...{ autoreset: true, explore: true, weightSets: true, learningSets: true, selfPlay: true, systems: true },
} satisfies Record<keyof EpisodeCohortOptions, true>)

/** What a recorder and a learner add to a cohort of episodes before its memory is taken. */
export interface EpisodeReservation {
  /** Rows that the rollout keeps of each lane. */
  numSteps: number
  /** The learner's own columns. */
  learner: Plan
  /** How many rollouts have columns, where some threads collect while others learn. */
  numBuffers?: number
}

/**
 * A cohort that has its memory. observation, actionMask, memory, action, transition, episode and state are the components
 * of its lanes; actionMask and memory have no elements, and are no components, where environment and policy have none.
 */
export interface EpisodeCohort {
  readonly kind: 'episodes'
  readonly name: string
  readonly environment: EnvironmentDefinition
  readonly policyDefinition: PolicyDefinition
  /** The cohort whose weights these are; null where they are its own. */
  readonly sharesWith: string | null
  readonly model: PolicyModel
  readonly autoreset: Autoreset
  readonly explore: boolean
  /** Lanes for which the columns have rows. */
  readonly numLanes: number
  /** Number of the first lane in the whole run. */
  readonly firstLane: number
  /** Keys its random numbers: the world's seed, or its own. */
  readonly seed: number
  /** Lanes that were there when this rollout began: the first rows. */
  present: number
  /** Rows of each block from this one on look as nobody's. */
  cleared: number
  /** This thread's share of them: from ≤ n < to. */
  from: number
  to: number
  /** True if its rollout is kept for a learner or a file. */
  readonly recorded: boolean
  /** True if the components slide along row blocks; else one block is written in place, tick after tick. */
  readonly sliding: boolean
  readonly numSteps: number

  /** Who is there, as bitecs has it; null in a thread that shares another's columns. */
  readonly entities: LaneEntities | null
  /** The entity of each row, as a bitecs query found them; none in a thread that shares another's columns. */
  lanes: Uint32Array
  /** Who comes and goes; null in a cohort whose lanes stay. */
  readonly population: PopulationColumns | null
  readonly observation: Observation
  readonly actionMask: ActionMask
  readonly memory: Memory
  readonly action: Action
  readonly transition: Transition
  readonly episode: Episode
  /** The environment's own columns. */
  readonly state: Columns<Plan>

  /** Systems of one's own. */
  readonly systems: readonly BoundSystem[]

  /** What the environment is handed: the same columns under its own names. */
  readonly environmentLanes: Lanes
  readonly policy: Policy
  readonly weights: Float32Array
  /** The sets of weights, and which acts in each lane; null where there is one. */
  readonly league: League | null
  /** Earlier selves, and how they are rated; null where they are not asked for. */
  readonly selfPlay: SelfPlay | null
  /** Where rollouts are collected ahead, that of the buffer which is open. */
  readonly rollout: RolloutColumns
  /** Columns for rollouts ahead; null where all threads collect, then all learn. */
  readonly ahead: Ahead | null
  readonly learner: Columns<Plan>
  bootstrap: BootstrapList
  /** What came after rows that no later row shows: this thread's list, and those of all threads. */
  final: FinalObservations
  finals: readonly FinalObservations[]
  /** Lanes whose environment answers later. */
  readonly late: LateLanes
  /** The policy's answer, while it is awaited; null for a policy that answers at once. */
  answer: Answer | null
  /** True while the cohort takes no part in ticks: it waits for an answer, or its rollout is full and others' are not. */
  rests: boolean
  /** Steps until it rests: what is left of the rollout that is being collected. */
  ticksLeft: number
  /** Bounds of the action space: low and high of a box, sizes of choices. */
  readonly bounds: Bounds & { readonly sizes: Int32Array }
  /** Bounds of each element of an observation, finite ones: what the environment may write. */
  readonly observationBounds: Bounds
  /** The components that slide. */
  readonly sliders: readonly Slider[]
  /** Room for a list of this thread's lanes. */
  laneList: Uint32Array
  /** The columns that have a row a lane and go on from one rollout to the next. */
  readonly carried: readonly Column[]
  /** Columns of all threads, of which this one has a part. */
  readonly whole: Pick<Columns<EpisodeCohortPlan>, 'final' | 'bootstrap' | 'laneList'>
  /** How many threads share the lanes, and which of them this is. */
  readonly threads: Housing['threads']
  readonly windows: RolloutBuffer['windows']
  /** The row block of the rollout that this tick fills; numSteps when the rollout is full. */
  t: number
  /** Number of the weights. */
  version: number
}

/**
 * A cohort that has to be one of episodes.
 * @throws InputError that names the call where it is one of conversations.
 */
export function asEpisodes(subject: string, cohort: Cohort): EpisodeCohort {
  if (cohort.kind === 'episodes') return cohort
  throw new InputError(subject, `cohort ${cohort.name} of conversations`, 'one of episodes, like that of CartPole-v1')
}

/** Why the environment of a cohort has to answer at once: what is expected instead; null where it may answer later. */
function whyNotLate({ model, options: { environment } }: EpisodeDraft, numThreads: number): string | null {
  if (numThreads > 1) return `one at once, or lanes of one thread (threads: 1); ${numThreads} share them`
  if ((environment.numAgents ?? 1) > 1) return 'one at once: the lanes of a game are stepped together'
  if (environment.population === true) return 'one at once: lanes are born and die'
  return (model.memoryWidth ?? 0) > 0 ? 'one at once, or a policy without memory' : null
}

/** The lowest and the highest that each dimension may be. */
export interface Bounds {
  readonly low: Float32Array
  readonly high: Float32Array
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
  carried: C
  firstBlock: C
  /** The same of all threads. */
  readonly whole: { readonly carried: C; readonly firstBlock: C }
}

/** Final observations of this thread's truncated rows that wait for their value, with what the policy remembers there. */
export interface BootstrapList {
  /** Place in the rollout. */
  readonly row: Uint32Array
  readonly observation: Float32Array
  readonly memory: Float32Array
  /** What was legal there. */
  readonly actionMask: Uint8Array
  readonly value: Float32Array
  length: number
}

/** What is known of a cohort of episodes before it has memory. */
export interface EpisodeDraft {
  readonly kind: 'episodes'
  readonly options: EpisodeCohortOptions
  readonly policy: PolicyDefinition
  /** The cohort whose weights it has; null where they are its own. */
  readonly sharesWith: string | null
  readonly name: string
  /** Keys its starting weights: how many cohorts of episodes with the world's seed are before it; 0 with a seed of its own. */
  readonly key: number
  readonly firstLane: number
  /** Whether its lanes come and go. */
  readonly isOpen: boolean
  readonly model: PolicyModel
  /** How many sets of weights there are, how many of them learn, and how lanes play against earlier selves, if they do. */
  readonly sets: {
    readonly all: number
    readonly learning: number
    readonly selfPlay: Required<SelfPlayOptions> | null
  }
  reservation?: EpisodeReservation
}
/**
 * Checks the options of a cohort, and builds its network. `before` are the world's cohorts before it, which its lanes follow.
 * @throws InputError that says which option is wrong.
 */
export async function draftEpisodes(
  options: EpisodeCohortOptions,
  before: readonly CohortDraft[],
): Promise<EpisodeDraft> {
  const { environment, numLanes, present, autoreset, explore } = options
  const owner = typeof options.policy === 'string' ? ownerOf(options, before) : null
  const policy = owner === null ? (options.policy as PolicyDefinition) : owner.policy
  if (typeof environment?.reset !== 'function' || typeof environment.step !== 'function') {
    throw new InputError('environment', show(environment), 'an environment, like cartPole()')
  }
  for (const name of ['reset', 'step'] as const) {
    if (isAsynchronous(environment[name])) {
      throw new InputError(`environment ${environment.id}`, `an async ${name}`, DONE)
    }
  }
  if (typeof policy?.build !== 'function') throw new InputError('policy', show(policy), 'a policy, like mlp()')
  if (!Number.isSafeInteger(numLanes) || numLanes < 1 || numLanes > 0xffffffff) {
    throw new InputError('numLanes', show(numLanes), 'a whole number ≥ 1')
  }
  const { numAgents = 1 } = environment
  if (numLanes % numAgents !== 0) {
    throw new InputError('numLanes', show(numLanes), `a multiple of ${numAgents}, the agents of ${environment.id}`)
  }
  if (options.seed !== undefined) checkSeed(options.seed)
  const isSeeded = options.seed !== undefined
  // With a seed of its own it follows nobody.
  const others = isSeeded ? [] : before.filter((draft) => draft.kind === 'episodes').filter(hasWorldsSeed)
  const last = others.at(-1)
  const isOpen = present !== undefined || environment.population === true
  if (present !== undefined && (!Number.isSafeInteger(present) || present < 0 || present > numLanes)) {
    throw new InputError('present', show(present), `a whole number from 0 to numLanes, ${numLanes}`)
  }
  if (isOpen && numAgents > 1) {
    throw new InputError('present', `a cohort of ${environment.id}, which has ${numAgents} agents`, 'lanes that stay')
  }
  const firstLane = options.firstLane ?? (last === undefined ? 0 : last.firstLane + numbersOf(last))
  const numNumbers = numbersOf({ isOpen, options })
  if (!Number.isSafeInteger(firstLane) || firstLane < 0 || firstLane + numNumbers > 0xffffffff) {
    throw new InputError('firstLane', show(firstLane), 'a whole number ≥ 0 whose lanes are below 4294967295')
  }
  if (autoreset !== undefined && !['same-step', 'next-step', 'disabled'].includes(autoreset)) {
    throw unknownWord('autoreset', String(autoreset), ['same-step', 'next-step', 'disabled'])
  }
  if (isOpen && (autoreset ?? 'same-step') !== 'same-step') {
    throw new InputError('autoreset', show(autoreset), 'same-step in a cohort whose lanes come and go')
  }
  if (explore !== undefined && typeof explore !== 'boolean') {
    throw new InputError('explore', show(explore), 'true or false')
  }
  checkSystems(options.systems)
  await policy.prepare?.()
  const model = policy.build(environment.observationSpace, environment.actionSpace)
  if (owner !== null && show(model.parameters) !== show(owner.model.parameters)) {
    const got = `${owner.name}, whose network has other shapes than this environment needs`
    throw new InputError('policy', got, 'that of a cohort with the same spaces')
  }
  const sets = setsOf(options, policy.id, model)
  const name = options.name ?? policy.id
  const sharesWith = owner === null ? null : (owner.sharesWith ?? owner.name)
  return { kind: 'episodes', options, policy, sharesWith, name, key: others.length, firstLane, isOpen, model, sets }
}

function hasWorldsSeed({ options }: EpisodeDraft): boolean {
  return options.seed === undefined
}

/** @throws InputError where there cannot be such sets of weights. */
function setsOf(
  { environment, weightSets, learningSets, selfPlay: asked }: EpisodeCohortOptions,
  id: string,
  model: PolicyModel,
) {
  const selfPlay = asked === undefined ? null : checkSelfPlay(asked, environment)
  for (const [name, given] of Object.entries({ weightSets, learningSets })) {
    if (selfPlay === null || given === undefined) continue
    throw new InputError(name, `${show(given)} beside selfPlay`, 'one of the two: earlier selves are sets of weights')
  }
  const sets = {
    all: selfPlay === null ? (weightSets ?? 1) : 1 + selfPlay.opponents,
    learning: learningSets ?? 1,
    selfPlay,
  }
  checkSets(sets.all, sets.learning, id, model)
  return sets
}

/** Lanes that a cohort whose lanes come and go may ever have: so many numbers are kept for it. */
export const LANE_NUMBERS = 2 ** 27

/** How many lane numbers are a cohort's, from its first one on. */
function numbersOf({ isOpen, options }: Pick<EpisodeDraft, 'isOpen' | 'options'>): number {
  return isOpen ? Math.max(LANE_NUMBERS, options.numLanes) : options.numLanes
}

/** @throws InputError where no cohort of episodes before this one has the name that it gives for its policy. */
function ownerOf({ policy }: EpisodeCohortOptions, before: readonly CohortDraft[]): EpisodeDraft {
  const episodes = before.filter((draft) => draft.kind === 'episodes')
  const owner = episodes.find(({ name }) => name === policy)
  if (owner !== undefined) return owner
  const names = episodes.map(({ name }) => name)
  if (names.length > 0) throw unknownWord('policy', String(policy), names)
  throw new InputError('policy', show(policy), 'a policy, like mlp(), or the name of a cohort before it')
}

/**
 * @throws InputError where the policy stays in its thread, or a definition has no module from which a thread could make it.
 */
export function checkEpisodeThreads({ options, policy, model }: EpisodeDraft, count: number): void {
  if (count === 1) return
  const { environment } = options
  if (model.staysInThread) {
    const expected = "threads: 1: its device serves only the caller's thread"
    throw new InputError(`policy ${policy.id}`, `${count} threads`, expected)
  }
  const systems = (options.systems ?? []).filter(({ run }) => run !== undefined)
  const parts = [
    ['environment', environment],
    ['policy', policy],
    ...systems.map((system) => ['system', system]),
  ] as const
  for (const [noun, { id, module }] of parts as readonly (readonly [string, DefinitionRecord])[]) {
    if (module !== undefined) continue
    const remedy = 'a definition with `module: import.meta.url`, which other threads can make; or threads: 1'
    throw new InputError(`${noun} ${id}`, `no module, and ${count} threads`, remedy)
  }
}

/**
 * The largest reward, either way. Losses square returns in f32: a return of ten thousand such rewards has a square that f32
 * still holds, and what is beyond is no reward but a mistake.
 */
export const REWARD_MAX = 2 ** 50

/** What an environment's functions have to be. */
export const DONE = 'one that is done when it returns: lanes do not wait for their environment'

function isAsynchronous(f: { readonly constructor: { readonly name: string } }): boolean {
  return f.constructor.name.startsWith('Async')
}

/** A cohort's columns before they have memory. */
export type EpisodeCohortPlan = ReturnType<typeof planEpisodes>

/** Plans a cohort's columns; each thread that shares it has a workspace. */
export function planEpisodes(draft: EpisodeDraft, threads: number) {
  const { options, sharesWith, isOpen, model, sets, reservation } = draft
  const { environment, numLanes } = options
  const population = populationPlan(numLanes, environment.population === true)
  const { actionSpace } = environment
  const widths = rowWidths(environment, model)
  const numRows = (reservation?.numSteps ?? 1) * numLanes
  const selfPlay = selfPlayPlan(sets.all)
  const league = leaguePlan(sets.all, sets.learning, environment, numLanes, numRows, model, widths, threads)
  const actionWidth = spaceWidth(actionSpace)
  const isBox = actionSpace.kind === 'box'
  const listLength = reservation === undefined ? 0 : (model.answersLater ? reservation.numSteps + 1 : 2) * numLanes
  const buffer = () => ({
    rollout: rolloutPlan(reservation?.numSteps ?? 1, numLanes, widths, actionSpace),
    final: finalPlan(reservation?.numSteps ?? 0, numLanes, widths, threads),
  })
  const episode = episodePlan(numLanes)
  const state = statePlan(environment, numLanes)
  const carried = {
    observation: saved(column('f32', numLanes, widths.observation)),
    actionMask: saved(column('u8', numLanes, widths.actionMask)),
    memory: saved(column('f32', numLanes, widths.memory)),
  }
  const { numBuffers = 0 } = reservation ?? {}
  const ahead = aheadPlan(Math.max(1, numBuffers), model.numParameters, buffer, { episode, state, carried })
  return {
    weights: saved(column('f32', sharesWith === null ? model.numParameters : 0)),
    episode,
    population: isOpen ? population : ({} as typeof population),
    state,
    league: sets.all > 1 ? league : ({} as typeof league),
    selfPlay: sets.selfPlay === null ? ({} as typeof selfPlay) : selfPlay,
    systems: systemsPlan(options.systems ?? [], numLanes, numRows),
    carried,
    ...buffer(),
    ahead: numBuffers > 0 ? ahead : ({} as typeof ahead),
    bounds: {
      low: column('f32', isBox ? actionWidth : 0),
      high: column('f32', isBox ? actionWidth : 0),
      sizes: column('i32', isBox ? 0 : actionWidth),
    },
    observationBounds: { low: column('f32', widths.observation), high: column('f32', widths.observation) },
    bootstrap: {
      row: column('u32', listLength),
      observation: column('f32', listLength, widths.observation),
      memory: column('f32', listLength, widths.memory),
      actionMask: column('u8', listLength, widths.actionMask),
      value: column('f32', listLength),
    },
    laneList: column('u32', numLanes),
    workspaces: Object.fromEntries(Array.from({ length: threads }, (_, i) => [`thread${i}`, model.workspace()])),
    learner: reservation?.learner ?? {},
  }
}

/** About what a step's windows take, and a lane's entity while it is made: measured, and rounded up. */
const WINDOWS_BYTES = 3072
const ENTITY_BYTES = 640

/** What a cohort keeps in the runtime's heap beside its columns. */
export function episodeObjects({ name, options, reservation }: EpisodeDraft): PlannedObjects[] {
  return [
    { name: `${name}.windows`, count: reservation?.numSteps ?? 1, bytesEach: WINDOWS_BYTES },
    { name: `${name}.lanes`, count: options.numLanes, bytesEach: ENTITY_BYTES },
  ]
}

function rowWidths(environment: EnvironmentDefinition, model: PolicyModel): RowWidths {
  return {
    observation: spaceWidth(environment.observationSpace),
    actionMask: actionMaskWidth(environment),
    memory: model.memoryWidth ?? 0,
  }
}

/** A thread's share of a cohort: lanes `from` to `to`, and how its components slide. */
interface Share {
  readonly sliding: boolean
  readonly numSteps: number
  readonly numLanes: number
  readonly from: number
  readonly to: number
}

/**
 * Where the share of a thread begins, of `count` threads that share `present` lanes; that of the next one begins where it ends.
 * The agents of an environment are in one share.
 */
export function shareStart(thread: number, count: number, present: number, numAgents = 1): number {
  return numAgents * Math.floor((thread * (present / numAgents)) / count)
}

/**
 * Which of the threads that collect this one is, from 0, and how many they are: all of them, or the last ones where others learn.
 * The index is below 0 for a thread that only learns.
 */
export function collecting({ count, index, actors }: Housing['threads']): { index: number; count: number } {
  return actors === 0 ? { index, count } : { index: index - (count - actors), count: actors }
}

/** The shares of all threads that collect of the lanes that are there. */
function sharesOf(
  cohort: Pick<EpisodeCohort, 'sliding' | 'numSteps' | 'numLanes' | 'environment'>,
  count: number,
  present: number,
) {
  const { sliding, numSteps, numLanes } = cohort
  const { numAgents } = cohort.environment
  return Array.from({ length: count }, (_, thread): Share => {
    const [from, to] = [thread, thread + 1].map((i) => shareStart(i, count, present, numAgents)) as [number, number]
    return { sliding, numSteps, numLanes, from, to }
  })
}

/** The cohort over its columns, as one of the world's threads has it; `isFresh` where they wait for their first values. */
export function createEpisodes(
  draft: EpisodeDraft,
  columns: Columns<EpisodeCohortPlan>,
  world: Housing,
  kernels: Kernels,
  isFresh: boolean,
): EpisodeCohort {
  const { options, name, model, sets, reservation } = draft
  const { environment, numLanes } = options
  const { policy: policyDefinition, sharesWith } = draft
  const { actionSpace } = environment
  const recorded = reservation !== undefined
  const autoreset = options.autoreset ?? 'same-step'
  const sliding = recorded || autoreset === 'disabled' // Lanes that ended must go on seeing what they saw.
  const numSteps = reservation?.numSteps ?? 1
  const { rollout, carried, episode, weights, laneList, bootstrap } = columns
  const { index } = world.threads
  const present = options.present ?? numLanes
  const collector = collecting(world.threads)
  const shares = sharesOf({ sliding, numSteps, numLanes, environment }, collector.count, present)
  const share = shares[collector.index] ?? { sliding, numSteps, numLanes, from: 0, to: 0 }
  const { from, to } = share

  const slidersOf = (rollout: RolloutColumns) => ({
    observation: createSlider(rollout.observation, carried.observation, share),
    actionMask: createSlider(rollout.actionMask, carried.actionMask, share),
    memory: createSlider(rollout.memory, carried.memory, share),
  })
  const { observation, actionMask, memory } = slidersOf(rollout)
  const slides = ({ component }: Slider) => component.current.length > 0
  const sliders = [observation, actionMask, memory].filter(slides)
  const windowsOf = (rollout: RolloutColumns, seen: ReturnType<typeof slidersOf>) => ({
    observation: seen.observation.windows,
    actionMask: seen.actionMask.windows,
    memory: seen.memory.windows,
    action: actionWindows(rollout, numSteps, numLanes, spaceWidth(actionSpace)),
    transition: transitionWindows(rollout, numSteps, numLanes),
  })
  const windows = windowsOf(rollout, { observation, actionMask, memory })
  const action = { ...windows.action[0]! }
  const transition = { ...windows.transition[0]! }
  const random = new Random(options.seed ?? world.seed)
  const bind = (weights: Float32Array) => model.bind(weights, columns.workspaces[`thread${index}`]!, kernels, random)
  const policy = bind(weights)
  const league = sets.all > 1 ? createLeague(columns.league, { weights, policy }, bind, index) : null
  const own = Object.values(columns.systems).map(({ state }) => state as Columns<Plan>)
  const ownComponents = own.filter((state) => Object.keys(state).length > 0)
  const components = [
    ...sliders.map(({ component }) => component),
    ...[action, transition, episode, columns.state, ...(league === null ? [] : [league.lanes]), ...ownComponents],
  ]
  const entities = isFresh ? new LaneEntities(world.ecs, components, present) : null
  const population = draft.isOpen ? columns.population : null
  if (isFresh) writeFirstValues(draft, columns, random)
  writeBounds(columns, environment)
  const finalsOf = (final: Columns<EpisodeCohortPlan>['final']) => {
    const finals = shares.map((each, thread) => finalObservations(final, each, thread))
    return { finals, final: finals[collector.index] ?? finalObservations(final, share, 0) }
  }
  const { finals, final } = finalsOf(columns.final)
  const buffers = (): RolloutBuffer[] => [
    { rollout, finals, final, windows, sliders: sliders.map(({ windows, firstBlock }) => ({ windows, firstBlock })) },
    ...Object.values(columns.ahead.others).map(({ rollout, final }): RolloutBuffer => {
      const others = slidersOf(rollout)
      const each = Object.values(others).filter(slides)
      return {
        ...{ rollout, ...finalsOf(final), windows: windowsOf(rollout, others) },
        sliders: each.map(({ windows, firstBlock }) => ({ windows, firstBlock })),
      }
    }),
  ]
  const isAhead = reservation?.numBuffers !== undefined
  const ahead = isAhead ? createAhead(columns.ahead, buffers(), collector.index < 0 ? null : bind) : null
  const late = new LateLanes(action, episode, spaceWidth(actionSpace))
  const refusal = whyNotLate(draft, world.threads.count)
  const environmentLanes: Lanes = {
    answersLater(n, arrival) {
      if (refusal !== null) throw new InputError(`environment ${environment.id}`, 'an answer that comes later', refusal)
      late.add(n, arrival)
    },
    state: columns.state,
    observation: observation.component.current,
    actionMask: actionMask.component.current,
    action: action.applied,
    reward: transition.reward,
    terminated: transition.terminated,
    truncated: transition.truncated,
    died: population?.died ?? NO_BYTES,
    births: population?.births ?? NO_BYTES,
    present,
    lane: episode.lane,
    episode: episode.episode,
    step: episode.step,
    random,
    kernels,
  }
  return {
    kind: 'episodes',
    name,
    environment,
    policyDefinition,
    sharesWith,
    model,
    autoreset,
    explore: options.explore ?? true,
    numLanes,
    firstLane: draft.firstLane,
    seed: random.seed,
    present,
    cleared: numLanes,
    from,
    to,
    recorded,
    sliding,
    numSteps,
    entities,
    lanes: entities?.lanes ?? NOBODY,
    population,
    observation: observation.component,
    actionMask: actionMask.component,
    memory: memory.component,
    action,
    transition,
    episode,
    state: columns.state,
    environmentLanes,
    systems: (options.systems ?? []).map((system) =>
      bindSystem(system, columns.systems[system.id]!, environmentLanes, rollout, numSteps, numLanes),
    ),
    policy,
    league,
    selfPlay:
      sets.selfPlay === null
        ? null
        : createSelfPlay(sets.selfPlay, columns.selfPlay, league!, environment.numAgents!, isFresh),
    weights,
    rollout,
    ahead,
    learner: columns.learner,
    bootstrap: bootstrapList(bootstrap, share),
    final,
    finals,
    bounds: columns.bounds,
    observationBounds: columns.observationBounds,
    sliders,
    laneList: laneList.subarray(from, to),
    carried: [episode, columns.state, carried, league?.lanes ?? {}, ...own].flatMap((part) =>
      Object.values<Column>(part as Record<string, Column>),
    ),
    whole: { final: columns.final, bootstrap, laneList },
    threads: world.threads,
    windows,
    late,
    answer: null,
    rests: false,
    ticksLeft: Number.POSITIVE_INFINITY,
    t: numSteps,
    version: 0,
  }
}

const NOBODY = new Uint32Array(0)
const NO_BYTES = new Uint8Array(0)

/** Where each lane begins, and the policy's starting weights, keyed by the seed and the cohort's number. */
function writeFirstValues(
  { key, sharesWith, firstLane, isOpen, options, model }: EpisodeDraft,
  { episode, population, league, weights }: Columns<EpisodeCohortPlan>,
  random: Random,
): void {
  const present = options.present ?? options.numLanes
  for (let n = 0; n < present; n++) episode.lane[n] = firstLane + n
  episode.episode.fill(0xffffffff, 0, present) // Minus one: the first reset makes it 0.
  episode.phase.fill(Phase.fresh, 0, present)
  episode.phase.fill(Phase.absent, present)
  if (isOpen) {
    population.present[0] = present
    population.numbered[0] = present
  }
  if (sharesWith === null) model.initialize(weights, random, key)
  for (let at = 0; at < (league.others?.length ?? 0); at += weights.length) league.others.set(weights, at)
}

function writeBounds(
  { bounds, observationBounds }: Columns<EpisodeCohortPlan>,
  { observationSpace, actionSpace }: EnvironmentDefinition,
): void {
  if (actionSpace.kind === 'box') {
    bounds.low.set(actionSpace.low)
    bounds.high.set(actionSpace.high)
  } else bounds.sizes.set(choiceSizes(actionSpace))
  const { low, high } = observationSpace as BoxSpace
  for (let k = 0; k < low.length; k++) {
    observationBounds.low[k] = Math.max(low[k]!, -F32_MAX)
    observationBounds.high[k] = Math.min(high[k]!, F32_MAX)
  }
}

/** The largest finite f32: where a box has no bound, a number is bounded by what a column holds. */
const F32_MAX = 3.4028234663852886e38

/** A thread's part of the final observations. */
function finalObservations(
  { row, observation, actionMask, count }: Columns<EpisodeCohortPlan>['final'],
  share: Share,
  thread: number,
): FinalObservations {
  return {
    row: part(row, share),
    observation: part(observation, share),
    actionMask: part(actionMask, share),
    count: count.subarray(thread, thread + 1),
  }
}

function bootstrapList(
  { row, observation, memory, actionMask, value }: Columns<EpisodeCohortPlan>['bootstrap'],
  share: Share,
): BootstrapList {
  return {
    row: part(row, share),
    observation: part(observation, share),
    memory: part(memory, share),
    actionMask: part(actionMask, share),
    value: part(value, share),
    length: 0,
  }
}

/** This thread's part of a column that has as much for each lane. */
function part<C extends Float32Array | Uint32Array | Uint8Array>(column: C, { numLanes, from, to }: Share): C {
  const perLane = column.length / numLanes
  return column.subarray(from * perLane, to * perLane) as C
}

/** A component over a column that slides, and this thread's part in sliding it on. */
function createSlider<C extends Float32Array | Uint8Array>(column: C, carried: C, share: Share): Slider<C> {
  const { sliding, numSteps } = share
  const windows = sliding ? slidingWindows(column, carried, numSteps) : [{ current: carried, next: carried }]
  const whole = { carried, firstBlock: column.subarray(0, carried.length) as C }
  return { component: { ...windows[0]! }, windows, whole, ...ownPart(whole, share) }
}

/** This thread's part in sliding a column on. */
function ownPart<C extends Float32Array | Uint8Array>({ carried, firstBlock }: Slider<C>['whole'], share: Share) {
  return { carried: part(carried, share), firstBlock: part(firstBlock, share) }
}

/** Deals the lanes that are there out to the threads, when a rollout begins; those of a cohort whose lanes stay are. */
export function shareLanes(cohort: EpisodeCohort): void {
  if (cohort.population === null) return
  const { population, whole, threads, numSteps, numLanes } = cohort
  const present = population.present[0]!
  if (present === cohort.present && present === cohort.cleared) return
  for (let t = 0; t < numSteps && threads.index === 0; t++) {
    clearRows(cohort, t * numLanes + present, t * numLanes + cohort.cleared)
  }
  cohort.cleared = present
  const shares = sharesOf(cohort, threads.count, present)
  const share = shares[threads.index]!
  cohort.present = present
  cohort.environmentLanes.present = present
  cohort.from = share.from
  cohort.to = share.to
  cohort.laneList = whole.laneList.subarray(share.from, share.to)
  cohort.bootstrap = bootstrapList(whole.bootstrap, share)
  cohort.finals = shares.map((share, thread) => finalObservations(whole.final, share, thread))
  cohort.final = cohort.finals[threads.index]!
  for (const slider of cohort.sliders) Object.assign(slider, ownPart(slider.whole, share))
}

/** Rows of a rollout in which nobody is: zeros, at step −1 as in dead steps. */
function clearRows({ rollout, league, systems, numSteps, numLanes }: EpisodeCohort, from: number, to: number): void {
  if (from >= to) return
  const recorded = systems.flatMap((system) => Object.values(system.rollout.recorded as Record<string, Column>))
  for (const column of [...Object.values(rollout as unknown as Record<string, Column>), ...recorded]) {
    const width = column.length / (numSteps * numLanes)
    column.fill(0, from * width, to * width)
  }
  rollout.step.fill(-1, from, to)
  league?.acted.fill(0, from, to)
}

/** Ends the cohort's rollout where it stands: the next one begins with what the lanes see and remember now. */
export function closeRollout(cohort: EpisodeCohort): void {
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
export function openRow(cohort: EpisodeCohort, t: number): void {
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
