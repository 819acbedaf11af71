/** An algorithm of somebody else, in a module of its own: PPO with one rate for the whole training, in one minibatch. */
import { defineAlgorithm, number, ppo, whole } from '../../dist/src/index.js'

export const steadyPpo = defineAlgorithm({
  id: 'steady-ppo',
  module: import.meta.url,
  settings: {
    rate: number(1e-3, 'learning rate of every update', { above: 0 }),
    steps: whole(16, 'steps of each lane between two updates', { min: 1 }),
  },
  metrics: ppo.metrics,
  make({ rate, steps }) {
    const settings = { learningRate: rate, learningRateSchedule: 'constant', numSteps: steps, numMinibatches: 1 }
    return ppo({ ...settings, updateEpochs: 1 })
  },
})
