/**
 * Algorithms by name, each an object of descriptors: how advantages are taken of rewards, and the losses that they go into. As
 * the papers have them, without a reference policy; `describeLoss` has every setting.
 */
import type { LossId } from '../algorithms/losses/loss-presets.ts'
import {
  type AdvantageDescriptor,
  describeAdvantages,
  describeLoss,
  type LossDescriptor,
} from '../algorithms/losses/losses.ts'

/** The advantages and the loss of an algorithm. */
export interface NamedLoss {
  readonly computeAdvantages: AdvantageDescriptor
  readonly policyLoss: LossDescriptor
}

function named(id: LossId): NamedLoss {
  const policyLoss = describeLoss(id, 'paper', { klCoef: 0 })
  return { computeAdvantages: describeAdvantages(policyLoss), policyLoss }
}

/** Group-relative policy optimization; `computeAdvantagesDrGrpo` leaves the deviation out, as Dr. GRPO does. */
export const grpo: NamedLoss & { readonly computeAdvantagesDrGrpo: AdvantageDescriptor } = {
  ...named('grpo'),
  computeAdvantagesDrGrpo: describeAdvantages(describeLoss('grpo', 'paper', { scale: 'none' })),
}

/** Group sequence policy optimization; the ratio is a sequence's, or a mixture with a token's, or a token's. */
export const gspo: NamedLoss & {
  readonly policyLossHybrid: LossDescriptor
  readonly policyLossToken: LossDescriptor
} = {
  ...named('gspo'),
  policyLossHybrid: describeLoss('gspo', 'paper', { ratio: 'hybrid' }),
  policyLossToken: describeLoss('gspo', 'paper', { ratio: 'sequence-token' }),
}

/** Decoupled clip, summed over tokens. */
export const dapo: NamedLoss = named('dapo')

/** REINFORCE leave-one-out. */
export const rloo: NamedLoss = named('rloo')

/** Clipped importance-sampling policy optimization. */
export const cispo: NamedLoss = named('cispo')

/** Soft adaptive policy optimization. */
export const sapo: NamedLoss = named('sapo')
