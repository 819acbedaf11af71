import { boolean, integer, number } from '../../src/base/settings.ts'
import { box, discrete } from '../../src/base/space.ts'
import { defineEnvironment } from '../../src/environments/environment.ts'

/**
 * An environment that counts: a lane observes (steps so far + 1, lane number + 1), so every observation identifies its
 * lane. Lanes with odd numbers terminate after `terminalSteps`; others run to the time limit. Rewards are 1.
 */
export const counter = defineEnvironment({
  id: 'Counter-v0',
  module: import.meta.url,
  settings: {
    terminalSteps: integer(3, 'steps to the terminal state of odd lanes', { min: 1 }),
    maxEpisodeSteps: integer(5, 'steps after which an episode is truncated', { min: 1 }),
    poison: number(-1, 'the step in which lane 0 writes NaN'),
    isNarrow: boolean(false, 'whether lanes see the steps alone'),
  },
  state: () => ({ count: 'i32' }),
  make: ({ terminalSteps, maxEpisodeSteps, poison, isNarrow }) => {
    const write = (observation: Float32Array, n: number, steps: number, lane: number): void => {
      observation.set(isNarrow ? [steps] : [steps, lane + 1], isNarrow ? n : 2 * n)
    }
    return {
      observationSpace: box({ low: 0, high: Number.POSITIVE_INFINITY, shape: [isNarrow ? 1 : 2] }),
      actionSpace: discrete(2),
      maxEpisodeSteps,
      returnThreshold: null,
      reset({ state, observation, lane }, rows, count) {
        for (let i = 0; i < count; i++) {
          const n = rows[i]!
          state.count[n] = 1
          write(observation, n, 1, lane[n]!)
        }
      },
      step({ state, observation, reward, terminated, lane, step }, from, to) {
        for (let n = from; n < to; n++) {
          state.count[n] = state.count[n]! + 1
          write(observation, n, lane[n] === 0 && step[n] === poison ? Number.NaN : state.count[n]!, lane[n]!)
          reward[n] = 1
          terminated[n] = lane[n]! % 2 === 1 && step[n]! + 1 >= terminalSteps ? 1 : 0
        }
      },
    }
  },
})
