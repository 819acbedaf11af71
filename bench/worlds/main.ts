/** `npm run bench -- worlds`: what the presets of the suite come to, environment by environment, over three seeds. */
import { learnAll } from '../learning/figures.ts'
import type { Task } from '../learning/tasks.ts'
import { reportRoom } from '../report.ts'

const seeds = [1, 2, 3]

/** An environment of the suite with the return that is asked for. */
function world(environment: string, atLeast: number, settings: Task['settings'] = {}, episodes = 100): Task {
  return { environment, settings, wanted: { atLeast }, seeds, episodes }
}

const tasks: readonly Task[] = [
  world('CartPole-v1', 490),
  world('CartPole-v1', 475, { algorithm: 'dqn' }),
  world('Pendulum-v1', -150, { algorithm: 'sac' }),
  world('Acrobot-v1', -85),
  world('MountainCar-v0', -125),
  world('MountainCarContinuous-v0', 88),
  world('FrozenLake-v1', 0.7, {}, 1000),
  world('FrozenLake8x8-v1', 1, { 'environment.isSlippery': 'false' }),
  world('CliffWalking-v1', -13),
  world('Taxi-v3', 7.5, {}, 1000),
  world('Blackjack-v1', -0.06, {}, 20_000),
  world('SpaceInvaders-MinAtar', 5 * 3.5, {}, 40), // Random play returns 3.5.
  world('Freeway-MinAtar', 8, {}, 40), // 0.08.
  world('Asterix-MinAtar', 4 * 0.78, {}, 40), // 0.78.
  world('Seaquest-MinAtar', 40 * 0.1, {}, 40), // 0.10.
]

reportRoom('worlds', await learnAll(tasks))
