/**
 * Environments that get stuck while the file STUCK is there: the step of the thread STUCK_THREAD never returns, the reply never
 * comes.
 */
import { existsSync } from 'node:fs'
import { workerData } from 'node:worker_threads'
import { box, defineEnvironment, discrete } from '../../dist/src/index.js'

const isCulprit = (workerData?.index ?? 0) === Number(process.env.STUCK_THREAD)
const isStuck = () => existsSync(process.env.STUCK)
const sleeper = new Int32Array(new SharedArrayBuffer(4))
let steps = 0

export const stuckWorld = defineEnvironment({
  id: 'StuckWorld-v0',
  module: import.meta.url,
  settings: {},
  state: () => ({ position: 'f32' }),
  make: () => ({
    observationSpace: box({ low: -99, high: 99, shape: [1] }),
    actionSpace: discrete(2),
    maxEpisodeSteps: 10,
    returnThreshold: null,
    reset({ state, observation }, rows, count) {
      for (let i = 0; i < count; i++) observation[rows[i]] = state.position[rows[i]] = 0
    },
    step({ state, observation, action, reward }, from, to) {
      if (++steps > 40 && isCulprit) while (isStuck()) Atomics.wait(sleeper, 0, 0, 10)
      for (let n = from; n < to; n++) {
        state.position[n] += action[n] === 1 ? 1 : -1
        observation[n] = reward[n] = state.position[n]
      }
    },
  }),
})
