import { boolean } from '../../base/settings.ts'
import { defineEnvironment, withSettings } from '../environment.ts'
import { lineModel, lineSettings, lineState } from './line-game.ts'

const RULES = { rows: 6, columns: 7, inLine: 4, falls: true } as const

/**
 * Connect four between two lanes: lanes 2g and 2g + 1 play game g and move by turns. A mark falls to the lowest free square of its
 * column.
 *
 * ## Action Space
 * Discrete(7): the column. The mask allows those with room; a lane that waits may choose 0 alone, which does nothing.
 *
 * ## Observation Space
 * Box of 6 × 7 × 3 (row from the top, column, channel), each 0 or 1: the lane's own marks, the other's, and 1 everywhere if the
 * lane is to move. With `showLines` of 6 × 7 × 11: then free squares that complete a line of the lane's own, in a channel each for those
 * that no free square is below, one, and more; those of lines with two own marks and two free squares; and the same four of the other's.
 *
 * ## Rewards
 * 1 for a game won, −1 for one lost, else 0.
 *
 * ## Starting State
 * An empty board, or one after up to `openingMoves` (0) moves at random, so that a policy that learns against itself meets every
 * opening. Each lane begins as often as the other.
 *
 * ## Episode End
 * Terminated when four marks of a side lie in a row, a column or a diagonal, or the board is full: after 42 steps at most, which is
 * also the limit.
 */
export const connectFour = defineEnvironment({
  id: 'ConnectFour-v0',
  module: import.meta.url,
  settings: {
    ...lineSettings(RULES),
    showLines: boolean(false, 'eight more channels: where lines of either side lack one or two marks'),
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
