/** Losses that have kernels, once more as expressions: the bench compares their speed, and tests what they compute. */
import { type Expression, type NamedTokenColumns, type RowLossColumns, where } from '../../src/entries/algorithms.ts'

/** The numbers of actor and critic over rows. */
export interface RowCoefficients {
  readonly clipCoef: number
  readonly clipValue: number | null
  readonly entropyCoef: number
  readonly valueCoef: number
}

/** PPO's clipped surrogate with clipped values, and its figures in the order of `PpoSum`. */
export function ppoExpression(columns: RowLossColumns, settings: RowCoefficients) {
  const { logprob, oldLogprob, advantage, entropy, value, oldValue, return: returns } = columns
  const { clipCoef, clipValue, entropyCoef, valueCoef } = settings
  const logRatio = logprob.minus(oldLogprob)
  const ratio = logRatio.exp()
  const clipped = ratio.clip(1 - clipCoef, 1 + clipCoef)
  const policyLoss = ratio.times(advantage).min(clipped.times(advantage)).negative()
  const square = value.minus(returns).square()
  const near = clipValue === null ? value : oldValue.plus(value.minus(oldValue).clip(-clipValue, clipValue))
  const valueLoss = square.max(near.minus(returns).square()).times(0.5)
  return {
    loss: policyLoss.plus(valueLoss.times(valueCoef)).minus(entropy.times(entropyCoef)),
    policyLoss,
    valueLoss,
    entropy,
    approxKl: ratio.minus(1).minus(logRatio),
    clipFraction: ratio.minus(1).abs().greaterThan(clipCoef),
  }
}

/** The actor's loss of V-trace with its critic: `advantage` is r + γ v[t+1] − V(s), which the truncated ratio weighs. */
export function vtraceExpression(columns: RowLossColumns, settings: RowCoefficients & { readonly rhoMax: number }) {
  const { logprob, oldLogprob, advantage, entropy, value, return: returns } = columns
  const rho = logprob.minus(oldLogprob).exp().min(settings.rhoMax).detach()
  const policyLoss = rho.times(advantage).times(logprob).negative()
  const valueLoss = value.minus(returns).square().times(0.5)
  const loss = policyLoss.plus(valueLoss.times(settings.valueCoef)).minus(entropy.times(settings.entropyCoef))
  return { loss, policyLoss, valueLoss, entropy }
}

/** The numbers of losses over tokens. */
export interface TokenCoefficients {
  readonly clipLow: number
  readonly clipHigh: number
  readonly klCoef: number
  readonly entropyCoef: number
}

/** The clipped surrogate of GRPO and DAPO by the logarithm of a ratio, with the KL k3 to a reference where klCoef > 0. */
function clippedSurrogate(columns: NamedTokenColumns, settings: TokenCoefficients, logRatio: Expression) {
  const { logprob, entropy, advantage, weight } = columns
  const { clipLow, clipHigh, klCoef, entropyCoef } = settings
  const ratio = logRatio.exp()
  const unclipped = ratio.times(advantage).negative()
  const clipped = ratio
    .clip(1 - clipLow, 1 + clipHigh)
    .times(advantage)
    .negative()
  const policyLoss = weight.times(unclipped.max(clipped))
  const isFlat = clipped.greaterThan(unclipped)
  const clippedLow = isFlat.times(ratio.lessThan(1 - clipLow))
  const counts = { ratio, clippedLow, clippedHigh: isFlat.minus(clippedLow), capped: 0 }
  const own = policyLoss.minus(entropy.times(entropyCoef))
  if (klCoef === 0) return { loss: own, policyLoss, klPenalty: 0, ...counts }
  const away = logprob.minus(columns.referenceLogprob)
  const klPenalty = away.negative().exp().minus(1).plus(away)
  return { loss: own.plus(klPenalty.times(klCoef)), policyLoss, klPenalty, ...counts }
}

/** GRPO and DAPO, which differ in settings. */
export function grpoExpression(columns: NamedTokenColumns, settings: TokenCoefficients) {
  return clippedSurrogate(columns, settings, columns.logprob.minus(columns.oldLogprob))
}

/** GSPO: the ratio is the sequence's, e to the mean of its tokens' logarithms. */
export function gspoExpression(columns: NamedTokenColumns, settings: TokenCoefficients) {
  const { logprob, oldLogprob, sequenceTokens } = columns
  return clippedSurrogate(columns, settings, logprob.minus(oldLogprob).sumOfSequence().over(sequenceTokens))
}

/** SAPO: a soft gate in place of the clip. */
export function sapoExpression(columns: NamedTokenColumns, settings: { tauPositive: number; tauNegative: number }) {
  const { logprob, oldLogprob, advantage, weight } = columns
  const ratio = logprob.minus(oldLogprob).exp()
  const tau = where(advantage.greaterThan(0), settings.tauPositive, settings.tauNegative)
  const gate = ratio.minus(1).times(tau).sigmoid()
  return weight.times(gate.times(advantage).times(-4).over(tau))
}

/** CISPO: the clipped ratio is a number. */
export function cispoExpression(columns: NamedTokenColumns, { clipHigh }: Pick<TokenCoefficients, 'clipHigh'>) {
  const { logprob, oldLogprob, advantage, weight } = columns
  const ratio = logprob.minus(oldLogprob).exp()
  const policyLoss = ratio
    .clip(0, 1 + clipHigh)
    .detach()
    .times(advantage)
    .times(logprob)
    .negative()
  const loss = weight.times(policyLoss)
  return {
    loss,
    clippedLow: 0,
    clippedHigh: where(advantage.equalTo(0), 0, ratio.greaterThan(1 + clipHigh)),
    capped: 0,
  }
}
