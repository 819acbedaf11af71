/**
 * Wrappers: an environment around another environment. A wrapper has its own columns, and its reset and step functions call the inner
 * environment's with some lane columns replaced by its own. It can be created again from its record; the record of a wrapped environment
 * is the environment's with those of its wrappers.
 */
import { type DefinitionRecord, defineFactory, type Factory, recordOf } from '../base/definition.ts'
import { InputError, show } from '../base/errors.ts'
import type { Settings, SettingValues } from '../base/settings.ts'
import { observationType, type Space } from '../base/space.ts'
import type { ObservationColumn } from '../components/observation.ts'
import type { EnvironmentDefinition, EnvironmentModel, Lanes, State, StateDeclaration } from './environment.ts'
import type { Picture } from './picture.ts'

type OuterLanes = Lanes<unknown, ObservationColumn>

/** The lanes of a wrapper in `reset` and `step`; row n of each column is lane n. */
export interface WrapperLanes<S = unknown> {
  readonly own: S
  /** The world's lanes: the policy sees what is written there. */
  readonly outer: OuterLanes
  /** The lanes for the inner environment: the same columns, until the wrapper replaces some for a call. */
  readonly inner: { -readonly [name in keyof Lanes]: OuterLanes[name] }
}

/** The result of a wrapper's `make`: the differences from the inner environment. */
export interface WrapperModel<S = unknown>
  extends Partial<
    Pick<EnvironmentModel<unknown>, 'observationSpace' | 'actionSpace' | 'maxEpisodeSteps' | 'returnThreshold'>
  > {
  /** Begins an episode in each of the lanes rows[0 … count), by the inner `reset`. Default: the inner `reset`. */
  reset?(lanes: WrapperLanes<S>, rows: Uint32Array, count: number): void
  /** Makes a step in lanes `from` to `to`, by the inner `step`. Default: the inner `step`. */
  step?(lanes: WrapperLanes<S>, from: number, to: number): void
  /** Draws lane n from the wrapper's own columns. Default: the inner environment's picture. */
  draw?(own: S, n: number): Picture
}

/** A wrapper with its settings, as `wrap` takes it. */
export interface WrapperDefinition extends DefinitionRecord {
  around(environment: EnvironmentDefinition): EnvironmentDefinition
}

/** Creates a wrapper from its settings, like `frameStack`. `id` and `settings` describe it. */
export type WrapperFactory<S extends Settings = Settings> = Factory<S, WrapperDefinition>

/**
 * Defines a wrapper. With `module: import.meta.url` and an export under any name, other threads and resumed runs can create wrapped
 * environments.
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
  // biome-ignore lint/complexity/noBannedTypes: no columns by default.
  const D extends StateDeclaration = {},
>(options: {
  id: string
  module?: string
  settings: S
  /** Its own columns, one row per lane. */
  state?(parameters: SettingValues<S>, environment: EnvironmentDefinition): D
  /** @throws InputError for an environment that it cannot wrap. */
  make(parameters: SettingValues<S>, environment: EnvironmentDefinition): WrapperModel<State<D>>
}): WrapperFactory<S> {
  return defineFactory('wrapper', options, (parameters) => ({
    around(this: WrapperDefinition, environment: EnvironmentDefinition): EnvironmentDefinition {
      let answer: unknown // The inner function's last result, which the world checks.
      const innerReset: typeof environment.reset = (lanes, ...given) => {
        expectStored(options.id, environment, lanes)
        return environment.reset(lanes, ...given)
      }
      const innerStep: typeof environment.step = (lanes, ...given) => {
        expectStored(options.id, environment, lanes)
        return environment.step(lanes, ...given)
      }
      const inside: EnvironmentDefinition = {
        ...environment,
        reset(...given) {
          answer = innerReset(...given) ?? answer
        },
        step(...given) {
          answer = innerStep(...given) ?? answer
        },
      }
      const { reset, step, draw, ...model } = options.make(parameters, inside)
      const { observationSpace } = model
      const hides = (space: Space | undefined) => space?.kind === 'box' && space.criticOnly !== undefined
      if (hides(environment.observationSpace) && observationSpace !== undefined && !hides(observationSpace)) {
        const got = 'around observations with a part for critics alone, which actors would see'
        throw new InputError(
          `wrapper ${options.id}`,
          got,
          'such a wrapper inside, as in wrappers=frameStack,sharedCritic',
        )
      }
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
        // Its writes may contradict a goal.
        ...((step !== undefined || model.observationSpace !== undefined) && { goal: undefined }),
        state: { ...environment.state, ...state },
        wrappers: [...(environment.wrappers ?? []), recordOf(this)],
        ...(draw && { draw: (columns: Readonly<Record<string, unknown>>, n: number) => draw(ownOf(columns), n) }),
        reset(lanes: OuterLanes, rows: Uint32Array, count: number) {
          if (reset === undefined) return innerReset(lanes, rows, count)
          answer = undefined
          reset(lanesOf(lanes), rows, count)
          return answer as undefined
        },
        step(lanes: OuterLanes, from: number, to: number) {
          if (step === undefined) return innerStep(lanes, from, to)
          answer = undefined
          step(lanesOf(lanes), from, to)
          return answer as undefined
        },
      })
    },
  }))
}

/**
 * Wraps an environment; the first wrapper is the innermost.
 * @throws InputError for a value that is not a wrapper, and for a wrapper that does not support what is inside it.
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

/** @throws InputError for a column of floats where the inner environment writes bytes, and the other way around. */
function expectStored(id: string, environment: EnvironmentDefinition, { observation }: OuterLanes): void {
  const expected = observationType(environment.observationSpace) === 'u8' ? 'a Uint8Array' : 'a Float32Array'
  const got = observation instanceof Uint8Array ? 'a Uint8Array' : 'a Float32Array'
  if (got === expected) return
  const where = `${expected} in inner.observation, such as a state column of the wrapper`
  throw new InputError(`wrapper ${id}`, `${got} for observations of ${environment.id}`, where)
}

/** Creates a wrapper's lanes once for each lanes object, so that a step allocates nothing. */
function boundLanes<S>(
  ownOf: (columns: Readonly<Record<string, unknown>>) => S,
): (outer: OuterLanes) => WrapperLanes<S> {
  const bound = new WeakMap<OuterLanes, WrapperLanes<S>>()
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
