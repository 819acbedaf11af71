/**
 * The contract of environments. An environment is dynamics over columns: it declares state columns, and its functions `reset` and `step`
 * loop over lanes and read and write the columns in `Lanes`. They keep no other state, so a definition can be created again in another
 * thread, and a checkpoint of the columns contains the environment. The systems handle episode numbers, time limits, returns and resets.
 */
import { type DefinitionRecord, defineFactory, type Factory } from '../base/definition.ts'
import { checkCount, checkGiven, InputError, show, thrownBy } from '../base/errors.ts'
import { withTodaysNames } from '../base/former-names.ts'
import type { Random } from '../base/random.ts'
import type { Settings, SettingValue, SettingValues } from '../base/settings.ts'
import {
  type BoxType,
  box,
  choiceSizes,
  discrete,
  multiDiscrete,
  observationType,
  type Space,
  spaceWidth,
} from '../base/space.ts'
import {
  type ColumnArrays,
  type ColumnSpec,
  type ColumnType,
  column,
  elementBytes,
  type Plan,
  saved,
} from '../components/column.ts'
import type { ObservationColumn } from '../components/observation.ts'
import type { GoalPlace } from '../kernels/bind.ts'
import type { Kernels } from '../kernels/kernels.ts'
import type { Picture } from './picture.ts'

/** State columns by name: a column type, or a type and its width per lane. */
export type StateDeclaration = Readonly<Record<string, ColumnType | readonly [ColumnType, number]>>

/** State columns of an environment with levels: the lane's level, and 1 + that of its next episode; 0 lets the environment draw it. */
export const LEVEL_STATE = { level: 'i32', nextLevel: 'i32' } as const satisfies StateDeclaration

/** The typed arrays of a state declaration, one row per lane. */
export type State<D extends StateDeclaration> = {
  readonly [K in keyof D]: D[K] extends readonly [infer T extends ColumnType, number]
    ? ColumnArrays[T]
    : D[K] extends ColumnType
      ? ColumnArrays[D[K]]
      : never
}

/** The columns of an environment's calls; row n of each is lane n of its cohort. */
export interface Lanes<S = unknown, O extends ObservationColumn = Float32Array> {
  readonly state: S
  /**
   * Write each lane's next observation: observation width elements per row, within the observation space. A Uint8Array if the space is a
   * box of bytes (`type: 'u8'`).
   */
  observation: O
  /** Write each lane's legal actions if the model has `actionMask`: a byte per choice, 1 = legal. */
  actionMask: Uint8Array
  /** Read each lane's action, within the action space: Int32Array for choices, Float32Array for a box. */
  action: Float32Array | Int32Array
  /** Write the reward of the step: finite, with an absolute value of at most 2^50 (about 1e15). */
  reward: Float32Array
  /** Write 1 if the episode reached a terminal state; 0 on entry. */
  terminated: Uint8Array
  /** Write 1 if the environment itself truncates the episode; 0 on entry. The step system handles the time limit. */
  truncated: Uint8Array
  /**
   * Write 1 if the lane dies after this step, which must end its episode; 0 on entry. Its row is empty for the rest of the rollout. Has
   * elements if the model has `population`.
   */
  readonly died: Uint8Array
  /**
   * Write the number of births from the lane in this step; 0 on entry. Newborns join in the next rollout if there is room, with a copy of
   * the lane's final state, which `reset` finds in their episode 0. Has elements if the model has `population`.
   */
  readonly births: Uint8Array
  /**
   * Call in `step` for a lane whose answer comes later, when `arrival` settles (it must not reject). The lane's row is invalid, its
   * observation stays, and other lanes continue. `step` is called again in the next tick with the same action. Throws InputError if
   * several threads share the lanes, for games, and for policies with memory.
   */
  readonly answersLater: (n: number, arrival: Promise<void>) => void
  /** Read the number of lanes at the start of the rollout, in the whole cohort. */
  present: number
  /** Read the lane's number in the whole run, to key random numbers. */
  readonly lane: Uint32Array
  /** Read the number of the lane's episode, to key random numbers. */
  readonly episode: Uint32Array
  /** Read the steps taken in this episode. */
  readonly step: Int32Array
  readonly random: Random
  readonly kernels: Kernels
}

/** The longest episode: steps are counted in i32. */
export const STEPS_MAX = 2 ** 31 - 1

/** The largest absolute reward. Losses square returns in f32, which still holds the square of ten thousand such rewards. */
export const REWARD_MAX = 2 ** 50

/** The requirements of an environment's functions. */
export const DONE = 'a function that is done when it returns: lanes do not wait for their environment'

/**
 * Returns what is wrong with the result of `reset` or `step`; null if nothing is. TypeScript accepts any function in place of one that
 * returns nothing. An incidental result, such as the last written number or column, is harmless; a list, or an object with an observation
 * or reward, is a mistake.
 */
export function refusedReturn(
  name: 'reset' | 'step',
  returned: unknown,
): { readonly got: string; readonly expected: string } | null {
  if (typeof returned !== 'object' || returned === null) return null
  if (typeof (returned as PromiseLike<unknown>).then === 'function') {
    return { got: `a promise from ${name}`, expected: DONE }
  }
  const isList = Array.isArray(returned)
  if (!isList && !('observation' in returned) && !('reward' in returned)) return null
  const got = `${isList ? 'an array' : 'an object'} from ${name}`
  return { got, expected: 'no result: it writes into its columns' }
}

/** The result of an environment's `make`. */
export interface EnvironmentModel<S, T extends BoxType = 'f32'> {
  readonly observationSpace: Space
  readonly actionSpace: Space
  /** Whether `reset` and `step` write the legal choices; requires discrete actions. Default: every choice is legal. */
  readonly actionMask?: boolean
  /**
   * Number of players of a game: lane `g * numPlayers + i` is player i of game g. `reset` and `step` get all lanes of a game together, and
   * their episodes begin and end together. Default 1.
   */
  readonly numPlayers?: number
  /**
   * For games in turns: whether lane n moves next, by its state. The others wait: their actions have no effect, and their masks allow one
   * choice. At most one lane of a game moves. Default: all players move at once.
   */
  moves?(state: S, n: number): boolean
  /** The former name of `numPlayers`. */
  readonly numAgents?: number
  /** Whether `step` writes `births` and `died`. Default: the lanes stay. */
  readonly population?: boolean
  /** Whether its lanes have heap objects, as in `fromObjects`, so that a step may allocate for each lane. Default false. */
  readonly allocates?: boolean
  /**
   * The places of the achieved and the desired goal in observations, so that replay algorithms can relabel goals. Its
   * rewards must be those of `GoalPlace`. Default: no goals.
   */
  readonly goal?: GoalPlace | undefined
  /**
   * Number of levels, such as mazes, that an episode can begin with, numbered from 0. The state then has the columns of `LEVEL_STATE`:
   * systems may write `nextLevel`, and `reset` takes a lane's level by `beginLevel`. Default: no levels.
   */
  readonly levels?: number | undefined
  /** Steps after which an episode is truncated; null for no limit. */
  readonly maxEpisodeSteps: number | null
  /** Mean return of 100 episodes at which it counts as solved; null if there is none. */
  readonly returnThreshold: number | null
  /** Begins an episode in each of the lanes rows[0 … count): writes their state and observation. Must be done when it returns. */
  reset(lanes: Lanes<S, ColumnArrays[T]>, rows: Uint32Array, count: number): void
  /** Makes a step in lanes `from` to `to`: writes their state, observation, reward and flags. Must be done when it returns. */
  step(lanes: Lanes<S, ColumnArrays[T]>, from: number, to: number): void
  /** Draws lane n, or its whole game. Default: `gridPicture` of grid observations. */
  draw?(state: S, n: number): Picture
  /** Loads what `reset` and `step` need, in each thread; `createWorld` awaits it. */
  prepare?(): Promise<void>
  /** Releases resources such as processes that belong to these columns, when their world is closed. A later step acquires them again. */
  close?(state: S): void
}

/** Settings that differ from their defaults. */
export type TunedSettings = Readonly<Record<string, SettingValue>>

/** A policy or an algorithm with such settings. */
export interface TunedPart {
  readonly id: string
  readonly parameters: TunedSettings
}

/** Settings with which a policy and an algorithm are known to learn an environment. */
export interface EnvironmentPreset {
  /** The environment's settings that differ from their defaults. */
  readonly environment?: TunedSettings
  readonly run: TunedSettings
  readonly algorithm: TunedPart
  readonly policy: TunedPart
  /** How many of the seeds reached this mean return over fresh episodes, if not all did; a run reports it at its end. */
  readonly reached?: { readonly episodeReturn: number; readonly reached: number; readonly seeds: number }
}

/** An algorithm or a policy of a preset, by its id. */
export function withSettings(id: string, parameters: Record<string, SettingValue>) {
  return { id, parameters }
}

/** An environment with its settings, as `createWorld` takes it. */
export interface EnvironmentDefinition
  extends DefinitionRecord,
    // biome-ignore lint/suspicious/noExplicitAny: only the environment itself knows the types of its state columns.
    EnvironmentModel<any, BoxType> {
  readonly state: StateDeclaration
  /** Tested presets; the first has the usual policy and algorithm. */
  readonly presets: readonly EnvironmentPreset[]
}

/** Creates an environment from its settings, like `cartPole`. `id` and `settings` describe it. */
export interface EnvironmentFactory<S extends Settings = Settings, I extends string = string>
  extends Factory<S, EnvironmentDefinition> {
  readonly id: I
  /** Tested presets; the first has the usual policy and algorithm, which a run uses by default. */
  readonly presets: readonly EnvironmentPreset[]
}

/**
 * Defines an environment. With `module: import.meta.url` and an export under any name, other threads and resumed runs can create it by
 * its id.
 * @throws InputError on creation, for wrong spaces or limits.
 * @example
 * export const coin = defineEnvironment({
 *   id: 'Coin-v0',
 *   module: import.meta.url,
 *   settings: {},
 *   state: () => ({}),
 *   make: () => ({
 *     observationSpace: box({ low: 0, high: 1 }),
 *     actionSpace: discrete(2),
 *     maxEpisodeSteps: 10,
 *     returnThreshold: null,
 *     reset({ observation }, rows, count) { for (let i = 0; i < count; i++) observation[rows[i]] = 0 },
 *     step({ observation, action, reward }, from, to) {
 *       for (let n = from; n < to; n++) { observation[n] = 0; reward[n] = action[n] }
 *     },
 *   }),
 * })
 */
export function defineEnvironment<
  S extends Settings,
  const D extends StateDeclaration,
  const I extends string,
  T extends BoxType = 'f32',
>(options: {
  id: I
  module?: string
  settings: S
  /** Settings that older records lack, left out where they have their defaults. */
  newer?: readonly (keyof S)[]
  /**
   * How observations are stored: as `u8`, for whole numbers from 0 to 255, they take a quarter of the memory and of the time to write it,
   * and networks see the same numbers. If a bound is 255, checks do not find unwritten bytes. Default: f32.
   */
  observationType?: T
  /** Tested presets; the first has the usual policy and algorithm. Default: none. */
  presets?: readonly EnvironmentPreset[]
  /** The state columns, one row per lane. */
  state(parameters: SettingValues<S>): D
  make(parameters: SettingValues<S>): EnvironmentModel<State<D>, T>
}): EnvironmentFactory<S, I> {
  checkGiven('options of defineEnvironment', options, ['id', 'settings', 'state', 'make'])
  const { presets = [] } = options
  const factory = defineFactory('environment', options, (parameters) => {
    const made = madeBy(options.id, () => options.make(parameters))
    checkModel(options.id, made)
    const named = withTodaysNames('environment model', made)
    const model = {
      ...named,
      observationSpace: typedSpace(options.id, named.observationSpace, options.observationType),
    }
    const { actionMask, actionSpace, maxEpisodeSteps, observationSpace } = model
    if (observationSpace.kind !== 'box') {
      const expected = 'a box; dict({ name: discrete(n) }) makes one of choices'
      throw new InputError(`${options.id} observationSpace`, show(observationSpace), expected)
    }
    if (observationType(actionSpace) === 'u8') {
      throw new InputError(`${options.id} actionSpace`, 'a box of bytes', 'a box of f32, or choices')
    }
    if (actionMask && actionSpace.kind === 'box') {
      throw new InputError(`${options.id} actionMask`, show(actionSpace), 'an action space of choices')
    }
    for (const name of ['population', 'allocates'] as const) {
      if (model[name] === undefined || typeof model[name] === 'boolean') continue
      throw new InputError(`${options.id} ${name}`, show(model[name]), 'true or false')
    }
    checkGoalPlace(options.id, model)
    const { numPlayers = 1 } = model
    checkCount(`${options.id} numPlayers`, numPlayers)
    const isLimit = Number.isSafeInteger(maxEpisodeSteps) && maxEpisodeSteps! >= 1 && maxEpisodeSteps! <= STEPS_MAX
    if (maxEpisodeSteps !== null && !isLimit) {
      const expected = `a whole number from 1 to ${STEPS_MAX}, or null`
      throw new InputError(`${options.id} maxEpisodeSteps`, show(maxEpisodeSteps), expected)
    }
    const state = options.state(parameters)
    checkState(options.id, state)
    checkLevels(options.id, model.levels, state)
    return { ...model, state, presets }
  })
  return Object.assign(factory, { id: options.id, presets })
}

/** Observations' space with the type that the environment declares. @throws InputError if the space itself has another. */
function typedSpace(id: string, space: Space, type: BoxType = 'f32'): Space {
  if (space.kind !== 'box' || type === observationType(space)) return space
  if (type === 'u8') return { ...space, ...box({ ...space, type }) }
  const expected = "a box of f32, or observationType: 'u8' of defineEnvironment"
  throw new InputError(`${id} observationSpace`, "a box of bytes (type: 'u8')", expected)
}

/** @throws InputError for a goal that does not lie within observations. */
function checkGoalPlace(
  id: string,
  { goal, observationSpace }: Pick<EnvironmentModel<never>, 'goal' | 'observationSpace'>,
): void {
  if (goal === undefined) return
  if (observationType(observationSpace) === 'u8') {
    throw new InputError(`${id} goal`, 'in observations of bytes', 'observations of f32')
  }
  const { achieved, desired, width, tolerance, ends } = goal
  const size = spaceWidth(observationSpace)
  const isWithin = (from: number) => Number.isInteger(from) && from >= 0 && from + width <= size
  const isPlace = isWithin(achieved) && isWithin(desired) && Math.abs(achieved - desired) >= width && width > 0
  if (isPlace && Number.isInteger(width) && tolerance >= 0 && typeof ends === 'boolean') return
  const expected = `two parts of the ${size} elements of observations, a tolerance ≥ 0, and ends true or false`
  throw new InputError(`${id} goal`, show(goal), expected)
}

function madeBy<M>(id: string, make: () => M): M {
  try {
    return make()
  } catch (error) {
    throw thrownBy(id, 'make', error)
  }
}

/** @throws InputError for a space that `box`, `discrete` or `multiDiscrete` did not create. */
function checkSpace(subject: string, space: Space): void {
  if (space.kind === 'box') box(space)
  else if (space.kind === 'discrete') discrete(space.n)
  else if (space.kind === 'multi-discrete') multiDiscrete(space.sizes)
  else throw new InputError(subject, show(space), 'a space of box, discrete or multiDiscrete')
}

/** @throws InputError for levels without their columns. */
function checkLevels(id: string, levels: number | undefined, state: StateDeclaration): void {
  if (levels === undefined) return
  checkCount(`${id} levels`, levels)
  for (const [name, type] of Object.entries(LEVEL_STATE)) {
    if (state[name] === type) continue
    throw new InputError(`${id} levels`, `a state without ${name}: '${type}'`, 'LEVEL_STATE in it')
  }
}

function checkState(id: string, state: StateDeclaration): void {
  if (typeof state !== 'object' || state === null || Array.isArray(state)) {
    throw new InputError(`${id} state`, show(state), "columns by name, like { cell: 'i32' }")
  }
  for (const [name, declared] of Object.entries(state)) {
    const [type, width] = Array.isArray(declared) ? declared : [declared, 1]
    if (Object.hasOwn(elementBytes, type) && Number.isSafeInteger(width) && width >= 0) continue
    const expected = `one of ${Object.keys(elementBytes).join(', ')}, or a list of one and a whole number ≥ 0`
    throw new InputError(`${id} state.${name}`, show(declared), expected)
  }
}

function checkModel<S>(id: string, model: EnvironmentModel<S, BoxType>): void {
  if (typeof model !== 'object' || model === null) throw new InputError(`${id} make`, show(model), 'an environment')
  for (const name of ['observationSpace', 'actionSpace'] as const) {
    if (typeof model[name]?.kind !== 'string') {
      throw new InputError(`${id} ${name}`, show(model[name]), 'a space in the result of make')
    }
    checkSpace(`${id} ${name}`, model[name])
  }
  for (const name of ['reset', 'step'] as const) {
    if (typeof model[name] !== 'function') throw new InputError(`${id} ${name}`, show(model[name]), 'a function')
  }
  for (const name of ['draw', 'moves', 'prepare', 'close'] as const) {
    if (model[name] === undefined || typeof model[name] === 'function') continue
    throw new InputError(`${id} ${name}`, show(model[name]), 'a function, or none')
  }
  const { returnThreshold = null } = model
  if (returnThreshold !== null && !Number.isFinite(returnThreshold)) {
    throw new InputError(`${id} returnThreshold`, show(returnThreshold), 'a finite number, or null')
  }
}

/** Elements per lane of an environment's action mask: one per choice, or 0 without a mask. */
export function actionMaskWidth({ actionMask, actionSpace }: EnvironmentDefinition): number {
  return actionMask ? choiceSizes(actionSpace).reduce((sum, size) => sum + size, 0) : 0
}

export function declaredPlan(declaration: StateDeclaration, rows: number): Record<string, ColumnSpec> {
  return Object.fromEntries(
    Object.entries(declaration).map(([name, declared]) => {
      const [type, width] = typeof declared === 'string' ? [declared, 1] : declared
      return [name, column(type, rows, width)]
    }),
  )
}

/** The columns of an environment's state, which checkpoints contain. */
export function statePlan(environment: EnvironmentDefinition, numLanes: number): Plan {
  const plan = declaredPlan(environment.state, numLanes)
  return Object.fromEntries(Object.entries(plan).map(([name, spec]) => [name, saved(spec)]))
}
