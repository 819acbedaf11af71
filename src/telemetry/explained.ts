/** What a grouping explains of numbers. The dashboard page uses this module too. */

/**
 * The share of the variance of numbers that their groups explain: the adjusted correlation ratio (ε², Kelley 1935), 0 to 1; about 0 for
 * groups without effect. NaN without variance, and where no group has two numbers.
 */
export function explainedShare(groups: Iterable<readonly number[]>): number {
  const all = [...groups]
  const values = all.flat()
  const squares = (some: readonly number[]) => {
    const mean = some.reduce((sum, value) => sum + value, 0) / some.length
    return some.reduce((sum, value) => sum + (value - mean) ** 2, 0)
  }
  const whole = squares(values) / (values.length - 1)
  const within = all.reduce((sum, some) => sum + squares(some), 0) / (values.length - all.length)
  return Math.max(0, 1 - within / whole)
}
