/**
 * One step of RMSprop (Tieleman and Hinton 2012, lecture 6e; torch.optim.RMSprop, not centered) with momentum and decoupled
 * weight decay:
 *
 *     g = gradient · gradientScale
 *     v = α v + (1 − α) g²
 *     m = momentum · m + g / (√v + ε)
 *     w = w − learningRate · (m + weightDecay · w)
 *
 * All columns are `length` long.
 */
export function rmspropStep(
  weight: Float32Array,
  moment: Float32Array,
  squareMoment: Float32Array,
  gradient: Float32Array,
  gradientScale: number,
  learningRate: number,
  alpha: number,
  momentum: number,
  epsilon: number,
  weightDecay: number,
  length: number,
): void {
  for (let i = 0; i < length; i++) {
    const g = gradient[i]! * gradientScale
    squareMoment[i] = alpha * squareMoment[i]! + (1 - alpha) * g * g
    moment[i] = momentum * moment[i]! + g / (Math.sqrt(squareMoment[i]!) + epsilon)
    weight[i] = weight[i]! - learningRate * (moment[i]! + weightDecay * weight[i]!)
  }
}
