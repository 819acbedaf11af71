import type { GaeColumns } from './gae.ts'

/** As those of `gae`, with the log-probabilities under the policy that chose the actions, which are read. */
export interface VtraceColumns extends GaeColumns {
  readonly logprob: Float32Array
}

/**
 * V-trace (Espeholt et al. 2018, IMPALA, eq. 1 in the recursive form of remark 1, and section 4.2), over a time-major
 * rollout of the policy with logprob `rollout.logprob`, corrected towards the one with logprob `logprob`:
 *
 *     ratio[t] = exp(logprob[t] − rollout.logprob[t])
 *     ρ[t] = min(rhoMax, ratio[t])
 *     c[t] = λ min(cMax, ratio[t])
 *     δ[t] = ρ[t] (reward[t] + γ · nextValue[t] − value[t])   nextValue is 0 after a terminal state
 *     E[t] = δ[t] + γ c[t] E[t+1]                             the sum stops where an episode ended, for either reason
 *     return[t] = v[t] = value[t] + E[t]
 *     advantage[t] = ρ[t] (reward[t] + γ v[t+1] − value[t])   v[t+1] = nextValue[t] + E[t+1]
 *
 * A truncated row keeps its bootstrap (nextValue of the state in which it was cut) and stops the sum, as the last row
 * of the rollout does: there v[t+1] is nextValue[t]. An invalid row gets advantage 0 and its value as return, and
 * passes the sum on. A clip may be Infinity. On-policy, with both clips at least 1, the returns are those
 * of GAE(λ). `carry` (numLanes) is workspace.
 */
export function vtrace(
  rollout: VtraceColumns,
  carry: Float32Array,
  logprob: Float32Array,
  gamma: number,
  lambda: number,
  rhoMax: number,
  cMax: number,
  numSteps: number,
  numLanes: number,
): void {
  const { advantage, return: returns, logprob: oldLogprob, reward, value, nextValue } = rollout
  const { terminated, truncated, valid } = rollout
  for (let n = 0; n < numLanes; n++) carry[n] = 0
  for (let t = numSteps - 1; t >= 0; t--) {
    for (let n = 0; n < numLanes; n++) {
      const row = t * numLanes + n
      if (valid[row] === 0) {
        advantage[row] = 0
        returns[row] = value[row]!
        continue
      }
      const ratio = Math.exp(logprob[row]! - oldLogprob[row]!)
      const rho = Math.min(rhoMax, ratio)
      const bootstrap = terminated[row] === 0 ? nextValue[row]! : 0
      const goesOn = terminated[row] === 0 && truncated[row] === 0
      const later = goesOn ? carry[n]! : 0
      const delta = rho * (reward[row]! + gamma * bootstrap - value[row]!)
      advantage[row] = rho * (reward[row]! + gamma * (bootstrap + later) - value[row]!)
      carry[n] = delta + (goesOn ? gamma * lambda * Math.min(cMax, ratio) * later : 0)
      returns[row] = carry[n]! + value[row]!
    }
  }
}
