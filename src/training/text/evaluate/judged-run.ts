/** How the model of a run does as it stands: at the run's end, and while it trains. */
import { checkGiven } from '../../../base/errors.ts'
import type { HeldOut } from '../../../language/held-out.ts'
import { wholeWeights } from '../../../language/transformer/quantized.ts'
import type { ConversationCohort } from '../../../world/conversations/cohort.ts'
import type { Trainer } from '../../loop/trainer.ts'
import type { ConversationRunDefinition } from '../../run/definition.ts'
import { evaluateText, type TextEvaluation } from './evaluate.ts'

/** What a run says of the questions that it has held out. */
export type HeldOutResult = Pick<TextEvaluation, 'episodes' | 'numQuestions' | 'reward' | 'components' | 'numUnknown'>

/**
 * The option `heldOut` of a cohort that trains, or is evaluated, by a run's settings; no option where nothing is held out.
 */
export function heldOutOf(given: ConversationRunDefinition['settings'], use: HeldOut['use']): { heldOut?: HeldOut } {
  checkGiven('settings of heldOutOf', given, ['heldOutFraction', 'heldOutSeed'])
  const { heldOutFraction: fraction, heldOutSeed: seed } = given
  return fraction === 0 ? {} : { heldOut: { fraction, seed, use } }
}

/** Has conversations about the questions that a run has held out, with its weights as they stand; null where there are none. */
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

/** Has conversations with the weights as they stand: about the questions that the run holds out, or all where it holds out none. */
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
