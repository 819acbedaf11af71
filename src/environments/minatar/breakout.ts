import { box, discrete } from '../../base/space.ts'
import { type GridLanes, gridKernels } from '../../kernels/grids/bind.ts'
import { defineEnvironment, withSettings } from '../environment.ts'
import { SIDE, smallGridSettings } from '../grids/small-grid.ts'

/**
 * Breakout on a 10 × 10 grid with the dynamics of MinAtar 1.0.15 (Young and Tian, "MinAtar: An Atari-Inspired Testbed for Thorough and
 * Reproducible Reinforcement Learning Experiments", 2019), under gymnax's id. A paddle in the last row keeps a ball in play that breaks
 * three rows of bricks; when all are broken and the ball comes down, there are three new rows. It differs from MinAtar in three points:
 * actions are its minimal set, numbered from 0; a sticky first step repeats no action, not the previous episode's last one; and there is
 * a time limit.
 *
 * - **Action space**: Discrete(3): 0 does nothing, 1 moves the paddle one column to the left, 2 to the right. With
 *   `stickyActionProbability` (0.1, as in MinAtar; gymnax has none) the lane repeats the previous step's action.
 * - **Observation space**: Box of 10 × 10 × 4 (row from the top, column, channel), each 0 or 1: the paddle, the ball, its trail (the
 *   ball's previous position, which gives its direction), the bricks.
 * - **Rewards**: 1 for every broken brick. Random actions return 0.38 on average.
 * - **Starting state**: The paddle in column 4, all bricks, the ball in row 3 at the left edge moving down and right or, equally often,
 *   at the right edge moving down and left.
 * - **Episode end**: Terminated when the ball passes the paddle. Truncated after `maxEpisodeSteps` (1000, where gymnax ends it) steps.
 */
export const breakout = defineEnvironment({
  id: 'Breakout-MinAtar',
  module: import.meta.url,
  settings: smallGridSettings,
  presets: [
    {
      run: { numLanes: 64, totalSteps: 1_000_000 },
      algorithm: withSettings('ppo', {
        numSteps: 32,
        numMinibatches: 8,
        updateEpochs: 4,
        learningRate: 5e-3,
        entropyCoef: 0.01,
      }),
      policy: withSettings('mlp', { activation: 'relu' }),
    },
    {
      run: { numLanes: 64, totalSteps: 1_000_000 },
      algorithm: withSettings('ppo', {
        numSteps: 32,
        numMinibatches: 8,
        updateEpochs: 3,
        learningRate: 6e-3, // With 2e-3 it stays at 6, as the perceptron does.
        clipCoef: 0.1,
        gamma: 0.98,
        entropyCoef: 0.01,
      }),
      policy: withSettings('convolutional', { filters: [16], hidden: [64] }),
      reached: { episodeReturn: 15.2, reached: 2, seeds: 3 },
    },
  ],
  observationType: 'u8',
  state: () => ({
    ballX: 'u8',
    ballY: 'u8',
    /** 0 up and left, 1 up and right, 2 down and right, 3 down and left. */
    direction: 'u8',
    trailX: 'u8',
    trailY: 'u8',
    paddle: 'u8',
    bricks: 'u32',
    /** 1 if the last step broke or met a brick: a ball that meets a brick in the very next step passes through it. */
    strike: 'u8',
    lastAction: 'u8',
  }),
  make: ({ maxEpisodeSteps, stickyActionProbability }) => ({
    observationSpace: box({ low: 0, high: 1, shape: [SIDE, SIDE, 4] }),
    actionSpace: discrete(3),
    maxEpisodeSteps,
    returnThreshold: null,
    reset(lanes, rows, count) {
      gridKernels(lanes.kernels).breakoutReset(lanes.state, lanes, lanes.random, rows, count)
    },
    step(lanes, from, to) {
      const { breakoutStep } = gridKernels(lanes.kernels)
      breakoutStep(lanes.state, lanes as GridLanes, lanes.random, stickyActionProbability, from, to)
    },
  }),
})
