/** Environments by id: those that come with Colonnade (`colonnade` itself names some, the suite the rest), and those that a program registers. */
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

/** The ids of the built-in environments. */
export type EnvironmentId = ((typeof first)[keyof typeof first] | (typeof suite)[keyof typeof suite])['id']

/** Every built-in environment's factory: those of the first hour, then the suite by id, since a bundle changes the order of its exports. */
export const environments = [
  ...Object.values(first),
  ...Object.values(suite).sort((a, b) => (a.id < b.id ? -1 : 1)),
] as unknown as readonly EnvironmentFactory[]

/** Environments of one's own, by id. */
const registered = new Map<string, EnvironmentFactory>()

/**
 * Lets an environment of one's own be found by its id in this process, as the built-in ones are. For threads and resumed runs it has to be
 * made with `module: import.meta.url` all the same.
 *
 * @throws InputError for what is no factory of environments, and for an id that another environment has.
 */
export function registerEnvironment(factory: EnvironmentFactory): void {
  const isFactory = typeof factory === 'function' && typeof factory.id === 'string' && Array.isArray(factory.presets)
  if (!isFactory) throw new InputError('registerEnvironment', show(factory), 'what defineEnvironment returns')
  const known = registered.get(factory.id) ?? environments.find(({ id }) => id === factory.id)
  if (known !== undefined && known !== factory) {
    throw new InputError('registerEnvironment', `the id ${factory.id} twice`, 'an id that no other environment has')
  }
  if (known === undefined) registered.set(factory.id, factory)
}

/** The ids of the environments that are found by them: the built-in ones, then those that were registered. */
export function listEnvironments(): readonly string[] {
  return [...environments.map(({ id }) => id), ...registered.keys()]
}

/** Which environment: its id, with its settings as values; or as a text, like `CartPole-v1 maxEpisodeSteps=200`. */
export type EnvironmentSpec = string | { readonly id: string; readonly parameters?: Readonly<Record<string, unknown>> }

/**
 * Makes an environment from what says which.
 * @throws InputError for an id that none has, and for settings that are wrong.
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
 * The factory of an environment: of a built-in one, or of one that was registered. `otherwise` is what the caller would take besides.
 * @throws InputError that names the nearest id.
 */
export function environmentFactory(id: string, otherwise?: string): EnvironmentFactory {
  const factory = registered.get(id) ?? environments.find((candidate) => candidate.id === id)
  if (factory === undefined) throw unknownWord('environment', id, listEnvironments(), otherwise)
  return factory
}
