/**
 * Weights that correct for tokens that were drawn from another distribution than the loss assumes, because of another
 * engine's arithmetic or older weights. With behavior logprobs ℓ_β (recorded as sampled) and proximal ones ℓ_old
 * (recomputed by the trainer), the weight is w = exp(ℓ_old − ℓ_β) of a token, or exp(Σ (ℓ_old − ℓ_β)) of its sequence:
 *
 *     truncate   min(max(w, low), high)             TIS (low = 0, high = C)
 *     mask       w if low ≤ w ≤ high, else 0        IcePop (token), MIS (sequence)
 *
 * With these weights a clipped loss on ℓ_old is the decoupled PPO of AReaL (arXiv 2505.24298). No gradient flows
 * through the weight.
 */
import type { TokenSpans } from '../spans.ts'

export type Correction = 'none' | 'token-truncate' | 'token-mask' | 'sequence-truncate' | 'sequence-mask'

/**
 * Writes weight[t] for the counted tokens, 0 elsewhere. Where rejected tokens shall not count either, they are taken out of
 * `counted`, and so out of every denominator. Returns how many tokens were rejected.
 */
export function correctionWeights(
  weight: Float32Array,
  counted: Uint8Array,
  oldLogprob: Float32Array,
  behaviorLogprob: Float32Array,
  spans: TokenSpans,
  correction: Correction,
  low: number,
  high: number,
  countsRejected: boolean,
  numSequences: number,
): number {
  const isSequence = correction === 'sequence-truncate' || correction === 'sequence-mask'
  const masks = correction === 'token-mask' || correction === 'sequence-mask'
  let rejected = 0
  for (let i = 0; i < numSequences; i++) {
    const first = spans.begin[i]!
    const end = spans.end[i]!
    let sum = 0
    if (isSequence) {
      for (let t = first; t < end; t++) if (counted[t] !== 0) sum += oldLogprob[t]! - behaviorLogprob[t]!
    }
    for (let t = first; t < end; t++) {
      weight[t] = 0
      if (counted[t] === 0) continue
      const ratio = Math.exp(isSequence ? sum : oldLogprob[t]! - behaviorLogprob[t]!)
      if (!masks) weight[t] = Math.min(Math.max(ratio, low), high)
      else if (ratio >= low && ratio <= high) weight[t] = ratio
      else {
        rejected++
        if (!countsRejected) counted[t] = 0
      }
    }
  }
  return rejected
}
