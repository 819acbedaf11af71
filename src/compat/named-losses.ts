/** Algorithms by name, as in the papers, without a reference policy; `describeLoss` has all settings. */
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

/** Group-relative policy optimization; `computeAdvantagesDrGrpo` does not divide by the deviation, as in Dr. GRPO. */
export const grpo: NamedLoss & { readonly computeAdvantagesDrGrpo: AdvantageDescriptor } = {
  ...named('grpo'),
  computeAdvantagesDrGrpo: describeAdvantages(describeLoss('grpo', 'paper', { scale: 'none' })),
}

/** Group sequence policy optimization; the ratio is per sequence, mixed, or per token. */
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
