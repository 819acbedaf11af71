/** A built-in environment whose step takes a while in which nothing is computed, as one that lives on another machine. */
import { number, text } from '../../src/entries/settings.ts'
import { defineEnvironment, environmentFactory } from '../../src/index.ts'

const sleeper = new Int32Array(new SharedArrayBuffer(4))
/** A sleep is longer than was asked for by a tenth of a millisecond and more: a thread sleeps when so many milliseconds are due. */
const LEAST = 0.5

export const sleeping = defineEnvironment({
  id: 'Sleeping-v0',
  module: import.meta.url,
  settings: {
    environment: text('CartPole-v1', 'the environment'),
    milliseconds: number(0, 'that a step of a thread sleeps on average, for all its lanes', { min: 0 }),
  },
  state: ({ environment }) => environmentFactory(environment)().state,
  make: ({ environment, milliseconds }) => {
    const whole = environmentFactory(environment)()
    const { observationSpace, actionSpace, maxEpisodeSteps, returnThreshold, reset, step } = whole
    let due = 0
    return {
      ...{ observationSpace, actionSpace, maxEpisodeSteps, returnThreshold, reset },
      step(lanes, from, to) {
        if (to > from) due += milliseconds
        if (due >= LEAST) {
          const start = performance.now()
          Atomics.wait(sleeper, 0, 0, due)
          due -= performance.now() - start
        }
        step(lanes, from, to)
      },
    }
  },
})
