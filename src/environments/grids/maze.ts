import { InputError } from '../../base/errors.ts'
import { integer } from '../../base/settings.ts'
import { defineEnvironment } from '../environment.ts'
import { beginAnywhere, type Dice, Field, gridModel, gridPreset, gridState, levelSettings } from './grid-rooms.ts'

/**
 * A new maze in each episode, with exactly one path between any two fields: find the goal at the bottom right.
 *
 * - **Action space**: Discrete(5): 0 turns left, 1 turns right, 2 walks forward, 3 picks up the key ahead, 4 opens the door ahead with
 *   the key.
 * - **Observation space**: Box of 126, each 0 or 1: for each of 5 × 5 fields from the lane's own row forward, left to right as it faces
 *   them, whether it has a wall, the goal, a key, a door, an open door; then whether the lane has the key. The lane sees over walls.
 * - **Rewards**: 1 − 0.9 · steps / `maxEpisodeSteps` at the goal, otherwise 0.
 * - **Starting state**: A maze by a random walk with backtracking; the lane on a random field other than the goal, in a random direction.
 * - **Episode end**: Terminated at the goal. Truncated after `4 · side²` steps.
 * - **Arguments**: `side` (9), walls included. `levels` (0): a number of mazes with their starts, of which each episode has one, the same
 *   in every run; 0: a new one in each episode. `firstLevel` (0): where they begin among all, so that others can be held out.
 */
export const maze = defineEnvironment({
  id: 'Maze-v0',
  module: import.meta.url,
  settings: { side: integer(9, 'fields of a side, walls included; odd', { min: 5, max: 63 }), ...levelSettings },
  newer: ['levels', 'firstLevel'],
  presets: [
    gridPreset(1_000_000),
    // Memory of visited fields finds the goal sooner.
    gridPreset(400_000, { id: 'recurrent', parameters: { sequenceLength: 32 } }),
  ],
  state: ({ side, levels }) => gridState(side, levels),
  make: ({ side, levels, firstLevel }) => {
    if (side % 2 === 0) throw new InputError('Maze-v0.side', `${side}`, 'an odd number, since walls lie between fields')
    const trail = new Uint16Array(side * side)
    const draw: Parameters<typeof gridModel>[2] = (fields, begin, dice) => {
      fields.fill(Field.wall)
      carve(fields, side, trail, dice)
      fields[(side - 2) * side + side - 2] = Field.goal
      beginAnywhere(fields, side, begin, dice)
    }
    return gridModel(side, 4 * side * side, draw, { levels, firstLevel })
  },
})

/** Carves a maze out of walls by a random walk that backtracks along its trail when all neighbors have been visited. */
function carve(fields: Uint8Array, side: number, trail: Uint16Array, dice: Dice): void {
  let length = 1
  trail[0] = side + 1
  fields[side + 1] = Field.empty
  while (length > 0) {
    const at = trail[length - 1]!
    const [x, y] = [at % side, Math.floor(at / side)]
    const ways = [
      x + 2 < side - 1 ? 1 : 0,
      x - 2 > 0 ? -1 : 0,
      y + 2 < side - 1 ? side : 0,
      y - 2 > 0 ? -side : 0,
    ].filter((way) => way !== 0 && fields[at + 2 * way] === Field.wall)
    if (ways.length === 0) {
      length--
      continue
    }
    const way = ways[dice.below(ways.length)]!
    fields[at + way] = Field.empty
    fields[at + 2 * way] = Field.empty
    trail[length] = at + 2 * way
    length++
  }
}
