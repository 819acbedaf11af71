/** The rows of the suite's table: every environment by each of its presets that has a figure to reach. */
import type { EnvironmentId } from '../../src/index.ts'
import { gameRows } from '../games/rows.ts'
import { learn } from '../learning/learn.ts'
import { recurrent, tasks } from '../learning/tasks.ts'
import type { Wanted } from '../measure.ts'
import type { Row } from './row.ts'
import { bestReturn } from './shortest-paths.ts'

const ZOO = 'rl-baselines3-zoo'
/** Of the README of gymnax, which does not say after how many steps; the one of MinAtar has curves alone. */
const gymnax = (figure: number): string => `${figure} (PPO, unknown number of steps, gymnax)`

interface Asked {
  readonly settings?: Readonly<Record<string, string>>
  readonly episodes?: number
  readonly published?: string
}

/** A training that is judged by the mean return of fresh episodes. */
function row(environment: string, wanted: Wanted, { settings = {}, episodes = 100, published = '–' }: Asked = {}): Row {
  const what = `mean return of ${episodes.toLocaleString('en')} fresh episodes`
  return {
    environment,
    settings,
    figures: [{ what, wanted, published }],
    async measure(seeds) {
      const outcomes = []
      for (const seed of seeds) {
        const { episodeReturn, ...training } = await learn({ environment, settings, episodes }, seed)
        outcomes.push({ ...training, values: [episodeReturn] })
      }
      return outcomes
    },
  }
}

/** A grid, of which nine tenths of the best return are asked for. */
async function gridRow(id: EnvironmentId, settings: Asked['settings'] = {}): Promise<Row> {
  const best = await bestReturn(id)
  const published = `${best.toFixed(3)} is the best possible: shortest paths with a full view`
  return row(id, { atLeast: Number((0.9 * best).toFixed(3)) }, { settings, episodes: 1000, published })
}

/** A row of the room `learning`. */
function learningRow({ environment, settings, wanted, episodes }: (typeof tasks)[number]): Row {
  const published = environment === 'Breakout-MinAtar' ? gymnax(28) : '–'
  return row(environment, wanted, { settings, episodes, published })
}

/** All rows; those that take longest are the last. */
export async function suiteRows(): Promise<readonly Row[]> {
  const { snakes, roles, ticTacToe, connectFour } = gameRows
  return [
    row('CartPole-v1', { atLeast: 490 }, { published: `500 (PPO, 100k steps, ${ZOO})` }),
    row(
      'CartPole-v1',
      { atLeast: 475 },
      { settings: { algorithm: 'a2c' }, published: `500 (A2C, 500k steps, ${ZOO})` },
    ),
    row('CartPole-v1', { atLeast: 475 }, { settings: { algorithm: 'dqn' }, published: `500 (DQN, 50k steps, ${ZOO})` }),
    row('Pendulum-v1', { atLeast: -175 }, { episodes: 10_000, published: `−172.2 (PPO, 100k steps, ${ZOO})` }),
    row(
      'Pendulum-v1',
      { atLeast: -150 },
      { settings: { algorithm: 'sac' }, episodes: 10_000, published: `−157.0 (SAC, 20k steps, ${ZOO})` },
    ),
    row(
      'Pendulum-v1',
      { atLeast: -155 },
      { settings: { algorithm: 'td3' }, episodes: 10_000, published: `−151.9 (TD3, 20k steps, ${ZOO})` },
    ),
    row('Acrobot-v1', { atLeast: -85 }, { published: `−73.5 (PPO, 1M steps, ${ZOO})` }),
    row(
      'MountainCar-v0',
      { atLeast: -125 },
      { settings: { algorithm: 'dqn' }, published: `−100.8 (DQN, 120k steps, ${ZOO})` },
    ),
    row('MountainCarContinuous-v0', { atLeast: 88 }, { published: `88.3 (PPO, 20k steps, ${ZOO})` }),
    row('FrozenLake-v1', { atLeast: 0.7 }, { episodes: 1000, published: '0.7 is Gymnasium’s threshold' }),
    row(
      'FrozenLake8x8-v1',
      { atLeast: 1 },
      { settings: { 'environment.isSlippery': 'false' }, published: '1 is the best possible' },
    ),
    row('CliffWalking-v1', { atLeast: -13 }, { published: '−13 is the best possible' }),
    row('Taxi-v3', { atLeast: 7.5 }, { episodes: 1000, published: '8 is Gymnasium’s threshold' }),
    row('Blackjack-v1', { atLeast: -0.06 }, { episodes: 20_000 }),
    await gridRow('EmptyRoom-v0'),
    await gridRow('DoorKey-v0'),
    await gridRow('FourRooms-v0'),
    await gridRow('FourRooms-v0', recurrent),
    await gridRow('Maze-v0'),
    await gridRow('Maze-v0', recurrent),
    ticTacToe,
    roles,
    ...tasks.map(learningRow),
    row(
      'TicTacToe-v0',
      { atLeast: 0.92 },
      { settings: { algorithm: 'dqn' }, episodes: 4000, published: '0.960 is the best possible' },
    ),
    // At random 3.5, 0.08, 0.78 and 0.10.
    row('SpaceInvaders-MinAtar', { atLeast: 5 * 3.5 }, { episodes: 40, published: gymnax(131) }),
    row('Freeway-MinAtar', { atLeast: 8 }, { episodes: 40, published: gymnax(58) }),
    row('Asterix-MinAtar', { atLeast: 4 * 0.78 }, { episodes: 40, published: gymnax(15) }),
    connectFour,
    snakes,
    row('Seaquest-MinAtar', { atLeast: 40 * 0.1 }, { episodes: 40 }),
  ]
}
