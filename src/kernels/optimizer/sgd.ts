/**
 * One step of stochastic gradient descent with momentum (torch.optim.SGD without dampening) and decoupled weight decay
 * (Loshchilov and Hutter 2019, SGDW):
 *
 *     g = gradient · gradientScale
 *     m = momentum · m + g
 *     w = w − learningRate · (m + weightDecay · w)
 *
 * All columns are `length` long.
 */
export function sgdStep(
  weight: Float32Array,
  moment: Float32Array,
  gradient: Float32Array,
  gradientScale: number,
  learningRate: number,
  momentum: number,
  weightDecay: number,
  length: number,
): void {
  for (let i = 0; i < length; i++) {
    moment[i] = momentum * moment[i]! + gradient[i]! * gradientScale
    weight[i] = weight[i]! - learningRate * (moment[i]! + weightDecay * weight[i]!)
  }
}
