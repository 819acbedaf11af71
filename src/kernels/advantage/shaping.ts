/** Changes rewards of whole trajectories in place, before advantages are computed. Unknown rewards do not change. */
import type { TokenSpans } from '../spans.ts'

/**
 * Soft overlong punishment of DAPO, with |o| the tokens of the loss mask:
 *
 *     r += factor · clamp((maxLength − cache − |o|) / cache, −1, 0)
 */
export function overlongPenalty(
  reward: Float64Array,
  known: Uint8Array,
  lossMask: Uint8Array,
  { begin, end }: TokenSpans,
  maxLength: number,
  cache: number,
  factor: number,
  numTrajectories: number,
): void {
  for (let i = 0; i < numTrajectories; i++) {
    if (known[i] === 0) continue
    let length = 0
    for (let t = begin[i]!; t < end[i]!; t++) length += lossMask[t]!
    reward[i] = reward[i]! + factor * Math.max(-1, Math.min(0, (maxLength - cache - length) / cache))
  }
}

/** The KL penalty of a whole answer (RLOO, arXiv 2402.14740): r −= coef · Σ (ℓ_old − ℓ_ref). */
export function klPenalty(
  reward: Float64Array,
  known: Uint8Array,
  oldLogprob: Float32Array,
  referenceLogprob: Float32Array,
  lossMask: Uint8Array,
  { begin, end }: TokenSpans,
  coef: number,
  numTrajectories: number,
): void {
  for (let i = 0; i < numTrajectories; i++) {
    if (known[i] === 0) continue
    let kl = 0
    for (let t = begin[i]!; t < end[i]!; t++) {
      if (lossMask[t] !== 0) kl += oldLogprob[t]! - referenceLogprob[t]!
    }
    reward[i] = reward[i]! - coef * kl
  }
}
