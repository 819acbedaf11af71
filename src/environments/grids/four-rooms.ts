import { integer } from '../../base/settings.ts'
import { defineEnvironment } from '../environment.ts'
import { beginAnywhere, emptyField, enclose, Field, gridModel, gridPreset, gridState } from './grid-rooms.ts'

/**
 * Four rooms with a gap in each of the walls between them: find the goal (Sutton, Precup, Singh, "Between MDPs and Semi-MDPs", 1999).
 *
 * - **Action space**: Discrete(5): 0 turns left, 1 turns right, 2 walks forward, 3 picks up the key ahead, 4 opens the door ahead with
 *   the key.
 * - **Observation space**: Box of 126, each 0 or 1: for each of 5 × 5 fields from the lane's own row forward, left to right as it faces
 *   them, whether it has a wall, the goal, a key, a door, an open door; then whether the lane has the key. The lane sees over walls.
 * - **Rewards**: 1 − 0.9 · steps / `maxEpisodeSteps` at the goal, otherwise 0.
 * - **Starting state**: Random gaps, goal, lane and direction.
 * - **Episode end**: Terminated at the goal. Truncated after `4 · side²` steps.
 * - **Arguments**: `side` (11), walls included.
 */
export const fourRooms = defineEnvironment({
  id: 'FourRooms-v0',
  module: import.meta.url,
  settings: { side: integer(11, 'fields of a side, walls included', { min: 7, max: 63 }) },
  presets: [
    gridPreset(2_000_000),
    // Memory of visited fields finds the goal sooner.
    gridPreset(400_000, { id: 'recurrent', parameters: { sequenceLength: 32 } }),
  ],
  state: ({ side }) => gridState(side),
  make: ({ side }) => {
    const middle = Math.floor(side / 2)
    return gridModel(side, 4 * side * side, (fields, begin, dice) => {
      enclose(fields, side)
      for (let i = 1; i < side - 1; i++) {
        fields[middle * side + i] = Field.wall
        fields[i * side + middle] = Field.wall
      }
      const [near, far] = [middle - 1, side - middle - 2] // Fields of a wall before and behind the crossing.
      fields[middle * side + 1 + dice.below(near)] = Field.empty
      fields[middle * side + middle + 1 + dice.below(far)] = Field.empty
      fields[(1 + dice.below(near)) * side + middle] = Field.empty
      fields[(middle + 1 + dice.below(far)) * side + middle] = Field.empty
      fields[emptyField(fields, dice)] = Field.goal
      beginAnywhere(fields, side, begin, dice)
    })
  },
})
