import type { EvaluatedRows, RecordedRows, RowDerivatives } from './rows.ts'

/**
 * The loss of advantage actor-critic (Mnih et al. 2016, algorithm S3, all lanes at once) with its gradient, over the rows of one
 * block. With the normalized advantage Â = (A − mean) · scale, through which no gradient passes:
 *
 *     policy loss   −Â logprob
 *     value loss    ½ (v − R)²
 *     loss          Σ weight · (policy loss + valueCoef · value loss − entropyCoef · entropy)
 *
 * `weight` is one over the rows of the whole minibatch. The block's logprob, entropy, value and their gradients start at
 * row 0; the minibatch's columns at row `from`.
 *
 * `sums` gets the block's sums added, from element `sumsFrom` on, in the order of `A2cSum`.
 */
export const A2cSum = { policyLoss: 0, valueLoss: 1, entropy: 2, length: 3 } as const

/** Numbers of the formulas above: mean and scale, the coefficients, and the weight of a row. */
export interface A2cLossSettings {
  readonly advantageMean: number
  readonly advantageScale: number
  readonly entropyCoef: number
  readonly valueCoef: number
  readonly weight: number
}

export function a2cLoss(
  derivatives: RowDerivatives,
  sums: Float64Array,
  evaluated: EvaluatedRows,
  batch: RecordedRows,
  settings: A2cLossSettings,
  numRows: number,
  from: number,
  sumsFrom: number,
): void {
  const { dLogprob, dEntropy, dValue } = derivatives
  const { logprob, entropy, value } = evaluated
  const { advantage, return: returns } = batch
  const { advantageMean, advantageScale, entropyCoef, valueCoef, weight } = settings
  let policyLossSum = 0
  let valueLossSum = 0
  let entropySum = 0
  for (let row = 0; row < numRows; row++) {
    const i = from + row
    const normalized = (advantage[i]! - advantageMean) * advantageScale
    const error = value[row]! - returns[i]!
    dLogprob[row] = -weight * normalized
    dEntropy[row] = -weight * entropyCoef
    dValue[row] = weight * valueCoef * error
    policyLossSum -= normalized * logprob[row]!
    valueLossSum += 0.5 * error * error
    entropySum += entropy[row]!
  }
  sums[sumsFrom + A2cSum.policyLoss] = sums[sumsFrom + A2cSum.policyLoss]! + policyLossSum
  sums[sumsFrom + A2cSum.valueLoss] = sums[sumsFrom + A2cSum.valueLoss]! + valueLossSum
  sums[sumsFrom + A2cSum.entropy] = sums[sumsFrom + A2cSum.entropy]! + entropySum
}
