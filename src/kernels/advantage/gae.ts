import type { ReturnsColumns } from './returns.ts'

/** The columns of `discountedReturns`, and values (read) and advantages (written). */
export interface GaeColumns extends ReturnsColumns {
  readonly advantage: Float32Array
  readonly value: Float32Array
}

/**
 * Generalized advantage estimation (Schulman, Moritz, Levine, Jordan, Abbeel 2016, eq. 16), over a time-major rollout:
 *
 *     δ[t] = reward[t] + γ · nextValue[t] − value[t]          nextValue is 0 after a terminal state
 *     A[t] = δ[t] + γ λ A[t+1]                                the sum stops where an episode ended, for either reason
 *     return[t] = A[t] + value[t]
 *
 * A truncated row keeps its bootstrap (nextValue of the state in which it was cut) and stops the sum. An invalid row
 * gets 0 and passes the sum on. `carry` (numLanes) is workspace.
 */
export function gae(
  rollout: GaeColumns,
  carry: Float32Array,
  gamma: number,
  lambda: number,
  numSteps: number,
  numLanes: number,
): void {
  const { advantage, return: returns, reward, value, nextValue, terminated, truncated, valid } = rollout
  for (let n = 0; n < numLanes; n++) carry[n] = 0
  for (let t = numSteps - 1; t >= 0; t--) {
    for (let n = 0; n < numLanes; n++) {
      const row = t * numLanes + n
      if (valid[row] === 0) {
        advantage[row] = 0
        returns[row] = value[row]!
        continue
      }
      const bootstrap = terminated[row] === 0 ? nextValue[row]! : 0
      const delta = reward[row]! + gamma * bootstrap - value[row]!
      const goesOn = terminated[row] === 0 && truncated[row] === 0
      carry[n] = delta + (goesOn ? gamma * lambda * carry[n]! : 0)
      advantage[row] = carry[n]!
      returns[row] = carry[n]! + value[row]!
    }
  }
}
