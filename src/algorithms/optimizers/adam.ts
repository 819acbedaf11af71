import { defineOptimizer } from './define-optimizer.ts'

/** Adam (Kingma and Ba 2015). With weight decay it is AdamW (Loshchilov and Hutter 2019). */
export const adam = defineOptimizer({
  id: 'adam',
  takes: ['beta1', 'beta2'],
  moments: 2,
  powersOf: ['beta1', 'beta2'],
  step({ weights, moment, squareMoment, gradient, gradientScale, learningRate, settings, powers, kernels, length }) {
    const [bias1, bias2] = [1 - powers[0]!, 1 - powers[1]!]
    const [first, second] = [moment, squareMoment]
    kernels.adamStep(weights, first, second, gradient, gradientScale, learningRate, settings, bias1, bias2, length)
  },
})
