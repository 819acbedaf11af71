/**
 * The losses of preferences that come with Colonnade. With sums ℓ over an answer's tokens, c the chosen answer and r the rejected one,
 * means ℓ̄ over tokens, and rewards R = β (ℓ − ℓ_ref):
 *
 *     dpo      −(1 − ε) log σ(R_c − R_r) − ε log σ(R_r − R_c)      arXiv 2305.18290, eq. 7; ε: conservative DPO, Mitchell 2023
 *     ipo      (d_c − d_r − 1 / 2β)², d = ℓ̄ − ℓ̄_ref               arXiv 2310.12036, eq. 17, by token as its authors computed it (TRL)
 *     simpo    −log σ(β ℓ̄_c − β ℓ̄_r − γ)                          arXiv 2405.14734, eq. 6; ε as for dpo
 *     orpo     −ℓ̄_c − β log σ(log odds_c − log odds_r)             arXiv 2403.07691, eq. 6, with odds of p = exp(ℓ̄)
 *     kto      w (1 − σ(±(R − β z)))                               arXiv 2402.01306, eq. 8: + and w_D for good answers, − and w_U for bad
 *     reward   −log σ(s_c − s_r − m) + κ (s_c + s_r)²              arXiv 2307.09288, eq. 2; κ: arXiv 2312.09244; s scores, m the margin
 *
 * z is the batch's KL to the reference: the mean of ℓ − ℓ_ref over answers to other prompts of the batch, at least 0.
 */
import { byId } from '../../base/errors.ts'
import { type Expression, where } from '../../base/expressions/expression.ts'
import { boolean, number } from '../../base/settings.ts'
import { definePreferenceLoss, type PreferenceLossFactory } from './define-preference-loss.ts'

const module = import.meta.url
const beta = (value: number, description = 'β, factor of the rewards: higher keeps closer to the reference') =>
  number(value, description, { above: 0 })
const smoothing = number(0, 'ε, probability that a pair is labeled the wrong way around', { min: 0, below: 0.5 })

/** −log σ(x). Uses the tangent at its left end where σ(x) might be 0. */
function negativeLogSigmoid(x: Expression): Expression {
  return where(x.greaterThan(-30), x.sigmoid().log().negative(), x.negative())
}

function smoothed(margin: Expression, labelSmoothing: number): Expression {
  const loss = negativeLogSigmoid(margin)
  if (labelSmoothing === 0) return loss
  return loss.times(1 - labelSmoothing).plus(negativeLogSigmoid(margin.negative()).times(labelSmoothing))
}

/** Direct preference optimization. @example sft({}, { loss: dpo }) */
export const dpo = definePreferenceLoss({
  id: 'dpo',
  module,
  settings: { beta: beta(0.1), labelSmoothing: smoothing },
  loss(pair, { beta, labelSmoothing }) {
    const chosenReward = pair.chosenLogprob.minus(pair.referenceChosenLogprob).times(beta)
    const rejectedReward = pair.rejectedLogprob.minus(pair.referenceRejectedLogprob).times(beta)
    return { loss: smoothed(chosenReward.minus(rejectedReward), labelSmoothing), chosenReward, rejectedReward }
  },
})

/** Identity preference optimization. */
export const ipo = definePreferenceLoss({
  id: 'ipo',
  module,
  settings: { beta: beta(0.1, 'β, called τ in the paper: higher keeps closer to the reference') },
  loss(pair, { beta }) {
    const chosen = pair.chosenLogprob.minus(pair.referenceChosenLogprob)
    const rejected = pair.rejectedLogprob.minus(pair.referenceRejectedLogprob)
    const apart = chosen.over(pair.chosenTokens).minus(rejected.over(pair.rejectedTokens))
    const rewards = { chosenReward: chosen.times(beta), rejectedReward: rejected.times(beta) }
    return { loss: apart.minus(1 / (2 * beta)).square(), ...rewards }
  },
})

/** Simple preference optimization, without a reference. */
export const simpo = definePreferenceLoss({
  id: 'simpo',
  module,
  settings: {
    beta: beta(2, "β, factor of the rewards: the mean log-probabilities of an answer's tokens"),
    gamma: number(1, 'γ, margin between the rewards', { min: 0 }),
    labelSmoothing: smoothing,
  },
  loss(pair, { beta, gamma, labelSmoothing }) {
    const chosenReward = pair.chosenLogprob.over(pair.chosenTokens).times(beta)
    const rejectedReward = pair.rejectedLogprob.over(pair.rejectedTokens).times(beta)
    const loss = smoothed(chosenReward.minus(rejectedReward).minus(gamma), labelSmoothing)
    return { loss, chosenReward, rejectedReward }
  },
})

/** Odds-ratio preference optimization: supervised fine-tuning with a penalty on rejected answers, without a reference. */
export const orpo = definePreferenceLoss({
  id: 'orpo',
  module,
  settings: {
    beta: beta(0.1, 'β, called λ in the paper: weight of the odds ratio'),
    learnsPrompt: boolean(false, 'the supervised part covers the prompt, too, as in TRL'),
  },
  loss(pair, { beta, learnsPrompt }) {
    const chosen = pair.chosenLogprob.over(pair.chosenTokens)
    const rejected = pair.rejectedLogprob.over(pair.rejectedTokens)
    const logOdds = (mean: Expression) => mean.minus(mean.min(-1e-9).exp().negative().plus(1).log())
    const ratio = negativeLogSigmoid(logOdds(chosen).minus(logOdds(rejected)))
    const likelihood = learnsPrompt ? pair.chosenTextLogprob.over(pair.chosenTextTokens) : chosen
    const rewards = { chosenReward: chosen.times(beta), rejectedReward: rejected.times(beta) }
    return { loss: ratio.times(beta).minus(likelihood), ...rewards }
  },
})

/** Kahneman-Tversky optimization, of single answers that are good or bad. */
export const kto = definePreferenceLoss({
  id: 'kto',
  module,
  settings: {
    beta: beta(0.1),
    goodWeight: number(1, 'w_D, weight of good answers', { min: 0 }),
    badWeight: number(1, 'w_U, weight of bad answers', { min: 0 }),
  },
  loss({ logprob, referenceLogprob, isGood, kl }, { beta, goodWeight, badWeight }) {
    const reward = logprob.minus(referenceLogprob).times(beta)
    const above = reward.minus(kl.times(beta))
    const good = above.negative().sigmoid().times(goodWeight) // 1 − σ(x) = σ(−x)
    return { loss: where(isGood, good, above.sigmoid().times(badWeight)), reward }
  },
})

/** A reward model: its value head scores an answer after the last token. Such a model can be the reward `model`. */
export const reward = definePreferenceLoss({
  id: 'reward',
  module,
  settings: { center: number(0, 'κ, weight that keeps the scores of a pair around 0', { min: 0 }) },
  loss({ chosenScore, rejectedScore, margin }, { center }) {
    const loss = negativeLogSigmoid(chosenScore.minus(rejectedScore).minus(margin))
    const centered = center === 0 ? loss : loss.plus(chosenScore.plus(rejectedScore).square().times(center))
    return { loss: centered, chosenReward: chosenScore, rejectedReward: rejectedScore }
  },
})

const losses = [dpo, ipo, kto, orpo, simpo, reward] as unknown as readonly PreferenceLossFactory[]

/** The ids of the built-in losses of preferences. */
export const preferenceLossIds = losses.map(({ id }) => id)

/** A built-in loss by id. @throws InputError with the nearest id. */
export function preferenceLossOf(subject: string, id: string, otherwise: string): PreferenceLossFactory {
  return byId(subject, losses, id, otherwise)
}
