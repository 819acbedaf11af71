import { Stream } from '../../base/random.ts'
import { integer } from '../../base/settings.ts'
import { box, discrete } from '../../base/space.ts'
import { defineEnvironment, STEPS_MAX, withSettings } from '../environment.ts'

/**
 * Recall: one of `numCues` cues is shown, then nothing for `delay` steps, then the lane must name the cue. A pure memory task. The best
 * return is 1; chance returns 1 / numCues.
 *
 * A policy without memory cannot beat chance: its observation at the question is the same for every cue, so its answer is independent of
 * the cue. As the cue is uniform, any answer is right with probability 1 / numCues.
 *
 * - **Action space**: Discrete(numCues): the answer. Actions before the question have no effect.
 * - **Observation space**: Box of numCues + 1, each 0 or 1: the cue's element in the first step, the last element at the question,
 *   otherwise none. Observations do not count the steps.
 * - **Rewards**: 1 for the right answer, otherwise 0. Solved at a mean return of 0.95.
 * - **Starting state**: A uniform random cue.
 * - **Episode end**: Terminated by the answer, at step delay + 2, which is also the limit.
 */
export const recall = defineEnvironment({
  id: 'Recall-v0',
  module: import.meta.url,
  settings: {
    numCues: integer(4, 'number of possible cues', { min: 2, max: 65_536 }),
    delay: integer(10, 'steps without information between the cue and the question', { min: 0, max: STEPS_MAX - 2 }),
  },
  presets: [
    {
      run: { numLanes: 64, totalSteps: 60_000 },
      algorithm: withSettings('ppo', { numSteps: 24, numMinibatches: 8, updateEpochs: 4, learningRate: 4e-3 }),
      policy: withSettings('recurrent', { units: 32, hidden: [32], sequenceLength: 24, sharedTrunk: true }),
    },
  ],
  state: () => ({ cue: 'u32' }),
  make: ({ numCues, delay }) => {
    const width = numCues + 1
    return {
      observationSpace: box({ low: 0, high: 1, shape: [width] }),
      actionSpace: discrete(numCues),
      maxEpisodeSteps: delay + 2,
      returnThreshold: 0.95,
      draw({ cue }, n) {
        const fields = new Uint8Array(numCues).fill(3)
        fields[cue[n]!] = 2
        return { rows: 1, columns: numCues, fields }
      },
      reset({ state, observation, lane, episode, random }, rows, count) {
        for (let i = 0; i < count; i++) {
          const n = rows[i]!
          random.draw(Stream.reset, lane[n]!, episode[n]!, 0)
          const cue = Math.floor(random.uniform(0) * numCues)
          state.cue[n] = cue
          observation.fill(0, n * width, (n + 1) * width)
          observation[n * width + cue] = 1
        }
      },
      step({ state, observation, reward, terminated, action, step }, from, to) {
        observation.fill(0, from * width, to * width)
        for (let n = from; n < to; n++) {
          const isAnswer = step[n] === delay + 1
          reward[n] = isAnswer && action[n] === state.cue[n] ? 1 : 0
          terminated[n] = isAnswer ? 1 : 0
          if (step[n] === delay) observation[n * width + numCues] = 1
        }
      },
    }
  },
})
