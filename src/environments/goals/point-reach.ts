import { Stream } from '../../base/random.ts'
import { integer, number } from '../../base/settings.ts'
import { box } from '../../base/space.ts'
import { isGoalReached } from '../../kernels/bind.ts'
import { defineEnvironment, STEPS_MAX, withSettings } from '../environment.ts'

const STEP = 0.1

/** Fields of a side of the picture, and the field of a coordinate. */
const SIDE = 21
const cell = (x: number) => Math.min(Math.floor(((x + 1) / 2) * SIDE), SIDE - 1)

/**
 * PointReach: a point in a square moves to a goal and stays there, for a reward that says only whether it is there: like Gymnasium
 * Robotics' reaching tasks, which are the common ones for hindsight experience replay.
 *
 * - **Action space**: Box of 2: the move in each direction, in [−1, 1], times 0.1. Larger moves are clipped, and the square's edge stops
 *   the point.
 * - **Observation space**: Box of 4 in [−1, 1]: the point, then the goal.
 * - **Rewards**: −1 for every step after which the point is more than `tolerance` from the goal, otherwise 0.
 * - **Starting state**: Point and goal uniform in the square.
 * - **Episode end**: Truncated after `maxEpisodeSteps` (50) steps.
 */
export const pointReach = defineEnvironment({
  id: 'PointReach-v0',
  module: import.meta.url,
  settings: {
    maxEpisodeSteps: integer(50, 'steps after which an episode is truncated', { min: 1, max: STEPS_MAX }),
    tolerance: number(0.05, 'distance at which the goal is reached', { min: 0, max: 2 }),
  },
  presets: [
    {
      run: { numLanes: 8, totalSteps: 40_000 },
      algorithm: withSettings('td3', {
        numSteps: 16,
        gradientSteps: 64,
        learningStarts: 1000,
        learningRate: 1e-3,
        gamma: 0.95,
      }),
      policy: withSettings('td3Network', { hidden: [64, 64] }),
    },
  ],
  state: () => ({ place: ['f32', 2], goal: ['f32', 2] }),
  make: ({ maxEpisodeSteps, tolerance }) => {
    const goal = { achieved: 0, desired: 2, width: 2, tolerance, ends: false }
    return {
      observationSpace: box({ low: -1, high: 1, shape: [4] }),
      actionSpace: box({ low: -1, high: 1, shape: [2] }),
      maxEpisodeSteps,
      returnThreshold: null,
      goal,
      draw({ place, goal }, n) {
        const fields = new Uint8Array(SIDE * SIDE)
        const fieldOf = (x: number, y: number) => cell(-y) * SIDE + cell(x)
        fields[fieldOf(goal[2 * n]!, goal[2 * n + 1]!)] = 3
        fields[fieldOf(place[2 * n]!, place[2 * n + 1]!)] = 2
        return { rows: SIDE, columns: SIDE, fields }
      },
      reset({ state, observation, lane, episode, random }, rows, count) {
        for (let i = 0; i < count; i++) {
          const n = rows[i]!
          random.draw(Stream.reset, lane[n]!, episode[n]!, 0)
          for (let k = 0; k < 2; k++) {
            state.place[2 * n + k] = random.uniform(k, -1, 1)
            state.goal[2 * n + k] = random.uniform(2 + k, -1, 1)
            observation[4 * n + k] = state.place[2 * n + k]!
            observation[4 * n + 2 + k] = state.goal[2 * n + k]!
          }
        }
      },
      step({ state, observation, reward, action }, from, to) {
        for (let n = from; n < to; n++) {
          for (let k = 0; k < 2; k++) {
            const move = STEP * Math.min(Math.max(action[2 * n + k]!, -1), 1)
            state.place[2 * n + k] = Math.min(Math.max(state.place[2 * n + k]! + move, -1), 1)
            observation[4 * n + k] = state.place[2 * n + k]!
            observation[4 * n + 2 + k] = state.goal[2 * n + k]!
          }
          reward[n] = isGoalReached(observation, 4 * n, goal) ? 0 : -1
        }
      },
    }
  },
})
