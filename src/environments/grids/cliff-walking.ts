import { boolean, integer } from '../../base/settings.ts'
import { defineEnvironment, STEPS_MAX, withSettings } from '../environment.ts'
import { listOutcomes, TRANSITION_STATE, type Transitions, transitionModel } from './transitions.ts'

const ROWS = 4
const COLUMNS = 12
const START = 3 * COLUMNS
const GOAL = ROWS * COLUMNS - 1
/** Up, right, down, left, as changes of row and column. */
const MOVES = [
  [-1, 0],
  [0, 1],
  [1, 0],
  [0, -1],
] as const

/**
 * CliffWalking-v1 with Gymnasium's transition table: walk along a cliff, from the bottom left to the bottom right of a grid of 4 × 12
 * fields (Sutton and Barto, "Reinforcement Learning: An Introduction", example 6.6). Unlike Gymnasium's, it has a time limit, so that
 * every episode ends.
 *
 * - **Action space**: Discrete(4): 0 up, 1 right, 2 down, 3 left. If it is slippery, the lane moves in this direction or to either side,
 *   each with probability 1/3.
 * - **Observation space**: Box of 48, one for each field, row by row: 1 for the lane's field, otherwise 0.
 * - **Rewards**: −1 for every step; −100 for a step off the cliff, which returns the lane to the start. The best return is −13.
 * - **Starting state**: The bottom left.
 * - **Episode end**: Terminated at the bottom right. Truncated after `maxEpisodeSteps` (500) steps.
 * - **Arguments**: `isSlippery` (false): Gymnasium's CliffWalkingSlippery-v1 has true.
 */
export const cliffWalking = defineEnvironment({
  id: 'CliffWalking-v1',
  module: import.meta.url,
  settings: {
    maxEpisodeSteps: integer(500, 'steps after which an episode is truncated', { min: 1, max: STEPS_MAX }),
    isSlippery: boolean(false, 'whether the player may slip to either side of the chosen direction'),
  },
  presets: [
    {
      run: { numLanes: 64, totalSteps: 400_000 },
      algorithm: withSettings('ppo', {
        numSteps: 32,
        numMinibatches: 8,
        updateEpochs: 4,
        learningRate: 3e-3,
        gamma: 0.99,
        entropyCoef: 0.5, // With 0 the lanes stand still, far from the cliff.
        valueCoef: 0.01, // Returns are in the hundreds: with more, the critic's gradient dominates the clipping.
      }),
      policy: withSettings('mlp', { activation: 'relu' }),
    },
  ],
  state: () => TRANSITION_STATE,
  make: ({ maxEpisodeSteps, isSlippery }) => ({
    ...transitionModel(cliffTransitions(isSlippery), {
      digits: [ROWS * COLUMNS],
      maxEpisodeSteps,
      returnThreshold: null,
    }),
    draw({ at }, n) {
      const fields = new Uint8Array(ROWS * COLUMNS).fill(3)
      fields.fill(10, START + 1, GOAL)
      fields[GOAL] = 5
      fields[at[n]!] = 4
      return { rows: ROWS, columns: COLUMNS, fields }
    },
  }),
})

export function cliffTransitions(isSlippery: boolean): Transitions {
  const goTo = (field: number, action: number, probability: number) => {
    const [down, right] = MOVES[action]!
    const row = Math.min(Math.max(Math.floor(field / COLUMNS) + down, 0), ROWS - 1)
    const column = Math.min(Math.max((field % COLUMNS) + right, 0), COLUMNS - 1)
    const next = row * COLUMNS + column
    const falls = next > START && next < GOAL
    return falls
      ? { probability, next: START, reward: -100, terminated: false }
      : { probability, next, reward: -1, terminated: next === GOAL }
  }
  return {
    numStates: ROWS * COLUMNS,
    numActions: 4,
    starts: [START],
    outcomes: listOutcomes(ROWS * COLUMNS, 4, (field, action) =>
      isSlippery ? [3, 0, 1].map((turn) => goTo(field, (action + turn) % 4, 1 / 3)) : [goTo(field, action, 1)],
    ),
  }
}
