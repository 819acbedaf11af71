import { defineEnvironment, withSettings } from '../environment.ts'
import { lineModel, lineSettings, lineState } from './line-game.ts'

const RULES = { rows: 3, columns: 3, inLine: 3, falls: false } as const

/**
 * Tic-tac-toe between two lanes: lanes 2g and 2g + 1 play game g and move by turns. `TicTacToe-v0` has the other side play at random.
 *
 * ## Action Space
 * Discrete(9): the square, 3 · row + column. The mask allows the free ones; a lane that waits may choose 0 alone, which does nothing.
 *
 * ## Observation Space
 * Box of 3 × 3 × 3 (row, column, channel), each 0 or 1: the lane's own marks, the other's, and 1 everywhere if the lane is to move.
 *
 * ## Rewards
 * 1 for a game won, −1 for one lost, else 0. Between two that play perfectly every game is drawn.
 *
 * ## Starting State
 * An empty board, or one after up to `openingMoves` (0) moves at random, so that a policy that learns against itself meets every
 * opening. Each lane begins as often as the other.
 *
 * ## Episode End
 * Terminated when one side has three marks in a line, or the board is full: after 9 steps at most, which is also the limit.
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
