/** Environments by id: built-in ones (`colonnade` exports some, the suite the rest) and registered ones. */
import { checkOptions, InputError, show, unknownWord } from '../base/errors.ts'
import { readSettingTexts } from '../base/settings.ts'
import { cartPole } from './classic/cart-pole.ts'
import { cartPolePosition } from './classic/cart-pole-position.ts'
import { pendulum } from './classic/pendulum.ts'
import { recall } from './classic/recall.ts'
import type { EnvironmentDefinition, EnvironmentFactory } from './environment.ts'
import { ticTacToe } from './games/tic-tac-toe.ts'
import { breakout } from './minatar/breakout.ts'
import * as suite from './suite.ts'

const first = { cartPole, pendulum, breakout, cartPolePosition, recall, ticTacToe }

/** The id of a built-in environment. */
export type EnvironmentId = ((typeof first)[keyof typeof first] | (typeof suite)[keyof typeof suite])['id']

/**
 * Every built-in environment's factory: those of `colonnade` first, then the suite by id, since a bundle changes the order of its exports.
 */
export const environments = [
  ...Object.values(first),
  ...Object.values(suite).sort((a, b) => (a.id < b.id ? -1 : 1)),
] as unknown as readonly EnvironmentFactory[]

const registered = new Map<string, EnvironmentFactory>()

/**
 * Registers a custom environment, so that it is found by its id in this process. Other threads and resumed runs still require its
 * `module: import.meta.url`.
 * @throws InputError for a value that is not an environment factory, and for an id that another environment has.
 */
export function registerEnvironment(factory: EnvironmentFactory): void {
  const isFactory = typeof factory === 'function' && typeof factory.id === 'string' && Array.isArray(factory.presets)
  if (!isFactory) throw new InputError('registerEnvironment', show(factory), 'a factory of defineEnvironment')
  const known = registered.get(factory.id) ?? environments.find(({ id }) => id === factory.id)
  if (known !== undefined && known !== factory) {
    throw new InputError('registerEnvironment', `the id ${factory.id} twice`, 'an unused id')
  }
  if (known === undefined) registered.set(factory.id, factory)
}

/** The ids of the built-in environments, then of the registered ones. */
export function listEnvironments(): readonly string[] {
  return [...environments.map(({ id }) => id), ...registered.keys()]
}

/** An environment's id and settings, as an object or as text like `CartPole-v1 maxEpisodeSteps=200`. */
export type EnvironmentSpec = string | { readonly id: string; readonly parameters?: Readonly<Record<string, unknown>> }

/**
 * Creates an environment from its specification.
 * @throws InputError for an unknown id and for wrong settings.
 * @example createEnvironment('CartPole-v1 maxEpisodeSteps=200')
 */
export function createEnvironment(spec: EnvironmentSpec): EnvironmentDefinition {
  if (typeof spec !== 'string') {
    checkOptions('createEnvironment', spec, ['id', 'parameters'])
    return environmentFactory(spec.id)((spec.parameters ?? {}) as never)
  }
  const [id = '', ...words] = spec.trim().split(/\s+/)
  const factory = environmentFactory(id)
  return factory(readSettingTexts(`createEnvironment ${id}`, id, factory.settings, words) as never)
}

/**
 * Returns the factory of a built-in or registered environment. `otherwise` describes, for the error, what the caller accepts besides.
 * @throws InputError with the nearest id.
 */
export function environmentFactory(id: string, otherwise?: string): EnvironmentFactory {
  const factory = registered.get(id) ?? environments.find((candidate) => candidate.id === id)
  if (factory === undefined) throw unknownWord('environment', id, listEnvironments(), otherwise)
  return factory
}
