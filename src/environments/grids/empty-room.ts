import { integer } from '../../base/settings.ts'
import { defineEnvironment } from '../environment.ts'
import { beginAnywhere, enclose, Field, gridModel, gridPreset, gridState } from './grid-rooms.ts'

/**
 * An empty room: find the goal in a corner from a random start. The idea is MiniGrid's Empty; the code is new.
 *
 * - **Action space**: Discrete(5): 0 turns left, 1 turns right, 2 walks forward, 3 picks up the key ahead, 4 opens the door ahead with
 *   the key.
 * - **Observation space**: Box of 126, each 0 or 1: for each of 5 × 5 fields from the lane's own row forward, left to right as it faces
 *   them, whether it has a wall, the goal, a key, a door, an open door; then whether the lane has the key. The lane sees over walls.
 * - **Rewards**: 1 − 0.9 · steps / `maxEpisodeSteps` at the goal, otherwise 0.
 * - **Starting state**: A random field other than the goal, which is at the bottom right, and a random direction.
 * - **Episode end**: Terminated at the goal. Truncated after `4 · side²` steps.
 * - **Arguments**: `side` (8), walls included.
 */
export const emptyRoom = defineEnvironment({
  id: 'EmptyRoom-v0',
  module: import.meta.url,
  settings: { side: integer(8, 'fields of a side, walls included', { min: 4, max: 63 }) },
  presets: [gridPreset(200_000)],
  state: ({ side }) => gridState(side),
  make: ({ side }) => {
    return gridModel(side, 4 * side * side, (fields, begin, dice) => {
      enclose(fields, side)
      fields[(side - 2) * side + side - 2] = Field.goal
      beginAnywhere(fields, side, begin, dice)
    })
  },
})
