/** An environment with a mask, over compiled files, as workers load it. */

import { choice, integer } from '../../dist/src/entries/settings.js'
import { box, defineEnvironment, discrete, Stream } from '../../dist/src/index.js'

/**
 * Of four gates those are open of which what is seen is low, and the lowest.
 * @param {ArrayLike<number>} seen
 * @param {number} gate
 */
export const isOpen = (seen, gate) => seen[gate] <= -0.25 || Math.min(...Array.from(seen)) === seen[gate]

/**
 * Sees four numbers at random; about a tenth of the states are terminal. With a trap the episode ends so in step 3 of lane 1, where all
 * gates are shut.
 */
export const gates = defineEnvironment({
  id: 'Gates-v0',
  module: import.meta.url,
  settings: {
    maxEpisodeSteps: integer(13, 'steps after which an episode is truncated', { min: 1 }),
    trap: choice('none', ['none', 'terminated', 'truncated'], 'how the episode ends'),
  },
  state: () => ({}),
  make: ({ maxEpisodeSteps, trap }) => {
    const look = (observation, actionMask, n, random) => {
      const seen = observation.subarray(4 * n, 4 * n + 4)
      for (let k = 0; k < 4; k++) seen[k] = random.uniform(k, -1, 1)
      for (let k = 0; k < 4; k++) actionMask[4 * n + k] = isOpen(seen, k) ? 1 : 0
    }
    return {
      observationSpace: box({ low: -1, high: 1, shape: [4] }),
      actionSpace: discrete(4),
      actionMask: true,
      maxEpisodeSteps,
      returnThreshold: null,
      reset({ observation, actionMask, lane, episode, random }, rows, count) {
        for (const n of rows.subarray(0, count)) {
          random.draw(Stream.reset, lane[n], episode[n], 0)
          look(observation, actionMask, n, random)
        }
      },
      step({ observation, actionMask, action, reward, terminated, truncated, lane, episode, step, random }, from, to) {
        for (let n = from; n < to; n++) {
          random.draw(Stream.step, lane[n], episode[n], step[n])
          look(observation, actionMask, n, random)
          reward[n] = observation[4 * n + action[n]]
          terminated[n] = observation[4 * n] > 0.8 ? 1 : 0
          if (trap === 'none' || lane[n] !== 1 || step[n] !== 3) continue
          actionMask.fill(0, 4 * n, 4 * n + 4)
          terminated[n] = trap === 'terminated' ? 1 : 0
          truncated[n] = trap === 'truncated' ? 1 : 0
        }
      },
    }
  },
})
