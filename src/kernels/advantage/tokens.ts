/**
 * Advantages of single tokens. Tokens outside `counted` (prompts, tool answers, trajectories without a reward) are
 * skipped, as if the tokens before and after them were neighbors; their results are 0.
 */
import type { TokenSpans } from '../spans.ts'

/**
 * Rewards token by token: −coef · (ℓ_old − ℓ_ref) each, and the trajectory's reward at its last
 * counted token. `referenceLogprob` is null where there is no penalty.
 */
export function tokenRewards(
  tokenReward: Float32Array,
  reward: Float64Array,
  oldLogprob: Float32Array,
  referenceLogprob: Float32Array | null,
  counted: Uint8Array,
  { begin, end }: TokenSpans,
  coef: number,
  numTrajectories: number,
): void {
  for (let i = 0; i < numTrajectories; i++) {
    let isLast = true
    for (let t = end[i]! - 1; t >= begin[i]!; t--) {
      tokenReward[t] = 0
      if (counted[t] === 0) continue
      const penalty = referenceLogprob === null ? 0 : coef * (oldLogprob[t]! - referenceLogprob[t]!)
      tokenReward[t] = (isLast ? reward[i]! : 0) - penalty
      isLast = false
    }
  }
}

/**
 * Generalized advantage estimation (Schulman et al. 2016, eq. 16) over each trajectory's counted tokens, backwards:
 *
 *     δ[t] = reward[t] + γ · value[t + 1] − value[t]          the value after the last token is 0
 *     A[t] = δ[t] + γ λ A[t + 1]
 *     return[t] = A[t] + value[t]
 *
 * `value` is null where there is no critic: with λ = 1 this is then the discounted return of REINFORCE++ (arXiv 2501.03262).
 */
export function tokenGae(
  advantage: Float32Array,
  returns: Float32Array,
  tokenReward: Float32Array,
  value: Float32Array | null,
  counted: Uint8Array,
  { begin, end }: TokenSpans,
  gamma: number,
  lambda: number,
  numTrajectories: number,
): void {
  for (let i = 0; i < numTrajectories; i++) {
    let later = 0
    let laterValue = 0
    for (let t = end[i]! - 1; t >= begin[i]!; t--) {
      advantage[t] = 0
      returns[t] = 0
      if (counted[t] === 0) continue
      const here = value === null ? 0 : value[t]!
      later = tokenReward[t]! + gamma * laterValue - here + gamma * lambda * later
      laterValue = here
      advantage[t] = later
      returns[t] = later + here
    }
  }
}

/** Gives the counted tokens' advantages mean 0 and variance 1 (n − 1 in its denominator, 1e-8 added), in place. */
export function whitenTokens(
  advantage: Float32Array,
  counted: Uint8Array,
  { begin, end }: TokenSpans,
  numTrajectories: number,
): void {
  let count = 0
  let sum = 0
  for (let i = 0; i < numTrajectories; i++) {
    for (let t = begin[i]!; t < end[i]!; t++) {
      if (counted[t] === 0) continue
      count++
      sum += advantage[t]!
    }
  }
  const mean = sum / count
  let squares = 0
  for (let i = 0; i < numTrajectories; i++) {
    for (let t = begin[i]!; t < end[i]!; t++) {
      if (counted[t] !== 0) squares += (advantage[t]! - mean) * (advantage[t]! - mean)
    }
  }
  const scale = 1 / Math.sqrt(squares / Math.max(1, count - 1) + 1e-8)
  for (let i = 0; i < numTrajectories; i++) {
    for (let t = begin[i]!; t < end[i]!; t++) {
      if (counted[t] !== 0) advantage[t] = (advantage[t]! - mean) * scale
    }
  }
}
