import { box, discrete } from '../../base/space.ts'
import { type GridLanes, gridKernels } from '../../kernels/grids/bind.ts'
import { defineEnvironment, withSettings } from '../environment.ts'
import { SIDE, smallGridSettings } from '../grids/small-grid.ts'

/**
 * Space invaders on a 10 × 10 grid with the dynamics of MinAtar 1.0.15 (Young and Tian, 2019), under gymnax's id. A cannon in the last
 * row shoots at aliens, which move sideways, come down at the edges, move faster the fewer they are, and drop bombs from the alien
 * nearest to the cannon. After a wave the next one comes, slightly faster. It differs from MinAtar as `Breakout-MinAtar` does: its
 * minimal set of actions, no action for a sticky first step to repeat, and a time limit.
 *
 * - **Action space**: Discrete(4): 0 does nothing, 1 moves the cannon one column to the left, 2 to the right, 3 fires, at most every
 *   fifth step. With `stickyActionProbability` (0.1, as in MinAtar) the lane repeats the previous step's action.
 * - **Observation space**: Box of 10 × 10 × 6 (row from the top, column, channel), each 0 or 1: the cannon, the aliens, the aliens while
 *   they move left, the aliens while they move right, the cannon's shots, the aliens' bombs.
 * - **Rewards**: 1 for every alien shot. Random actions return 3.5 on average.
 * - **Starting state**: The cannon in column 5, and a wave of 4 × 6 aliens in columns 2 to 7 of the first rows, moving left.
 * - **Episode end**: Terminated when a bomb or an alien reaches the cannon, or aliens in the last row meet an edge. Truncated after
 *   `maxEpisodeSteps` (1000) steps.
 */
export const spaceInvaders = defineEnvironment({
  id: 'SpaceInvaders-MinAtar',
  module: import.meta.url,
  settings: smallGridSettings,
  presets: [
    {
      run: { numLanes: 64, totalSteps: 300_000 },
      algorithm: withSettings('ppo', {
        numSteps: 32,
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
    cannon: 'u8',
    /** Per row, a bit for each column. */
    aliens: ['i32', SIDE],
    shots: ['i32', SIDE],
    bombs: ['i32', SIDE],
    /** 1 while the aliens move to the right. */
    isRightward: 'u8',
    /** Steps between two moves of a full wave. */
    moveSteps: 'u8',
    /** Steps until the aliens move, until they drop a bomb, and until the cannon can fire. */
    moveTimer: 'u8',
    bombTimer: 'u8',
    shotTimer: 'u8',
    lastAction: 'u8',
    isOver: 'u8',
  }),
  make: ({ maxEpisodeSteps, stickyActionProbability }) => ({
    observationSpace: box({ low: 0, high: 1, shape: [SIDE, SIDE, 6] }),
    actionSpace: discrete(4),
    maxEpisodeSteps,
    returnThreshold: null,
    reset(lanes, rows, count) {
      gridKernels(lanes.kernels).spaceInvadersReset(lanes.state, lanes, rows, count)
    },
    step(lanes, from, to) {
      const { spaceInvadersStep } = gridKernels(lanes.kernels)
      spaceInvadersStep(lanes.state, lanes as GridLanes, lanes.random, stickyActionProbability, from, to)
    },
  }),
})
