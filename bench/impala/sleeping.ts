/** A built-in environment whose step takes a while in which nothing is computed, as one that lives on another machine. */
import { number, text } from '../../src/entries/settings.ts'
import { defineEnvironment, environmentFactory } from '../../src/index.ts'

const sleeper = new Int32Array(new SharedArrayBuffer(4))

export const sleeping = defineEnvironment({
  id: 'Sleeping-v0',
  module: import.meta.url,
  settings: {
    environment: text('CartPole-v1', 'the environment'),
    milliseconds: number(0, 'that a step of a thread sleeps, for all its lanes', { min: 0 }),
  },
  state: ({ environment }) => environmentFactory(environment)().state,
  make: ({ environment, milliseconds }) => {
    const whole = environmentFactory(environment)()
    const { observationSpace, actionSpace, maxEpisodeSteps, returnThreshold, reset, step } = whole
    return {
      ...{ observationSpace, actionSpace, maxEpisodeSteps, returnThreshold, reset },
      step(lanes, from, to) {
        if (milliseconds > 0 && to > from) Atomics.wait(sleeper, 0, 0, milliseconds)
        step(lanes, from, to)
      },
    }
  },
})
