/**
 * The contract of environments. An environment is dynamics over columns: its state is columns that it declares, and its
 * two functions, `reset` and `step`, are loops over lanes that read and write columns of the `Lanes` they are handed.
 * They keep nothing else, so a definition can be made again in another thread, and a checkpoint of the columns is a
 * checkpoint of the environment. Episode numbers, time limits, returns and resets are the systems' work, not theirs.
 */
import { type DefinitionRecord, defineFactory, type Factory } from '../base/definition.ts'
import { checkCount, checkGiven, InputError, show, thrownBy } from '../base/errors.ts'
import type { Random } from '../base/random.ts'
import type { Settings, SettingValue, SettingValues } from '../base/settings.ts'
import { box, choiceSizes, discrete, multiDiscrete, type Space } from '../base/space.ts'
import {
  type ColumnArrays,
  type ColumnSpec,
  type ColumnType,
  column,
  elementBytes,
  type Plan,
  saved,
} from '../components/column.ts'
import type { Kernels } from '../kernels/kernels.ts'
import type { Picture } from './picture.ts'

/** State columns by name: a column type, or a type and its width a lane. */
export type StateDeclaration = Readonly<Record<string, ColumnType | readonly [ColumnType, number]>>

/** The typed arrays of a state declaration, one row a lane. */
export type State<D extends StateDeclaration> = {
  readonly [K in keyof D]: D[K] extends readonly [infer T extends ColumnType, number]
    ? ColumnArrays[T]
    : D[K] extends ColumnType
      ? ColumnArrays[D[K]]
      : never
}

/** The columns that an environment works on; row n of each is lane n of its cohort. */
export interface Lanes<S = unknown> {
  /** The environment's own columns. */
  readonly state: S
  /** Write what each lane sees from now on: observation width elements a row, each within the observation space. */
  observation: Float32Array
  /** Write what each lane may do from now on, if the model has `actionMask`: a byte for each choice, 1 = legal. */
  actionMask: Uint8Array
  /** Read what each lane does: within the action space. Int32Array for choices, Float32Array for a box. */
  action: Float32Array | Int32Array
  /** Write the reward of the step: finite, and at most 2^50 (about 1e15) either way. */
  reward: Float32Array
  /** Write 1 where the episode reached a terminal state; 0 on entry. */
  terminated: Uint8Array
  /** Write 1 where the environment itself cuts the episode off; 0 on entry. The time limit is seen to by the step system. */
  truncated: Uint8Array
  /**
   * Write 1 where the lane is gone for good after this step, which has to end its episode; 0 on entry. Nobody is in it for the
   * rest of the rollout. Has elements if the model has `population`.
   */
  readonly died: Uint8Array
  /**
   * Write how many are born of the lane in this step; 0 on entry. They are there from the next rollout on, as far as there is
   * room, each with a copy of the lane's state when it was over, which `reset` finds in their episode 0. Has elements if the
   * model has `population`.
   */
  readonly births: Uint8Array
  /**
   * Call in `step` for a lane whose answer comes later, when `arrival` settles (it must not fail): its row is nobody's, it goes on seeing what it
   * saw, and other lanes go on. `step` is asked again in the next tick, with the same action. For lanes of one thread and of no game, whose
   * policy remembers nothing; others are an InputError.
   */
  readonly answersLater: (n: number, arrival: Promise<void>) => void
  /** Read how many lanes there were when the rollout began: in the whole cohort, whichever thread asks. */
  present: number
  /** Read the lane's number in the whole run, to key random numbers. */
  readonly lane: Uint32Array
  /** Read the number of the lane's episode, to key random numbers. */
  readonly episode: Uint32Array
  /** Read the steps taken in this episode. */
  readonly step: Int32Array
  /** This thread's random numbers. */
  readonly random: Random
  /** This thread's kernels. */
  readonly kernels: Kernels
}

/** The longest episode: steps are counted in i32. */
export const STEPS_MAX = 2 ** 31 - 1

/**
 * The largest reward, either way. Losses square returns in f32: a return of ten thousand such rewards has a square that f32
 * still holds, and what is beyond is no reward but a mistake.
 */
export const REWARD_MAX = 2 ** 50

/** What an environment's functions have to be. */
export const DONE = 'one that is done when it returns: lanes do not wait for their environment'

/**
 * What is wrong with what `reset` or `step` returned; null where nothing is. They are typed as returning nothing, but any function passes
 * for one. What one returns by the way, as the number or the column that it wrote last, does no harm; a list, or an object with an
 * observation or a reward, is meant to be taken.
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
  return { got, expected: 'nothing: it writes into the columns that it is given' }
}

/** What the maker of an environment returns. */
export interface EnvironmentModel<S> {
  readonly observationSpace: Space
  readonly actionSpace: Space
  /** True if `reset` and `step` say which choices are legal; needs choices. Default: every choice is legal. */
  readonly actionMask?: boolean
  /**
   * Agents that act on one another, like the players of a game: lane `g * numAgents + i` is agent i of game g. `reset` and `step`
   * have all lanes of a game at once, and their episodes begin and end together. Default 1.
   */
  readonly numAgents?: number
  /** True if `step` says who is born and who dies (`births`, `died`). Default: the lanes stay as they are. */
  readonly population?: boolean
  /** True if its lanes have objects beside their columns, as those of `fromObjects`: a step may allocate for each lane. Default false. */
  readonly allocates?: boolean
  /** Steps after which an episode is truncated; null for no limit. */
  readonly maxEpisodeSteps: number | null
  /** Mean return of 100 episodes at which it counts as solved; null where there is no such figure. */
  readonly returnThreshold: number | null
  /** Begins an episode in each of the lanes rows[0 … count): writes their state and observation. Done when it returns. */
  reset(lanes: Lanes<S>, rows: Uint32Array, count: number): void
  /** Moves the lanes `from` to `to` on by one step: writes their state, observation, reward and flags. Done when it returns. */
  step(lanes: Lanes<S>, from: number, to: number): void
  /** What a person sees of lane n; of a game the whole of it. Default: where observations are a grid, `gridPicture` of them. */
  draw?(state: S, n: number): Picture
  /** Ends what it runs for these columns beside them, like processes, when their world is closed. A later step begins it again. */
  close?(state: S): void
}

/** Settings that differ from their defaults. */
export type TunedSettings = Readonly<Record<string, SettingValue>>

/** A policy or an algorithm with such settings. */
export interface TunedPart {
  readonly id: string
  readonly parameters: TunedSettings
}

/** Settings with which an environment is known to be learned by one policy and one algorithm. */
export interface EnvironmentPreset {
  /** The environment's own settings with which it was learned, where they differ from their defaults. */
  readonly environment?: TunedSettings
  readonly run: TunedSettings
  readonly algorithm: TunedPart
  readonly policy: TunedPart
  /** Of so many seeds those that reached this mean return over fresh episodes, where not all did: a run says so at its end. */
  readonly reached?: { readonly episodeReturn: number; readonly reached: number; readonly seeds: number }
}

/** An algorithm or a policy of a preset, by its id. */
export function withSettings(id: string, parameters: Record<string, SettingValue>) {
  return { id, parameters }
}

/** An environment with its parameters: what `createWorld` takes. */
export interface EnvironmentDefinition
  extends DefinitionRecord,
    // biome-ignore lint/suspicious/noExplicitAny: each definition has state columns of its own, which only it reads.
    EnvironmentModel<any> {
  /** The state columns that the environment's functions are handed. */
  readonly state: StateDeclaration
  /** What is known to work for it, the usual policy and algorithm first. */
  readonly presets: readonly EnvironmentPreset[]
}

/** Makes an environment from its parameters, like `cartPole`; `id` and `settings` say which. */
export interface EnvironmentFactory<S extends Settings = Settings, I extends string = string>
  extends Factory<S, EnvironmentDefinition> {
  readonly id: I
  /** What is known to work for it, the usual policy and algorithm first; a run takes it where the user says nothing. */
  readonly presets: readonly EnvironmentPreset[]
}

/**
 * Defines an environment. With `module: import.meta.url`, exported under any name, it can be made again by its id in
 * another thread or when a run is resumed.
 *
 * @throws InputError where spaces or limits are wrong, when the environment is made.
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
>(options: {
  id: I
  module?: string
  settings: S
  /** What is known to work for it, the usual policy and algorithm first. Default: nothing is. */
  presets?: readonly EnvironmentPreset[]
  /** The state columns, one row a lane. */
  state(parameters: SettingValues<S>): D
  make(parameters: SettingValues<S>): EnvironmentModel<State<D>>
}): EnvironmentFactory<S, I> {
  checkGiven('options of defineEnvironment', options, ['id', 'settings', 'state', 'make'])
  const { presets = [] } = options
  const factory = defineFactory('environment', options, (parameters) => {
    const model = madeBy(options.id, () => options.make(parameters))
    checkModel(options.id, model)
    const { actionMask, actionSpace, maxEpisodeSteps, observationSpace } = model
    if (observationSpace.kind !== 'box') {
      throw new InputError(
        `${options.id} observationSpace`,
        show(observationSpace),
        'a box (encode choices as numbers)',
      )
    }
    if (actionMask && actionSpace.kind === 'box') {
      throw new InputError(`${options.id} actionMask`, show(actionSpace), 'an action space of choices')
    }
    for (const name of ['population', 'allocates'] as const) {
      if (model[name] === undefined || typeof model[name] === 'boolean') continue
      throw new InputError(`${options.id} ${name}`, show(model[name]), 'true or false')
    }
    const { numAgents = 1 } = model
    checkCount(`${options.id} numAgents`, numAgents)
    const isLimit = Number.isSafeInteger(maxEpisodeSteps) && maxEpisodeSteps! >= 1 && maxEpisodeSteps! <= STEPS_MAX
    if (maxEpisodeSteps !== null && !isLimit) {
      const expected = `a whole number from 1 to ${STEPS_MAX}, or null`
      throw new InputError(`${options.id} maxEpisodeSteps`, show(maxEpisodeSteps), expected)
    }
    const state = options.state(parameters)
    checkState(options.id, state)
    return { ...model, state, presets }
  })
  return Object.assign(factory, { id: options.id, presets })
}

function madeBy<M>(id: string, make: () => M): M {
  try {
    return make()
  } catch (error) {
    throw thrownBy(id, 'make', error)
  }
}

/** @throws InputError for a space that is not as `box`, `discrete` or `multiDiscrete` make it. */
function checkSpace(subject: string, space: Space): void {
  if (space.kind === 'box') box(space)
  else if (space.kind === 'discrete') discrete(space.n)
  else if (space.kind === 'multi-discrete') multiDiscrete(space.sizes)
  else throw new InputError(subject, show(space), 'a space of box, discrete or multiDiscrete')
}

/** @throws InputError for a column whose type or width is none. */
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

/** @throws InputError where what `make` returned lacks a space, `reset` or `step`, or has something else in their place. */
function checkModel<S>(id: string, model: EnvironmentModel<S>): void {
  if (typeof model !== 'object' || model === null) throw new InputError(`${id} make`, show(model), 'an environment')
  for (const name of ['observationSpace', 'actionSpace'] as const) {
    if (typeof model[name]?.kind !== 'string') {
      throw new InputError(`${id} ${name}`, show(model[name]), 'a space, in what make returns')
    }
    checkSpace(`${id} ${name}`, model[name])
  }
  for (const name of ['reset', 'step'] as const) {
    if (typeof model[name] !== 'function') throw new InputError(`${id} ${name}`, show(model[name]), 'a function')
  }
  for (const name of ['draw', 'close'] as const) {
    if (model[name] === undefined || typeof model[name] === 'function') continue
    throw new InputError(`${id} ${name}`, show(model[name]), 'a function, or none')
  }
  const { returnThreshold = null } = model
  if (returnThreshold !== null && !Number.isFinite(returnThreshold)) {
    throw new InputError(`${id} returnThreshold`, show(returnThreshold), 'a finite number, or null')
  }
}

/** Elements a lane of an environment's action mask: one for each choice, or none where it has no mask. */
export function actionMaskWidth({ actionMask, actionSpace }: EnvironmentDefinition): number {
  return actionMask ? choiceSizes(actionSpace).reduce((sum, size) => sum + size, 0) : 0
}

/** The columns of a declaration. */
export function declaredPlan(declaration: StateDeclaration, rows: number): Record<string, ColumnSpec> {
  return Object.fromEntries(
    Object.entries(declaration).map(([name, declared]) => {
      const [type, width] = typeof declared === 'string' ? [declared, 1] : declared
      return [name, column(type, rows, width)]
    }),
  )
}

/** The columns of an environment's state; checkpoints keep them. */
export function statePlan(environment: EnvironmentDefinition, numLanes: number): Plan {
  const plan = declaredPlan(environment.state, numLanes)
  return Object.fromEntries(Object.entries(plan).map(([name, spec]) => [name, saved(spec)]))
}
