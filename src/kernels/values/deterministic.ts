/** Actions of a deterministic actor, within ±1, and noise on them (Fujimoto, van Hoof, Meger 2018, "TD3"); `width` numbers per row. */

const HALF_LOG_TWO_PI = 0.5 * Math.log(2 * Math.PI)

/** Adds `deviation` times standard normal numbers to actions, cut to ±clip before they are added; the sum is cut to ±1. */
export function addActionNoise(
  unit: Float32Array,
  normal: Float32Array,
  deviation: number,
  clip: number,
  numRows: number,
  width: number,
): void {
  for (let i = 0; i < numRows * width; i++) {
    const noise = Math.min(clip, Math.max(-clip, deviation * normal[i]!))
    unit[i] = Math.min(1, Math.max(-1, unit[i]! + noise))
  }
}

/** Actions uniform in ±1 from uniform numbers in [0, 1). */
export function spreadActions(unit: Float32Array, uniform: Float32Array, numRows: number, width: number): void {
  for (let i = 0; i < numRows * width; i++) unit[i] = 2 * uniform[i]! - 1
}

/**
 * Computes log p of the environment's actions from row `from` on, and the entropy, in nats; results start at row 0. Where `isUniform`, p is
 * uniform over all actions within the bounds. Otherwise it is the Gaussian around the actor's actions `mean`, before its samples are
 * clipped to the bounds.
 */
export function noisyEvaluate(
  logprob: Float32Array,
  entropy: Float32Array,
  action: Float32Array,
  mean: Float32Array,
  low: Float32Array,
  high: Float32Array,
  isUniform: boolean,
  deviation: number,
  numRows: number,
  width: number,
  from: number,
): void {
  for (let row = 0; row < numRows; row++) {
    let sum = 0
    let spread = 0
    for (let k = 0; k < width; k++) {
      const half = (high[k]! - low[k]!) / 2
      const logHalf = Math.log(half)
      if (isUniform) {
        sum -= Math.LN2 + logHalf
        spread += Math.LN2 + logHalf
        continue
      }
      const a = (action[(from + row) * width + k]! - low[k]!) / half - 1
      const epsilon = (a - mean[row * width + k]!) / deviation
      const logDeviation = Math.log(deviation) + logHalf
      sum += -0.5 * epsilon * epsilon - HALF_LOG_TWO_PI - logDeviation
      spread += 0.5 + HALF_LOG_TWO_PI + logDeviation
    }
    logprob[row] = sum
    entropy[row] = spread
  }
}

/** The gradient by the actor's outputs before tanh, from that by its actions. */
export function tanhBackward(
  dOutputs: Float32Array,
  dUnit: Float32Array,
  unit: Float32Array,
  numRows: number,
  width: number,
): void {
  for (let i = 0; i < numRows * width; i++) dOutputs[i] = dUnit[i]! * (1 - unit[i]! * unit[i]!)
}
