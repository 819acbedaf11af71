/**
 * Policy-gradient losses over the tokens of whole sequences, with their derivatives. The tokens of sequence i are
 * begin[i] … end[i] − 1; those with counted = 0 (prompts, tool answers) are skipped. With d = ℓ − ℓ_old, and mean
 * and Σ over the counted tokens of the sequence, the ratio ρ = exp(z) is taken
 *
 *     token            z = d[t]
 *     sequence         z = mean d                      GSPO, arXiv 2507.18071
 *     sequence-token   z = mean d, but ∂z/∂ℓ as of d[t] alone: GSPO-token, ibid.
 *     hybrid           z = α · mean d + β · d[t]       no published source: kept as an option
 *     product          z = Σ d                         the likelihood ratio of the whole answer, as TRL's RLOO takes it
 *
 * and the surrogate of a token with advantage A is
 *
 *     clip     max(−min(ρ, δ) A, −clip(ρ, 1 − ε_low, 1 + ε_high) A), and if A < 0 no more than −c A
 *              PPO, Schulman et al. 2017, eq. 7; ε_high ≠ ε_low: DAPO; c, the dual clip: arXiv 1912.09729; δ: INTELLECT-2,
 *              arXiv 2505.07291. Without bounds it is −ρ A, whose gradient on-policy is REINFORCE's.
 *     cispo    −clip(ρ, 1 − ε_low, 1 + ε_high) A ℓ, the clipped ratio a number: CISPO, arXiv 2506.13585
 *     sapo     −(4 / τ) σ(τ (ρ − 1)) A, τ by the sign of A: SAPO, arXiv 2511.20347
 *
 * The KL penalty to a reference, k = ℓ − ℓ_ref (Schulman, "Approximating KL Divergence", 2020):
 *
 *     k1  k      k2  ½ k²      k3  e^−k − 1 + k      k3+  the value of k3 with the gradient of k2
 *
 * times ρ where `klCorrected`, gradient included (DeepSeek-V3.2). The whole, to be minimized:
 *
 *     loss = Σ (weight · surrogate + klCoef · KL − entropyCoef · entropy) / D,   D = denominator · (perSequence ? |o| : 1)
 *
 * with |o| the counted tokens of the sequence, or wholeTokens[i] where it is a segment of a longer conversation.
 *
 * `denominator` is of the whole batch, however it is cut into micro-batches, so that their sums add up to its loss.
 * Where A = 0 the surrogate is 0 whatever ρ is. Everything is computed in f64.
 */
import type { TokenSpans } from '../spans.ts'

export type Surrogate = 'clip' | 'cispo' | 'sapo'
export type Ratio = 'token' | 'sequence' | 'sequence-token' | 'hybrid' | 'product'
export type KlEstimator = 'k1' | 'k2' | 'k3' | 'k3+'

/** Columns of tokens, and `sums` in the order of `PolicySum`, to which this call adds. */
export interface PolicyLossOutputs {
  dLogprob: Float32Array
  dEntropy: Float32Array
  sums: Float64Array
}

/** Columns of tokens, and where the sequences lie in them. `weight` and `referenceLogprob` are null where there are none. */
export interface PolicyLossInputs {
  logprob: Float32Array
  /** Of the whole distribution, in nats: −Σ p log p. */
  entropy: Float32Array
  oldLogprob: Float32Array
  advantage: Float32Array
  weight: Float32Array | null
  referenceLogprob: Float32Array | null
  counted: Uint8Array
  spans: TokenSpans
  /** A row per sequence: the counted tokens of its conversation; null if every sequence is a whole conversation. */
  wholeTokens: Int32Array | null
}

/** Numbers and words of the formulas above; a null bound means no bound. */
export interface PolicyLossSettings {
  surrogate: Surrogate
  ratio: Ratio
  /** α and β of the hybrid ratio. */
  sequencePart: number
  tokenPart: number
  /** ε_low, ε_high, c and δ. */
  clipLow: number | null
  clipHigh: number | null
  dualClip: number | null
  ratioMax: number | null
  /** τ of positive and of other advantages. */
  tauPositive: number
  tauNegative: number
  /** Bound of |z| and |k|, beyond which they are constant. */
  logRatioMax: number | null
  kl: KlEstimator
  klCoef: number
  klCorrected: boolean
  /** Bound of a token's |KL|, beyond which it is constant. */
  klMax: number | null
  entropyCoef: number
}

/**
 * `loss` is the loss. The others are sums over the `tokens` counted: the surrogate, the penalty, the entropy; ρ; k1, k2 and
 * k3 of KL(old ‖ new) (k1 = ℓ_old − ℓ) and of KL(new ‖ reference) (k1 = ℓ − ℓ_ref); the numbers of tokens without a
 * gradient because the ratio is beyond ε_low or ε_high (for cispo: with a clipped ratio), or beyond c or δ.
 */
export const PolicySum = {
  loss: 0,
  tokens: 1,
  policyLoss: 2,
  klPenalty: 3,
  entropy: 4,
  ratio: 5,
  k1: 6,
  k2: 7,
  k3: 8,
  referenceK1: 9,
  referenceK2: 10,
  referenceK3: 11,
  clippedLow: 12,
  clippedHigh: 13,
  capped: 14,
  length: 15,
} as const

/** Adds the losses of sequences `from` … `to` − 1 to `sums`, and writes their derivatives. */
export function policyLoss(
  { dLogprob, dEntropy, sums }: PolicyLossOutputs,
  { logprob, entropy, oldLogprob, advantage, weight, referenceLogprob, counted, spans, wholeTokens }: PolicyLossInputs,
  settings: PolicyLossSettings,
  perSequence: boolean,
  denominator: number,
  from: number,
  to: number,
): void {
  const { surrogate, ratio: ratioOf, kl, klCoef, klCorrected, entropyCoef } = settings
  const ratioLow = settings.clipLow === null ? 0 : 1 - settings.clipLow
  const ratioHigh = settings.clipHigh === null ? Infinity : 1 + settings.clipHigh
  const dualClip = settings.dualClip ?? Infinity
  const ratioMax = settings.ratioMax ?? Infinity
  const logRatioMax = settings.logRatioMax ?? Infinity
  const klMax = settings.klMax ?? Infinity

  for (let i = from; i < to; i++) {
    const first = spans.begin[i]!
    const end = spans.end[i]!
    let count = 0
    let logRatioSum = 0
    for (let t = first; t < end; t++) {
      if (counted[t] === 0) continue
      count++
      logRatioSum += logprob[t]! - oldLogprob[t]!
    }
    // z = sequencePart · mean + tokenPart · own, and ∂z/∂ℓ = sequenceSlope / |o| for all tokens + tokenSlope for its own.
    let [sequencePart, tokenPart] = [0, 1]
    if (ratioOf === 'hybrid') [sequencePart, tokenPart] = [settings.sequencePart, settings.tokenPart]
    else if (ratioOf === 'product') [sequencePart, tokenPart] = [count, 0]
    else if (ratioOf !== 'token') [sequencePart, tokenPart] = [1, 0]
    const sequenceSlope = ratioOf === 'sequence-token' ? 0 : sequencePart
    const tokenSlope = ratioOf === 'sequence-token' ? 1 : tokenPart
    const mean = logRatioSum / count
    const scale = 1 / (denominator * (perSequence ? (wholeTokens?.[i] ?? count) : 1))

    let shared = 0 // The derivative of the loss by the mean of d, so far.
    for (let t = first; t < end; t++) {
      dLogprob[t] = 0
      dEntropy[t] = 0
      if (counted[t] === 0) continue
      const own = logprob[t]! - oldLogprob[t]!
      const free = sequencePart * mean + tokenPart * own
      const logRatio = Math.min(Math.max(free, -logRatioMax), logRatioMax)
      const ratio = Math.exp(logRatio)
      const A = advantage[t]!

      let loss = 0
      let dLogRatio = 0
      let dOwn = 0
      if (A === 0) {
        // No advantage, no loss: 0 · ∞ is not a number.
      } else if (surrogate === 'clip') {
        const bounded = Math.min(ratio, ratioMax)
        const unclipped = -bounded * A
        const clipped = -Math.min(Math.max(ratio, ratioLow), ratioHigh) * A
        loss = Math.max(unclipped, clipped)
        if (A < 0 && loss > -dualClip * A) {
          loss = -dualClip * A
          sums[PolicySum.capped]!++
        } else if (clipped > unclipped) {
          sums[ratio < ratioLow ? PolicySum.clippedLow : PolicySum.clippedHigh]!++
        } else if (ratio > ratioMax) sums[PolicySum.capped]!++
        else dLogRatio = unclipped
      } else if (surrogate === 'cispo') {
        const clipped = Math.min(Math.max(ratio, ratioLow), ratioHigh)
        loss = -clipped * A * logprob[t]!
        dOwn = -clipped * A
        if (ratio < ratioLow) sums[PolicySum.clippedLow]!++
        else if (ratio > ratioHigh) sums[PolicySum.clippedHigh]!++
      } else {
        const tau = A > 0 ? settings.tauPositive : settings.tauNegative
        const gate = 1 / (1 + Math.exp(-tau * (ratio - 1)))
        loss = (-4 / tau) * gate * A
        dLogRatio = gate === 1 ? 0 : -4 * gate * (1 - gate) * A * ratio
      }
      const w = weight === null ? 1 : weight[t]!
      if (w === 0) loss = dLogRatio = dOwn = 0 // Rejected, whatever its loss is.
      dLogRatio *= w
      dOwn *= w

      let penalty = 0
      if (referenceLogprob !== null) {
        const away = logprob[t]! - referenceLogprob[t]!
        const k = Math.min(Math.max(away, -logRatioMax), logRatioMax)
        const k3 = Math.exp(-k) - 1 + k
        const value = kl === 'k1' ? k : kl === 'k2' ? 0.5 * k * k : k3
        const slope = kl === 'k1' ? 1 : kl === 'k3' ? 1 - Math.exp(-k) : k
        penalty = Math.min(Math.max(value, -klMax), klMax)
        if (klCorrected) dLogRatio += klCoef * ratio * penalty
        const isFlat = Math.abs(away) > logRatioMax || Math.abs(value) > klMax
        if (!isFlat) dOwn += klCoef * (klCorrected ? ratio : 1) * slope
        if (klCorrected) penalty *= ratio
        sums[PolicySum.referenceK1] = sums[PolicySum.referenceK1]! + away
        sums[PolicySum.referenceK2] = sums[PolicySum.referenceK2]! + 0.5 * away * away
        sums[PolicySum.referenceK3] = sums[PolicySum.referenceK3]! + Math.exp(-away) - 1 + away
      }

      if (Math.abs(free) > logRatioMax) dLogRatio = 0
      dLogprob[t] = scale * (tokenSlope * dLogRatio + dOwn)
      dEntropy[t] = -scale * entropyCoef
      shared += sequenceSlope * dLogRatio

      sums[PolicySum.loss] = sums[PolicySum.loss]! + scale * (w * loss + klCoef * penalty - entropyCoef * entropy[t]!)
      sums[PolicySum.policyLoss] = sums[PolicySum.policyLoss]! + w * loss
      sums[PolicySum.klPenalty] = sums[PolicySum.klPenalty]! + penalty
      sums[PolicySum.entropy] = sums[PolicySum.entropy]! + entropy[t]!
      sums[PolicySum.ratio] = sums[PolicySum.ratio]! + ratio
      sums[PolicySum.k1] = sums[PolicySum.k1]! - own
      sums[PolicySum.k2] = sums[PolicySum.k2]! + 0.5 * own * own
      sums[PolicySum.k3] = sums[PolicySum.k3]! + Math.exp(own) - 1 - own
    }
    sums[PolicySum.tokens] = sums[PolicySum.tokens]! + count
    if (shared === 0) continue
    const each = (scale * shared) / count
    for (let t = first; t < end; t++) if (counted[t] !== 0) dLogprob[t] = dLogprob[t]! + each
  }
}
