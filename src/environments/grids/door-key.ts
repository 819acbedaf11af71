import { integer } from '../../base/settings.ts'
import { defineEnvironment } from '../environment.ts'
import { beginAnywhere, emptyField, enclose, Field, gridModel, gridPreset, gridState } from './grid-rooms.ts'

/**
 * A door and its key: pick up the key on the near side of a wall, open the wall's door, and reach the goal on the far side. The idea is
 * MiniGrid's DoorKey; the code is new.
 *
 * - **Action space**: Discrete(5): 0 turns left, 1 turns right, 2 walks forward, 3 picks up the key ahead, 4 opens the door ahead with
 *   the key.
 * - **Observation space**: Box of 126, each 0 or 1: for each of 5 × 5 fields from the lane's own row forward, left to right as it faces
 *   them, whether it has a wall, the goal, a key, a door, an open door; then whether the lane has the key. The lane sees over walls.
 * - **Rewards**: 1 − 0.9 · steps / `maxEpisodeSteps` at the goal, otherwise 0.
 * - **Starting state**: Random wall, door, key and lane; the lane and the key are left of the wall, the goal is at the bottom right.
 * - **Episode end**: Terminated at the goal. Truncated after `4 · side²` steps.
 * - **Arguments**: `side` (8), walls included.
 */
export const doorKey = defineEnvironment({
  id: 'DoorKey-v0',
  module: import.meta.url,
  settings: { side: integer(8, 'fields of a side, walls included', { min: 5, max: 63 }) },
  presets: [gridPreset(1_000_000)],
  state: ({ side }) => gridState(side),
  make: ({ side }) => {
    return gridModel(side, 4 * side * side, (fields, begin, dice) => {
      enclose(fields, side)
      const wall = 2 + dice.below(side - 4)
      for (let y = 1; y < side - 1; y++) fields[y * side + wall] = Field.wall
      fields[(1 + dice.below(side - 2)) * side + wall] = Field.door
      fields[(side - 2) * side + side - 2] = Field.goal
      const isLeft = (at: number) => at % side < wall
      fields[emptyField(fields, dice, isLeft)] = Field.key
      beginAnywhere(fields, side, begin, dice, isLeft)
    })
  },
})
