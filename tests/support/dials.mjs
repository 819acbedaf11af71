/** An environment of several choices, in a module of its own: the reward is 1 where both dials are set as the lane was shown. */
import { dict } from '../../dist/src/entries/environments.js'
import { defineEnvironment, discrete, multiDiscrete, Stream } from '../../dist/src/index.js'

const SIZES = [3, 4]

export const dials = defineEnvironment({
  id: 'Dials-v0',
  module: import.meta.url,
  settings: {},
  state: () => ({ shown: ['i32', 2] }),
  make: () => {
    const show = ({ state, observation, random, lane, episode }, n, step) => {
      random.draw(step === 0 ? Stream.reset : Stream.step, lane[n], episode[n], step)
      observation.fill(0, 7 * n, 7 * n + 7)
      for (const [k, size] of SIZES.entries()) {
        const dial = Math.floor(random.uniform(k) * size)
        state.shown[2 * n + k] = dial
        observation[7 * n + 3 * k + dial] = 1
      }
    }
    return {
      observationSpace: dict({ first: discrete(SIZES[0]), second: discrete(SIZES[1]) }),
      actionSpace: multiDiscrete(SIZES),
      maxEpisodeSteps: 10,
      returnThreshold: 9.5,
      reset(lanes, rows, count) {
        for (let i = 0; i < count; i++) show(lanes, rows[i], 0)
      },
      step(lanes, from, to) {
        const { state, action, reward, step } = lanes
        for (let n = from; n < to; n++) {
          reward[n] = action[2 * n] === state.shown[2 * n] && action[2 * n + 1] === state.shown[2 * n + 1] ? 1 : 0
          show(lanes, n, step[n] + 1)
        }
      },
    }
  },
})
