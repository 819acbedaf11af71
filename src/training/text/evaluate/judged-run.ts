/** Evaluates a run's current model, at its end and during training. */
import { checkGiven } from '../../../base/errors.ts'
import type { HeldOut } from '../../../language/held-out.ts'
import { wholeWeights } from '../../../language/transformer/quantized.ts'
import type { ConversationCohort } from '../../../world/conversations/cohort.ts'
import type { Trainer } from '../../loop/trainer.ts'
import type { ConversationRunDefinition } from '../../run/definition.ts'
import { evaluateText, type TextEvaluation } from './evaluate.ts'

/** The evaluation of a run on its held-out questions. */
export type HeldOutResult = Pick<TextEvaluation, 'episodes' | 'numQuestions' | 'reward' | 'components' | 'numUnknown'>

/** A cohort's option `heldOut` for training or evaluation, by a run's settings; none without held-out questions. */
export function heldOutOf(given: ConversationRunDefinition['settings'], use: HeldOut['use']): { heldOut?: HeldOut } {
  checkGiven('settings of heldOutOf', given, ['heldOutFraction', 'heldOutSeed'])
  const { heldOutFraction: fraction, heldOutSeed: seed } = given
  return fraction === 0 ? {} : { heldOut: { fraction, seed, use } }
}

/** Evaluates the current weights on a run's held-out questions; null without any. */
export async function judgeHeldOut(
  definition: ConversationRunDefinition,
  trainer: Trainer<ConversationCohort>,
): Promise<HeldOutResult | null> {
  if (definition.settings.heldOutFraction === 0) return null
  const episodes = definition.settings.heldOutEpisodes
  const evaluation = await evaluateNow(definition, trainer, { episodes })
  const { numQuestions, reward, components, numUnknown } = evaluation
  return { episodes, numQuestions, reward, components, numUnknown }
}

/** Evaluates the current weights on held-out questions, or on all if there are none. */
export function evaluateNow(
  { environment, policy, settings }: ConversationRunDefinition,
  trainer: Trainer<ConversationCohort>,
  how: { readonly episodes: number; readonly seed?: number },
): Promise<TextEvaluation> {
  const { model, weights: own, quantized, adapter: adapted } = trainer.world.cohort()
  const weights = wholeWeights(model, quantized ?? own)
  const adapter = adapted === null ? null : adapted.weights
  const kernels = trainer.world.kernelBuild
  const { tooLong, cutTurn, rewardReduction } = settings
  const told = { tooLong, cutTurn, rewardReduction, ...heldOutOf(settings, 'evaluation') }
  return evaluateText({ environment, policy, weights, adapter, kernels, ...told, ...how })
}
