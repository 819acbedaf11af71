import { box, discrete } from '../../base/space.ts'
import { type GridLanes, gridKernels } from '../../kernels/grids/bind.ts'
import { defineEnvironment, withSettings } from '../environment.ts'
import { SIDE, smallGridSettings } from '../grids/small-grid.ts'

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
    column: ['u8', 8],
    timer: ['u8', 8],
    wait: ['u8', 8],
    isRightward: ['u8', 8],
    lastAction: 'u8',
  }),
  make: ({ maxEpisodeSteps, stickyActionProbability }) => ({
    observationSpace: box({ low: 0, high: 1, shape: [SIDE, SIDE, 7] }),
    actionSpace: discrete(3),
    maxEpisodeSteps,
    returnThreshold: null,
    reset(lanes, rows, count) {
      gridKernels(lanes.kernels).freewayReset(lanes.state, lanes, lanes.random, rows, count)
    },
    step(lanes, from, to) {
      const { freewayStep } = gridKernels(lanes.kernels)
      freewayStep(lanes.state, lanes as GridLanes, lanes.random, stickyActionProbability, from, to)
    },
  }),
})
