import type { EvaluatedRows, RecordedRows, RowDerivatives } from './rows.ts'

/**
 * The clipped surrogate of PPO (Schulman, Wolski, Dhariwal, Radford, Klimov 2017, eq. 7 and 9) with its gradient, over the
 * rows of one block. With ratio r = exp(logprob − oldLogprob) and the normalized advantage Â = (A − mean) · scale:
 *
 *     policy loss   max(−Â r, −Â clip(r, 1 − ε, 1 + ε))
 *     value loss    ½ max((v − R)², (clip(v, v_old ± c) − R)²)          c = Infinity: no value clipping
 *     loss          Σ weight · (policy loss + valueCoef · value loss − entropyCoef · entropy)
 *
 * `weight` is one over the rows of the whole minibatch. The block's logprob, entropy, value and their gradients start at
 * row 0; the minibatch's columns at row `from`.
 *
 * `sums` gets the block's sums added, from element `sumsFrom` on, in the order of `PpoSum`.
 */
export const PpoSum = { policyLoss: 0, valueLoss: 1, entropy: 2, approxKl: 3, clipped: 4, length: 5 } as const

/** Numbers of the formulas above: mean and scale, ε, c, the coefficients, and the weight of a row. */
export interface PpoLossSettings {
  readonly advantageMean: number
  readonly advantageScale: number
  readonly clipCoef: number
  readonly clipValue: number
  readonly entropyCoef: number
  readonly valueCoef: number
  readonly weight: number
}

export function ppoLoss(
  derivatives: RowDerivatives,
  sums: Float64Array,
  evaluated: EvaluatedRows,
  batch: RecordedRows,
  settings: PpoLossSettings,
  numRows: number,
  from: number,
  sumsFrom: number,
): void {
  const { dLogprob, dEntropy, dValue } = derivatives
  const { logprob, entropy, value } = evaluated
  const { logprob: oldLogprob, value: oldValue, advantage, return: returns } = batch
  const { advantageMean, advantageScale, clipCoef, clipValue, entropyCoef, valueCoef, weight } = settings
  let policyLossSum = 0
  let valueLossSum = 0
  let entropySum = 0
  let klSum = 0
  let clipped = 0
  for (let row = 0; row < numRows; row++) {
    const i = from + row
    const logRatio = logprob[row]! - oldLogprob[i]!
    const ratio = Math.exp(logRatio)
    const normalized = (advantage[i]! - advantageMean) * advantageScale
    const surrogate = -normalized * ratio
    const clippedSurrogate = -normalized * Math.min(Math.max(ratio, 1 - clipCoef), 1 + clipCoef)
    dLogprob[row] = surrogate >= clippedSurrogate ? weight * surrogate : 0
    dEntropy[row] = -weight * entropyCoef

    const error = value[row]! - returns[i]!
    const change = value[row]! - oldValue[i]!
    const clippedError = oldValue[i]! + Math.min(Math.max(change, -clipValue), clipValue) - returns[i]!
    const unclipped = Math.abs(change) <= clipValue || error * error >= clippedError * clippedError
    dValue[row] = unclipped ? weight * valueCoef * error : 0

    policyLossSum += Math.max(surrogate, clippedSurrogate)
    valueLossSum += 0.5 * (unclipped ? error * error : clippedError * clippedError)
    entropySum += entropy[row]!
    klSum += ratio - 1 - logRatio
    if (Math.abs(ratio - 1) > clipCoef) clipped++
  }
  sums[sumsFrom + PpoSum.policyLoss] = sums[sumsFrom + PpoSum.policyLoss]! + policyLossSum
  sums[sumsFrom + PpoSum.valueLoss] = sums[sumsFrom + PpoSum.valueLoss]! + valueLossSum
  sums[sumsFrom + PpoSum.entropy] = sums[sumsFrom + PpoSum.entropy]! + entropySum
  sums[sumsFrom + PpoSum.approxKl] = sums[sumsFrom + PpoSum.approxKl]! + klSum
  sums[sumsFrom + PpoSum.clipped] = sums[sumsFrom + PpoSum.clipped]! + clipped
}
