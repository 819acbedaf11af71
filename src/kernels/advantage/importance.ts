/** The places of the sums that `importanceWeights` computes. */
export const ImportanceSum = { ratio: 0, weight: 1, largest: 2, rows: 3 } as const

/**
 * Importance weights of rows that another policy has chosen, truncated as in V-trace (Espeholt et al. 2018):
 *
 *     ratio[i] = exp(logprob[i] − oldLogprob[i])
 *     weight[i] = min(weightMax, ratio[i])
 *
 * A row that is not valid has weight 0. Writes to `sums` (4 elements) the sum of the ratios, the sum of the weights,
 * the largest ratio, and the number of valid rows.
 */
export function importanceWeights(
  weight: Float32Array,
  sums: Float64Array,
  logprob: Float32Array,
  oldLogprob: Float32Array,
  valid: Uint8Array,
  weightMax: number,
  numRows: number,
): void {
  sums.fill(0, 0, 4)
  for (let i = 0; i < numRows; i++) {
    weight[i] = 0
    if (valid[i] === 0) continue
    const ratio = Math.exp(logprob[i]! - oldLogprob[i]!)
    const truncated = Math.min(weightMax, ratio)
    weight[i] = truncated
    sums[ImportanceSum.ratio] = sums[ImportanceSum.ratio]! + ratio
    sums[ImportanceSum.weight] = sums[ImportanceSum.weight]! + truncated
    sums[ImportanceSum.largest] = Math.max(sums[ImportanceSum.largest]!, ratio)
    sums[ImportanceSum.rows] = sums[ImportanceSum.rows]! + 1
  }
}

/** advantage[i] ← advantage[i] · weight[i]. */
export function weighAdvantages(advantage: Float32Array, weight: Float32Array, numRows: number): void {
  for (let i = 0; i < numRows; i++) advantage[i] = advantage[i]! * weight[i]!
}
