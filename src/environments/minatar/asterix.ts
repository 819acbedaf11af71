import { box, discrete } from '../../base/space.ts'
import { type GridLanes, gridKernels } from '../../kernels/grids/bind.ts'
import { defineEnvironment, withSettings } from '../environment.ts'
import { SIDE, smallGridSettings } from '../grids/small-grid.ts'

/**
 * Asterix on a 10 × 10 grid with the dynamics of MinAtar 1.0.15 (Young and Tian, 2019), under gymnax's id. Enemies and gold come from the
 * sides, at most one in each of eight rows; the player moves among them. Over time they come more often and move faster. It differs from
 * MinAtar as `Breakout-MinAtar` does: its minimal set of actions, no action for a sticky first step to repeat, and a time limit.
 *
 * - **Action space**: Discrete(5): 0 does nothing, 1 moves left, 2 up, 3 right, 4 down. With `stickyActionProbability` (0.1, as in
 *   MinAtar) the lane repeats the previous step's action.
 * - **Observation space**: Box of 10 × 10 × 4 (row from the top, column, channel), each 0 or 1: the player, enemies, the trails of moving
 *   things, gold.
 * - **Rewards**: 1 for gold. Random actions return 0.78 on average.
 * - **Starting state**: The player in column 5 of row 5, without enemies and gold.
 * - **Episode end**: Terminated when the player and an enemy meet. Truncated after `maxEpisodeSteps` (1000) steps.
 */
export const asterix = defineEnvironment({
  id: 'Asterix-MinAtar',
  module: import.meta.url,
  settings: smallGridSettings,
  presets: [
    {
      run: { numLanes: 64, totalSteps: 3_000_000 },
      algorithm: withSettings('ppo', {
        numSteps: 128,
        numMinibatches: 8,
        updateEpochs: 4,
        learningRate: 5e-3, // With 1e-3 it stays at 2.
        gamma: 0.98,
        entropyCoef: 0.01,
      }),
      policy: withSettings('mlp', { activation: 'relu' }),
    },
  ],
  observationType: 'u8',
  state: () => ({
    x: 'u8',
    y: 'u8',
    /** Content of row i + 1: 0 nothing, 1 an enemy, 2 gold; its column; and 1 if it moves right. */
    kind: ['u8', 8],
    column: ['u8', 8],
    isRightward: ['u8', 8],
    /** Steps between two arrivals, and between two moves. */
    spawnSteps: 'u8',
    moveSteps: 'u8',
    /** Steps until the next arrival, until all move, and until both become more frequent. */
    spawnTimer: 'u8',
    moveTimer: 'u8',
    rampTimer: 'i32',
    ramps: 'i32',
    lastAction: 'u8',
    isOver: 'u8',
  }),
  make: ({ maxEpisodeSteps, stickyActionProbability }) => ({
    observationSpace: box({ low: 0, high: 1, shape: [SIDE, SIDE, 4] }),
    actionSpace: discrete(5),
    maxEpisodeSteps,
    returnThreshold: null,
    reset(lanes, rows, count) {
      gridKernels(lanes.kernels).asterixReset(lanes.state, lanes, rows, count)
    },
    step(lanes, from, to) {
      const { asterixStep } = gridKernels(lanes.kernels)
      asterixStep(lanes.state, lanes as GridLanes, lanes.random, stickyActionProbability, from, to)
    },
  }),
})
