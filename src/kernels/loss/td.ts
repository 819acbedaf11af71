/** The sums of a temporal-difference loss, from element `sumsFrom` of `sums` on. */
export const TdSum = { tdLoss: 0, tdError: 1, actionValue: 2 } as const

/**
 * The loss of values by their targets y = return + discount · nextValue: for an error δ = y − value it is ½ δ², or
 * beyond `huberDelta` huberDelta · (|δ| − ½ huberDelta) (Huber 1964), times the row's weight and `scale`. Writes the
 * derivatives by the values, and |δ|.
 */
export function tdLoss(
  dValue: Float32Array,
  error: Float32Array,
  sums: Float64Array,
  value: Float32Array,
  targets: {
    readonly return: Float32Array
    readonly discount: Float32Array
    readonly nextValue: Float32Array
    readonly weight: Float32Array
  },
  huberDelta: number,
  scale: number,
  numRows: number,
  sumsFrom: number,
): void {
  const { return: returns, discount, nextValue, weight } = targets
  for (let row = 0; row < numRows; row++) {
    const delta = returns[row]! + discount[row]! * nextValue[row]! - value[row]!
    const size = Math.abs(delta)
    const isNear = size <= huberDelta
    dValue[row] = -weight[row]! * scale * (isNear ? delta : Math.sign(delta) * huberDelta)
    error[row] = size
    const loss = isNear ? 0.5 * delta * delta : huberDelta * (size - 0.5 * huberDelta)
    sums[sumsFrom + TdSum.tdLoss] = sums[sumsFrom + TdSum.tdLoss]! + weight[row]! * loss
    sums[sumsFrom + TdSum.tdError] = sums[sumsFrom + TdSum.tdError]! + size
    sums[sumsFrom + TdSum.actionValue] = sums[sumsFrom + TdSum.actionValue]! + value[row]!
  }
}
