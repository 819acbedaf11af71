import { defineEnvironment, withSettings } from '../environment.ts'
import { lineModel, lineSettings, lineState } from './line-game.ts'

const RULES = { rows: 3, columns: 3, inLine: 3, falls: false } as const

/**
 * Tic-tac-toe between two lanes: lanes 2g and 2g + 1 play game g and take turns. In `TicTacToe-v0` the opponent plays at random.
 *
 * - **Action space**: Discrete(9): the square, 3 · row + column. The mask allows free squares; a waiting lane can only choose 0, which
 *   has no effect.
 * - **Observation space**: Box of 3 × 3 × 3 (row, column, channel), each 0 or 1: the lane's own marks, the opponent's marks, and 1
 *   everywhere if it is the lane's turn.
 * - **Rewards**: 1 for a win, −1 for a loss, otherwise 0. Between perfect players every game is a draw.
 * - **Starting state**: An empty board, or one after up to `openingMoves` (0) random moves, so that self-play covers all openings. Each
 *   lane begins equally often.
 * - **Episode end**: Terminated when one side has three marks in a line, or the board is full, after at most 9 steps, which is also the
 *   limit.
 */
export const ticTacToeDuel = defineEnvironment({
  id: 'TicTacToeDuel-v0',
  module: import.meta.url,
  settings: lineSettings(RULES),
  presets: [
    {
      environment: { openingMoves: 4 },
      run: { opponents: 4, numLanes: 128, totalSteps: 2_000_000 },
      algorithm: withSettings('ppo', {
        numSteps: 32,
        numMinibatches: 8,
        updateEpochs: 4,
        learningRate: 2e-3,
        gamma: 1,
        entropyCoef: 0.02,
      }),
      policy: withSettings('mlp', { activation: 'relu' }),
    },
  ],
  state: () => lineState(RULES),
  make: (options) => lineModel(RULES, options),
})
