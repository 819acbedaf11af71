/** An environment of somebody else, in a module of its own: where the lane stands on a line. */
import { integer } from '../../dist/src/entries/settings.js'
import { box, defineEnvironment, discrete } from '../../dist/src/index.js'

export const lineWorld = defineEnvironment({
  id: 'LineWorld-v0',
  module: import.meta.url,
  settings: { goal: integer(3, 'where the line ends', { min: 1 }) },
  state: () => ({ place: 'i32' }),
  make: ({ goal }) => ({
    observationSpace: box({ low: -10, high: 10, shape: [1] }),
    actionSpace: discrete(2),
    maxEpisodeSteps: 10,
    returnThreshold: null,
    reset({ state, observation }, rows, count) {
      for (let i = 0; i < count; i++) {
        state.place[rows[i]] = 0
        observation[rows[i]] = 0
      }
    },
    step({ state, observation, action, reward, terminated }, from, to) {
      for (let n = from; n < to; n++) {
        state.place[n] += action[n] === 1 ? 1 : -1
        observation[n] = state.place[n]
        reward[n] = -1
        terminated[n] = observation[n] >= goal ? 1 : 0
      }
    },
  }),
})
