import { defineOptimizer } from './define-optimizer.ts'

/** Stochastic gradient descent, with optional momentum. */
export const sgd = defineOptimizer({
  id: 'sgd',
  takes: ['momentum'],
  moments: 1,
  step({ weights, moment, gradient, gradientScale, learningRate, settings, kernels, length }) {
    const { momentum, weightDecay } = settings
    kernels.sgdStep(weights, moment, gradient, gradientScale, learningRate, momentum, weightDecay, length)
  },
})
