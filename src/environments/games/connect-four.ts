import { boolean } from '../../base/settings.ts'
import { defineEnvironment, withSettings } from '../environment.ts'
import { lineModel, lineSettings, lineState } from './line-game.ts'

const RULES = { rows: 6, columns: 7, inLine: 4, falls: true } as const

/**
 * Connect four between two lanes: lanes 2g and 2g + 1 play game g and take turns. A mark falls to the lowest free square of its column.
 *
 * - **Action space**: Discrete(7): the column. The mask allows columns with room; a waiting lane can only choose 0, which has no effect.
 * - **Observation space**: Box of 6 × 7 × 3 (row from the top, column, channel), each 0 or 1: the lane's own marks, the opponent's marks,
 *   and 1 everywhere if it is the lane's turn. With `showLines` Box of 6 × 7 × 11, with four channels for each side: free squares that
 *   complete a line, in separate channels for 0, 1 and more free squares below them; and free squares of lines with two marks and two
 *   free squares.
 * - **Rewards**: 1 for a win, −1 for a loss, otherwise 0.
 * - **Starting state**: An empty board, or one after up to `openingMoves` (0) random moves, so that self-play covers all openings. Each
 *   lane begins equally often.
 * - **Episode end**: Terminated when four marks of a side form a row, column or diagonal, or the board is full, after at most 42 steps,
 *   which is also the limit.
 */
export const connectFour = defineEnvironment({
  id: 'ConnectFour-v0',
  module: import.meta.url,
  settings: {
    ...lineSettings(RULES),
    showLines: boolean(false, 'eight more channels, which show where a line of either side lacks one or two marks'),
  },
  presets: [
    {
      environment: { openingMoves: 6, showLines: true },
      run: { opponents: 4, numLanes: 256, totalSteps: 6_000_000 },
      algorithm: withSettings('ppo', {
        numSteps: 64,
        numMinibatches: 8,
        updateEpochs: 4,
        learningRate: 1e-3,
        gamma: 1,
        entropyCoef: 0.02,
      }),
      policy: withSettings('mlp', { hidden: [128, 128], activation: 'relu' }),
    },
  ],
  state: () => lineState(RULES),
  make: (options) => lineModel(RULES, options),
})
