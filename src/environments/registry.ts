/** The environments that come with Colonnade: those that `colonnade` itself names, and those of the suite. */
import { unknownWord } from '../errors.ts'
import { breakout } from './breakout.ts'
import { cartPole } from './cart-pole.ts'
import { cartPolePosition } from './cart-pole-position.ts'
import type { EnvironmentFactory } from './environment.ts'
import { pendulum } from './pendulum.ts'
import { recall } from './recall.ts'
import * as suite from './suite.ts'
import { ticTacToe } from './tic-tac-toe.ts'

const all = { cartPole, pendulum, breakout, cartPolePosition, recall, ticTacToe, ...suite }

/** The ids of the built-in environments. */
export type EnvironmentId = (typeof all)[keyof typeof all]['id']

/** Every built-in environment's factory, under the id that the field knows it by. */
export const environments = Object.values(all) as unknown as readonly EnvironmentFactory[]

/**
 * The factory of a built-in environment.
 * @throws InputError that names the nearest id.
 */
export function environmentFactory(id: string): EnvironmentFactory {
  const factory = environments.find((candidate) => candidate.id === id)
  if (factory === undefined) {
    throw unknownWord(
      'environment',
      id,
      environments.map((candidate) => candidate.id),
    )
  }
  return factory
}
