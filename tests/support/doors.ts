import { integer } from '../../src/base/settings.ts'
import { box, multiDiscrete } from '../../src/base/space.ts'
import { defineEnvironment } from '../../src/environments/environment.ts'

/**
 * An environment with three doors per action dimension: in each step one is locked, determined by step and lane. A lane
 * observes the locked doors; the reward is 1 if it tried neither. `trap` is the step after which lane 1 has no legal
 * action.
 */
export const doors = defineEnvironment({
  id: 'Doors-v0',
  module: import.meta.url,
  settings: {
    maxEpisodeSteps: integer(7, 'steps after which an episode is truncated', { min: 1 }),
    trap: integer(-1, 'the step after which all doors of lane 1 are locked'),
  },
  state: () => ({ locked: ['i32', 2] }),
  make: ({ maxEpisodeSteps, trap }) => {
    const close = (locked: Int32Array, seen: Float32Array, mask: Uint8Array, n: number, step: number, lane: number) => {
      for (let k = 0; k < 2; k++) {
        const door = (step * (k + 1) + lane) % 3
        locked[2 * n + k] = door
        seen[2 * n + k] = door
        for (let j = 0; j < 3; j++) mask[6 * n + 3 * k + j] = j === door ? 0 : 1
      }
    }
    return {
      observationSpace: box({ low: 0, high: 2, shape: [2] }),
      actionSpace: multiDiscrete([3, 3]),
      actionMask: true,
      maxEpisodeSteps,
      returnThreshold: null,
      reset({ state, observation, actionMask, lane }, rows, count) {
        for (let i = 0; i < count; i++) close(state.locked, observation, actionMask, rows[i]!, 0, lane[rows[i]!]!)
      },
      step({ state, observation, actionMask, action, reward, lane, step }, from, to) {
        for (let n = from; n < to; n++) {
          const tried = action[2 * n] === state.locked[2 * n] || action[2 * n + 1] === state.locked[2 * n + 1]
          reward[n] = tried ? 0 : 1
          close(state.locked, observation, actionMask, n, step[n]! + 1, lane[n]!)
          if (step[n] === trap && lane[n] === 1) actionMask.fill(0, 6 * n, 6 * n + 6)
        }
      },
    }
  },
})
