/**
 * Custom losses of preferences: of pairs, a chosen and a rejected answer to one prompt, or of single answers, good or bad. A loss is
 * arithmetic over sums of its answers' log-probabilities, or over scores of a value head. A definition yields the same descriptor as a
 * built-in loss.
 */
import { type DefinitionRecord, defineFactory, type Factory } from '../../base/definition.ts'
import { checkGiven, InputError } from '../../base/errors.ts'
import { resolveSettings, type Settings, type SettingValues } from '../../base/settings.ts'
import { type LossColumns, type LossResult, traceLoss } from './loss-program.ts'
import { lossSettings } from './loss-settings.ts'
import type { LossDescriptor } from './losses.ts'
import { answerColumns, differentiable, pairColumns, told } from './preference-run.ts'

/** Columns of pairs and of single answers. A loss reads columns of one kind. */
export type PreferenceColumns = LossColumns<(typeof pairColumns | typeof answerColumns)[number]>

/** A loss of preferences with its settings. */
export interface PreferenceLossDefinition extends LossDescriptor, DefinitionRecord {}

/** Creates a loss of preferences from its settings. `id` and `settings` describe it. */
export type PreferenceLossFactory<S extends Settings = Settings> = Factory<S, PreferenceLossDefinition>

/**
 * Defines a loss of preferences as arithmetic, the part `loss` of `sft`; its derivatives are computed automatically. `loss` is called once
 * per set of settings and returns the loss of a pair, or of a single answer, which is minimized as the mean over the batch. It may also
 * return `chosenReward` and `rejectedReward`, or `reward`, for metrics; they are null otherwise.
 * @throws InputError on creation, as `traceLoss` does, and for a loss that reads columns of both kinds, of neither, or both scores and
 * log-probabilities.
 * @example
 * export const hinge = definePreferenceLoss({
 *   id: 'hinge',
 *   module: import.meta.url,
 *   settings: { beta: number(0.1, 'factor of the rewards') },
 *   loss({ chosenLogprob, rejectedLogprob, referenceChosenLogprob, referenceRejectedLogprob }, { beta }) {
 *     const chosenReward = chosenLogprob.minus(referenceChosenLogprob).times(beta)
 *     const rejectedReward = rejectedLogprob.minus(referenceRejectedLogprob).times(beta)
 *     return { loss: rejectedReward.minus(chosenReward).plus(1).max(0), chosenReward, rejectedReward }
 *   },
 * })
 */
export function definePreferenceLoss<S extends Settings>(options: {
  id: string
  module?: string
  settings: S
  loss(columns: PreferenceColumns, settings: SettingValues<S>): LossResult
}): PreferenceLossFactory<S> {
  checkGiven('options of definePreferenceLoss', options, ['id', 'settings', 'loss'])
  const { id, loss } = options
  return defineFactory('loss', options, (values): LossDescriptor => {
    const columns = [...pairColumns, ...answerColumns]
    const shape = { columns, differentiable, results: [], optional: told, hasSequences: false }
    const program = traceLoss(id, (given) => loss(given, values), shape)
    const reads = Object.keys(program.columns)
    const ofPairs = reads.some((name) => (pairColumns as readonly string[]).includes(name))
    const ofAnswers = reads.some((name) => (answerColumns as readonly string[]).includes(name))
    if (ofPairs === ofAnswers) {
      const got = `a loss that reads ${reads.join(', ') || 'nothing'}`
      throw new InputError(`loss of ${id}`, got, 'columns of pairs, or of single answers')
    }
    const scores = reads.filter((name) => name.endsWith('Score')).length
    if (scores > 0 && reads.some((name) => !name.endsWith('Score') && name !== 'margin')) {
      throw new InputError(`loss of ${id}`, `a loss that reads ${reads.join(', ')}`, 'scores or log-probabilities')
    }
    // Everything else about a loss of tokens is off.
    const settings = resolveSettings(id, lossSettings, {
      advantage: 'none',
      surrogate: 'cross-entropy',
      aggregation: 'sequence-sum',
    })
    return {
      id,
      preset: null,
      level: ofPairs ? 'pair' : 'answer',
      columns: reads.some((name) => name.startsWith('reference')) ? ['referenceLogprob'] : [],
      aggregation: settings.aggregation,
      settings,
      program,
      advantages: null,
    }
  })
}
