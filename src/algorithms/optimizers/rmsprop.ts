import { defineOptimizer } from './define-optimizer.ts'

/** Decay of the running mean of the squared gradient. */
const ALPHA = 0.99

/** RMSprop (Tieleman and Hinton 2012), with optional momentum. */
export const rmsprop = defineOptimizer({
  id: 'rmsprop',
  takes: ['momentum'],
  moments: 2,
  step({ weights, moment, squareMoment, gradient, gradientScale, learningRate, settings, kernels, length }) {
    const { momentum, epsilon, weightDecay } = settings
    kernels.rmspropStep(
      ...([weights, moment, squareMoment, gradient] as const),
      ...([gradientScale, learningRate, ALPHA, momentum, epsilon, weightDecay, length] as const),
    )
  },
})
