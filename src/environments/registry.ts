/** The environments that come with Colonnade. */
import { unknownWord } from '../errors.ts'
import { breakout } from './breakout.ts'
import { cartPole } from './cart-pole.ts'
import { cartPolePosition } from './cart-pole-position.ts'
import type { EnvironmentFactory } from './environment.ts'
import { pendulum } from './pendulum.ts'
import { recall } from './recall.ts'
import { ticTacToe } from './tic-tac-toe.ts'

/** The ids of the built-in environments. */
export type EnvironmentId =
  | 'CartPole-v1'
  | 'Pendulum-v1'
  | 'Breakout-MinAtar'
  | 'CartPole-P-v1'
  | 'Recall-v0'
  | 'TicTacToe-v0'

/** Every built-in environment's factory, under the id that the field knows it by. */
export const environments: readonly EnvironmentFactory[] = [
  cartPole,
  pendulum,
  breakout,
  cartPolePosition,
  recall,
  ticTacToe,
] as unknown as EnvironmentFactory[]

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
