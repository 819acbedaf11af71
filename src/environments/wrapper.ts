/**
 * Wrappers: what is laid around an environment, and is an environment again. A wrapper has columns of its own beside those of the
 * environment, and reset and step functions that call the environment's over lanes in which some columns are its own: where the
 * environment shall write, or what it shall read. So it can be made again from its record, like the environment itself, and the
 * record of the whole is the environment's with those of its wrappers.
 */
import { type DefinitionRecord, defineFactory, type Factory, recordOf } from '../base/definition.ts'
import { InputError, show } from '../base/errors.ts'
import type { Settings, SettingValues } from '../base/settings.ts'
import type { EnvironmentDefinition, EnvironmentModel, Lanes, State, StateDeclaration } from './environment.ts'
import type { Picture } from './picture.ts'

/** The lanes of a wrapper, as `reset` and `step` have them; row n of each column is lane n. */
export interface WrapperLanes<S = unknown> {
  /** The wrapper's own columns. */
  readonly own: S
  /** The lanes as the world has them: what is written there is seen by the policy. */
  readonly outer: Lanes
  /** The lanes as the environment inside is handed them: the same columns, until others are put in their place for a call. */
  readonly inner: { -readonly [name in keyof Lanes]: Lanes[name] }
}

/** What the maker of a wrapper returns: what is not as in the environment inside. */
export interface WrapperModel<S = unknown>
  extends Partial<
    Pick<EnvironmentModel<unknown>, 'observationSpace' | 'actionSpace' | 'maxEpisodeSteps' | 'returnThreshold'>
  > {
  /** Begins an episode in each of the lanes rows[0 … count), by the environment's own `reset`. Default: that alone. */
  reset?(lanes: WrapperLanes<S>, rows: Uint32Array, count: number): void
  /** Moves the lanes `from` to `to` on by one step, by the environment's own `step`. Default: that alone. */
  step?(lanes: WrapperLanes<S>, from: number, to: number): void
  /** What a person sees of lane n, from the wrapper's own columns. Default: what the environment draws. */
  draw?(own: S, n: number): Picture
}

/** A wrapper with its settings: what `wrap` takes. */
export interface WrapperDefinition extends DefinitionRecord {
  /** The environment with the wrapper around it. */
  around(environment: EnvironmentDefinition): EnvironmentDefinition
}

/** Makes a wrapper from its settings, like `frameStack`; `id` and `settings` say which. */
export type WrapperFactory<S extends Settings = Settings> = Factory<S, WrapperDefinition>

/**
 * Defines a wrapper. With `module: import.meta.url`, exported under any name, what it is laid around can be made again in another
 * thread or when a run is resumed.
 *
 * @example
 * export const scaledReward = defineWrapper({
 *   id: 'scaledReward',
 *   module: import.meta.url,
 *   settings: { factor: number(0.1, 'what rewards are multiplied by') },
 *   make: ({ factor }, environment) => ({
 *     step({ outer, inner }, from, to) {
 *       environment.step(inner, from, to)
 *       for (let n = from; n < to; n++) outer.reward[n] *= factor
 *     },
 *   }),
 * })
 */
export function defineWrapper<
  S extends Settings,
  // biome-ignore lint/complexity/noBannedTypes: no columns, where none are declared.
  const D extends StateDeclaration = {},
>(options: {
  id: string
  module?: string
  settings: S
  /** Columns of its own, one row a lane. */
  state?(parameters: SettingValues<S>, environment: EnvironmentDefinition): D
  /** @throws InputError for an environment that it cannot be laid around. */
  make(parameters: SettingValues<S>, environment: EnvironmentDefinition): WrapperModel<State<D>>
}): WrapperFactory<S> {
  return defineFactory('wrapper', options, (parameters) => ({
    around(this: WrapperDefinition, environment: EnvironmentDefinition): EnvironmentDefinition {
      let answer: unknown // What the environment's function returned last: the world says what is wrong with it.
      const inside: EnvironmentDefinition = {
        ...environment,
        reset(...given) {
          answer = environment.reset(...given) ?? answer
        },
        step(...given) {
          answer = environment.step(...given) ?? answer
        },
      }
      const { reset, step, draw, ...model } = options.make(parameters, inside)
      const declared: StateDeclaration = options.state?.(parameters, environment) ?? {}
      const prefix = `${options.id}.`
      const state = Object.fromEntries(Object.entries(declared).map(([name, column]) => [prefix + name, column]))
      const twice = Object.keys(state).find((name) => Object.hasOwn(environment.state, name))
      if (twice !== undefined) {
        throw new InputError(`wrapper ${options.id}`, `around ${environment.id} twice`, 'at most once')
      }
      const ownOf = (columns: Readonly<Record<string, unknown>>) =>
        Object.fromEntries(Object.keys(declared).map((name) => [name, columns[prefix + name]])) as State<D>
      const lanesOf = boundLanes(ownOf)
      return Object.freeze({
        ...environment,
        ...model,
        state: { ...environment.state, ...state },
        wrappers: [...(environment.wrappers ?? []), recordOf(this)],
        ...(draw && { draw: (columns: Readonly<Record<string, unknown>>, n: number) => draw(ownOf(columns), n) }),
        reset(lanes: Lanes, rows: Uint32Array, count: number) {
          if (reset === undefined) return environment.reset(lanes, rows, count)
          answer = undefined
          reset(lanesOf(lanes), rows, count)
          return answer as undefined
        },
        step(lanes: Lanes, from: number, to: number) {
          if (step === undefined) return environment.step(lanes, from, to)
          answer = undefined
          step(lanesOf(lanes), from, to)
          return answer as undefined
        },
      })
    },
  }))
}

/**
 * Lays wrappers around an environment, the first of them next to it.
 * @throws InputError for what is no wrapper, and for one that cannot be laid around what is inside it.
 * @example wrap(breakout(), actionRepeat({ times: 2 }), frameStack({ frames: 4 }))
 */
export function wrap(
  environment: EnvironmentDefinition,
  ...wrappers: readonly WrapperDefinition[]
): EnvironmentDefinition {
  return wrappers.reduce((inside, wrapper) => {
    if (typeof wrapper?.around === 'function') return wrapper.around(inside)
    throw new InputError('wrap', show(wrapper), 'wrappers, made by a factory of defineWrapper')
  }, environment)
}

/** The lanes of a wrapper for those that it is handed: one object for each, since a step allocates nothing. */
function boundLanes<S>(ownOf: (columns: Readonly<Record<string, unknown>>) => S): (outer: Lanes) => WrapperLanes<S> {
  const bound = new WeakMap<Lanes, WrapperLanes<S>>()
  return (outer) => {
    let lanes = bound.get(outer)
    if (lanes === undefined) {
      const own = ownOf(outer.state as Readonly<Record<string, unknown>>)
      lanes = { own, outer, inner: { ...outer } }
      bound.set(outer, lanes)
    }
    const { inner } = lanes
    inner.observation = outer.observation
    inner.actionMask = outer.actionMask
    inner.action = outer.action
    inner.reward = outer.reward
    inner.terminated = outer.terminated
    inner.truncated = outer.truncated
    inner.step = outer.step
    inner.present = outer.present
    return lanes
  }
}
