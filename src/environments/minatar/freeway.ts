import { type Random, Stream } from '../../base/random.ts'
import { box, discrete } from '../../base/space.ts'
import { defineEnvironment, withSettings } from '../environment.ts'
import { SIDE, smallGridSettings } from '../grids/small-grid.ts'

const CHANNELS = 7
const WIDTH = SIDE * SIDE * CHANNELS
/** Channel 1 + s has the trails of cars that move about every s steps. */
const Channel = { chicken: 0, car: 1 } as const
const Act = { none: 0, up: 1, down: 2 } as const
/** Number of cars, one in each of the rows 1 to 8. */
const CARS = 8
const SPEEDS = 5
const COLUMN = 4
const LAST_ROW = SIDE - 1
const MOVE_STEPS = 3
/** Draws of four random numbers per step: for the sticky action and each car's speed. */
const BLOCKS = 3

/**
 * Freeway on a 10 × 10 grid with the dynamics of MinAtar 1.0.15 (Young and Tian, 2019), under gymnax's id. A chicken that moves every
 * third step crosses eight lanes of cars; when hit or across, it returns to the start. When it is across, all cars get new speeds and
 * directions. It differs from MinAtar as `Breakout-MinAtar` does, and MinAtar's end after 2500 steps is the time limit here.
 *
 * - **Action space**: Discrete(3): 0 does nothing, 1 moves up, 2 down. With `stickyActionProbability` (0.1, as in MinAtar) the lane
 *   repeats the previous step's action.
 * - **Observation space**: Box of 10 × 10 × 7 (row from the top, column, channel), each 0 or 1: the chicken, the cars, and behind each
 *   car its trail, in one of five channels by its waiting time.
 * - **Rewards**: 1 for every crossing. Random actions return 0.08 on average.
 * - **Starting state**: The chicken in the last row. A car in column 0 of each of the rows 1 to 8, with a random waiting time of 1 to 5
 *   steps and a random direction.
 * - **Episode end**: Never terminated. Truncated after `maxEpisodeSteps` (1000; 2500 in MinAtar) steps.
 */
export const freeway = defineEnvironment({
  id: 'Freeway-MinAtar',
  module: import.meta.url,
  settings: smallGridSettings,
  presets: [
    {
      run: { numLanes: 64, totalSteps: 400_000 },
      algorithm: withSettings('ppo', {
        numSteps: 128,
        numMinibatches: 8,
        updateEpochs: 4,
        learningRate: 1e-3,
        entropyCoef: 0.01,
      }),
      policy: withSettings('mlp', { activation: 'relu' }),
    },
  ],
  observationType: 'u8',
  state: () => ({
    /** Row of the chicken, and steps until it can move. */
    chicken: 'u8',
    moveTimer: 'u8',
    /** The car in row i + 1: its column, the steps until it moves, its waiting time, and 1 if it drives right. */
    column: ['u8', CARS],
    timer: ['u8', CARS],
    wait: ['u8', CARS],
    isRightward: ['u8', CARS],
    lastAction: 'u8',
  }),
  make: ({ maxEpisodeSteps, stickyActionProbability }) => ({
    observationSpace: box({ low: 0, high: 1, shape: [SIDE, SIDE, CHANNELS] }),
    actionSpace: discrete(3),
    maxEpisodeSteps,
    returnThreshold: null,
    reset({ state, observation, lane, episode, random }, rows, count) {
      for (let i = 0; i < count; i++) {
        const n = rows[i]!
        state.column.fill(0, n * CARS, (n + 1) * CARS)
        driveAnew(state, n, random, Stream.reset, lane[n]!, episode[n]!, 0)
        state.chicken[n] = LAST_ROW
        state.moveTimer[n] = MOVE_STEPS
        state.lastAction[n] = Act.none
        draw(observation, n, state)
      }
    },
    step({ state, observation, reward, action, lane, episode, step, random }, from, to) {
      const { column, timer, wait, isRightward } = state
      for (let n = from; n < to; n++) {
        let act = action[n]!
        if (stickyActionProbability > 0) {
          random.draw(Stream.step, lane[n]!, episode[n]!, BLOCKS * step[n]!)
          if (random.uniform(0) < stickyActionProbability) act = state.lastAction[n]!
        }
        state.lastAction[n] = act
        let at = state.chicken[n]!
        if (act !== Act.none && state.moveTimer[n] === 0) {
          state.moveTimer[n] = MOVE_STEPS
          at = act === Act.up ? at - 1 : Math.min(LAST_ROW, at + 1)
        }
        reward[n] = 0
        if (at === 0) {
          reward[n] = 1
          driveAnew(state, n, random, Stream.step, lane[n]!, episode[n]!, BLOCKS * step[n]! + 1)
          at = LAST_ROW
        }
        for (let i = 0; i < CARS; i++) {
          const car = n * CARS + i
          if (at === i + 1 && column[car] === COLUMN) at = LAST_ROW
          if (timer[car]! > 0) timer[car] = timer[car]! - 1
          else {
            timer[car] = wait[car]!
            column[car] = (column[car]! + (isRightward[car] === 1 ? 1 : SIDE - 1)) % SIDE
            if (at === i + 1 && column[car] === COLUMN) at = LAST_ROW
          }
        }
        if (state.moveTimer[n]! > 0) state.moveTimer[n] = state.moveTimer[n]! - 1
        state.chicken[n] = at
        draw(observation, n, state)
      }
    },
  }),
})

type Cars = Readonly<Record<'chicken' | 'column' | 'timer' | 'wait' | 'isRightward', Uint8Array>>

/** Gives the cars of lane n new speeds and directions, by two draws from `block` on. */
function driveAnew(
  { timer, wait, isRightward }: Cars,
  n: number,
  random: Random,
  stream: number,
  lane: number,
  episode: number,
  block: number,
): void {
  for (let i = 0; i < CARS; i++) {
    if (i % 4 === 0) random.draw(stream, lane, episode, block + i / 4)
    const drawn = Math.floor(random.uniform(i % 4) * 2 * SPEEDS)
    const car = n * CARS + i
    wait[car] = 1 + (drawn % SPEEDS)
    timer[car] = wait[car]!
    isRightward[car] = drawn < SPEEDS ? 0 : 1
  }
}

function draw(observation: Uint8Array, n: number, { chicken, column, wait, isRightward }: Cars): void {
  const row = n * WIDTH
  observation.fill(0, row, row + WIDTH)
  observation[row + CHANNELS * (SIDE * chicken[n]! + COLUMN) + Channel.chicken] = 1
  for (let i = 0; i < CARS; i++) {
    const car = n * CARS + i
    const behind = (column[car]! + (isRightward[car] === 1 ? SIDE - 1 : 1)) % SIDE
    const line = row + CHANNELS * SIDE * (i + 1)
    observation[line + CHANNELS * column[car]! + Channel.car] = 1
    observation[line + CHANNELS * behind + Channel.car + wait[car]!] = 1
  }
}
