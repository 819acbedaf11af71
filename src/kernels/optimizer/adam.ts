/** β₁, β₂, ε and the decay of the formulas below. */
export interface AdamSettings {
  readonly beta1: number
  readonly beta2: number
  readonly epsilon: number
  readonly weightDecay: number
}

/**
 * One step of Adam (Kingma and Ba 2015, algorithm 1) with decoupled weight decay (Loshchilov and Hutter 2019, AdamW):
 *
 *     g = gradient · gradientScale
 *     m = β₁ m + (1 − β₁) g        v = β₂ v + (1 − β₂) g²
 *     w = w − learningRate · (m / correction₁ / (√(v / correction₂) + ε) + weightDecay · w)
 *
 * correction_i = 1 − β_i^step comes from the caller, who keeps the powers as running products. All columns are `length` long.
 */
export function adamStep(
  weight: Float32Array,
  moment: Float32Array,
  squareMoment: Float32Array,
  gradient: Float32Array,
  gradientScale: number,
  learningRate: number,
  settings: AdamSettings,
  correction1: number,
  correction2: number,
  length: number,
): void {
  const { beta1, beta2, epsilon, weightDecay } = settings
  for (let i = 0; i < length; i++) {
    const g = gradient[i]! * gradientScale
    moment[i] = beta1 * moment[i]! + (1 - beta1) * g
    squareMoment[i] = beta2 * squareMoment[i]! + (1 - beta2) * g * g
    const direction = moment[i]! / correction1 / (Math.sqrt(squareMoment[i]! / correction2) + epsilon)
    weight[i] = weight[i]! - learningRate * (direction + weightDecay * weight[i]!)
  }
}

/** √ Σ x² over `length` elements, in f64. */
export function globalNorm(x: Float32Array, length: number): number {
  let sum = 0
  for (let i = 0; i < length; i++) sum += x[i]! * x[i]!
  return Math.sqrt(sum)
}
