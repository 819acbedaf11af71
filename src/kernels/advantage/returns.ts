/** Columns of a time-major rollout (numSteps × numLanes rows): `return` is written, the other columns are read. */
export interface ReturnsColumns {
  readonly return: Float32Array
  readonly reward: Float32Array
  readonly nextValue: Float32Array
  readonly terminated: Uint8Array
  readonly truncated: Uint8Array
  readonly valid: Uint8Array
}

/**
 * Discounted returns to go (Sutton and Barto 2018, eq. 3.8), bootstrapped where the episode was cut:
 *
 *     G[t] = reward[t] + γ · G[t+1]          while the episode goes on
 *     G[t] = reward[t] + γ · nextValue[t]    where it was truncated, and in the last row of the rollout
 *     G[t] = reward[t]                       in a terminal state
 *
 * An invalid row gets 0 and is skipped. `carry` (numLanes) is workspace.
 */
export function discountedReturns(
  rollout: ReturnsColumns,
  carry: Float32Array,
  gamma: number,
  numSteps: number,
  numLanes: number,
): void {
  const { return: returns, reward, nextValue, terminated, truncated, valid } = rollout
  for (let n = 0; n < numLanes; n++) {
    carry[n] = Number.NaN // No later row yet.
  }
  for (let t = numSteps - 1; t >= 0; t--) {
    for (let n = 0; n < numLanes; n++) {
      const row = t * numLanes + n
      if (valid[row] === 0) {
        returns[row] = 0
        continue
      }
      const later = carry[n]!
      const cut = truncated[row] !== 0 || Number.isNaN(later)
      const rest = terminated[row] !== 0 ? 0 : cut ? nextValue[row]! : later
      carry[n] = reward[row]! + gamma * rest
      returns[row] = carry[n]!
    }
  }
}
