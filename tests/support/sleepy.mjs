/** CartPole-v1 whose steps take a while, each another while, and may fail at some step of a worker. */
import { integer, number } from '../../dist/src/entries/settings.js'
import { cartPole, defineEnvironment } from '../../dist/src/index.js'

const sleeper = new Int32Array(new SharedArrayBuffer(4))
let calls = 0

/** The same in every run: of a number of 32 bits that is stepped on. */
let state = 1
function chance() {
  state = (Math.imul(state, 1_103_515_245) + 12_345) >>> 0
  return state / 2 ** 32
}

export const sleepy = defineEnvironment({
  id: 'Sleepy-v0',
  module: import.meta.url,
  settings: {
    sleep: number(0, 'milliseconds that a step takes at most', { min: 0 }),
    failsAt: integer(0, 'call of step in a thread that throws; 0: none', { min: 0 }),
    maxEpisodeSteps: integer(500, 'steps after which an episode is truncated', { min: 1 }),
  },
  state: () => cartPole().state,
  make: ({ sleep, failsAt, maxEpisodeSteps }) => {
    const whole = cartPole({ maxEpisodeSteps })
    const { observationSpace, actionSpace, returnThreshold, reset, step } = whole
    return {
      ...{ observationSpace, actionSpace, maxEpisodeSteps, returnThreshold, reset },
      step(lanes, from, to) {
        calls++
        if (calls === failsAt) throw new Error('the cart is broken')
        if (sleep > 0) Atomics.wait(sleeper, 0, 0, chance() * sleep)
        step(lanes, from, to)
      },
    }
  },
})
