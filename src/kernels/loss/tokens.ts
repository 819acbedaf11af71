import type { TokenSpans } from '../spans.ts'

/**
 * Losses of tokens other than those of the policy gradient. Sequences (`from` … `to` − 1), `counted`, `wholeTokens` and D are those of
 * `policyLoss`; `sums` gets the loss and the number of tokens added, in the order of `TokenSum`.
 */
export const TokenSum = { loss: 0, tokens: 1, length: 2 } as const

/** Cross-entropy of the tokens themselves, for supervised fine-tuning: loss = Σ −ℓ / D. */
export function crossEntropyLoss(
  dLogprob: Float32Array,
  sums: Float64Array,
  logprob: Float32Array,
  counted: Uint8Array,
  { begin, end }: TokenSpans,
  wholeTokens: Int32Array | null,
  perSequence: boolean,
  denominator: number,
  from: number,
  to: number,
): void {
  for (let i = from; i < to; i++) {
    const count = countTokens(counted, begin[i]!, end[i]!)
    const scale = 1 / (denominator * (perSequence ? (wholeTokens?.[i] ?? count) : 1))
    for (let t = begin[i]!; t < end[i]!; t++) {
      dLogprob[t] = 0
      if (counted[t] === 0) continue
      dLogprob[t] = -scale
      sums[TokenSum.loss] = sums[TokenSum.loss]! - scale * logprob[t]!
    }
    sums[TokenSum.tokens] = sums[TokenSum.tokens]! + count
  }
}

/** Columns with a row per token: the critic's targets, and which tokens count. */
export interface ValueTargets {
  readonly returns: Float32Array
  readonly counted: Uint8Array
}

/** Numbers of the formula below; with clipValue null, values are not clipped. */
export interface ValueLossSettings {
  readonly clipValue: number | null
  readonly valueCoef: number
}

/**
 * The critic's loss with clipped values as in `ppo.ts`, R the return:
 *
 *     loss = Σ valueCoef · ½ max((v − R)², (clip(v, v_old ± clipValue) − R)²) / D
 */
export function valueLoss(
  dValue: Float32Array,
  sums: Float64Array,
  value: Float32Array,
  oldValue: Float32Array,
  prepared: ValueTargets,
  { begin, end }: TokenSpans,
  wholeTokens: Int32Array | null,
  settings: ValueLossSettings,
  perSequence: boolean,
  denominator: number,
  from: number,
  to: number,
): void {
  const { returns, counted } = prepared
  const { valueCoef } = settings
  const clipValue = settings.clipValue ?? Number.POSITIVE_INFINITY
  for (let i = from; i < to; i++) {
    const count = countTokens(counted, begin[i]!, end[i]!)
    const scale = valueCoef / (denominator * (perSequence ? (wholeTokens?.[i] ?? count) : 1))
    for (let t = begin[i]!; t < end[i]!; t++) {
      dValue[t] = 0
      if (counted[t] === 0) continue
      const error = value[t]! - returns[t]!
      const change = value[t]! - oldValue[t]!
      const clippedError = oldValue[t]! + Math.min(Math.max(change, -clipValue), clipValue) - returns[t]!
      const unclipped = Math.abs(change) <= clipValue || error * error >= clippedError * clippedError
      dValue[t] = unclipped ? scale * error : 0
      const square = unclipped ? error * error : clippedError * clippedError
      sums[TokenSum.loss] = sums[TokenSum.loss]! + scale * 0.5 * square
    }
    sums[TokenSum.tokens] = sums[TokenSum.tokens]! + count
  }
}

function countTokens(counted: Uint8Array, first: number, end: number): number {
  let count = 0
  for (let t = first; t < end; t++) if (counted[t] !== 0) count++
  return count
}
