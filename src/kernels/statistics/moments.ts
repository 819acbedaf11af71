/** Sums and moments of columns, in f64, over rows in ascending order. */

/** moments[0] = mean, moments[1] = standard deviation with n − 1 in the denominator (0 for a single row). */
export function meanAndDeviation(moments: Float64Array, x: Float32Array, numRows: number): void {
  let sum = 0
  for (let i = 0; i < numRows; i++) sum += x[i]!
  const mean = sum / numRows
  let squares = 0
  for (let i = 0; i < numRows; i++) squares += (x[i]! - mean) * (x[i]! - mean)
  moments[0] = mean
  moments[1] = numRows > 1 ? Math.sqrt(squares / (numRows - 1)) : 0
}

/**
 * The fraction of the variance of the returns that the critic explains, over valid rows: 1 − Var(return − value) /
 * Var(return). NaN if the returns do not vary.
 */
export function explainedVariance(
  value: Float32Array,
  returns: Float32Array,
  valid: Uint8Array,
  numRows: number,
): number {
  let count = 0
  let sumReturn = 0
  let sumError = 0
  for (let i = 0; i < numRows; i++) {
    if (valid[i] === 0) continue
    count++
    sumReturn += returns[i]!
    sumError += returns[i]! - value[i]!
  }
  const meanReturn = sumReturn / count
  const meanError = sumError / count
  let varianceReturn = 0
  let varianceError = 0
  for (let i = 0; i < numRows; i++) {
    if (valid[i] === 0) continue
    const fromMean = returns[i]! - meanReturn
    const error = returns[i]! - value[i]! - meanError
    varianceReturn += fromMean * fromMean
    varianceError += error * error
  }
  return varianceReturn === 0 ? Number.NaN : 1 - varianceError / varianceReturn
}
