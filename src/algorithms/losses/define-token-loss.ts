/** Custom losses over tokens. A definition yields the same descriptor as a built-in loss. */
import { type DefinitionRecord, defineFactory, type Factory } from '../../base/definition.ts'
import { checkGiven, InputError, show } from '../../base/errors.ts'
import { resolveSettings, type Settings, type SettingValues } from '../../base/settings.ts'
import type { GroupAdvantages } from '../tokens/group-advantages.ts'
import { type NamedTokenColumns, traceTokenLoss } from '../tokens/token-loss.ts'
import { algorithmPresets } from './loss-presets.ts'
import type { LossResult } from './loss-program.ts'
import {
  type LossSettings,
  lossSettings,
  sharedSettingNames,
  sharedValues,
  type TokenLossSettings,
} from './loss-settings.ts'
import { checkSettings, columnsOf, type LossDescriptor } from './losses.ts'

/** A custom loss with its settings. */
export interface TokenLossDefinition extends LossDescriptor, DefinitionRecord {}

/** Creates a custom loss from its settings. `id` and `settings` describe it. */
export type TokenLossFactory<S extends Settings = Settings> = Factory<S, TokenLossDefinition>

/**
 * Defines a token loss as arithmetic; its derivatives by `logprob` and `entropy` are computed automatically. `loss` is called once per
 * set of settings and returns the loss of a token, which is minimized after reduction by `aggregation`. It may also return `policyLoss`,
 * `klPenalty`, `ratio`, `clippedLow`, `clippedHigh` and `capped` for metrics (the last three count tokens: 1 or 0); a count that is
 * absent is NaN, and null in files. Inputs include the token's `advantage`, the correction's `weight`, and `sequenceTokens`, the number
 * of trained tokens of the sequence.
 *
 * Advantages, corrections, aggregation and a critic work as for every loss (`tokenLossSettings`). `advantages`, a function of the answers
 * of a group, replaces the group baseline and scale. With `module: import.meta.url` and an export under any name, `rl.loss=` takes the
 * module's path. Other threads receive the arithmetic only.
 * @throws InputError for a missing setting of `tokenLossSettings`; on creation, as `traceLoss` does, and if the loss does not read what
 * its settings enable: `advantage`, or the `weight` of a correction.
 * @example
 * export const tanhLoss = defineTokenLoss({
 *   id: 'tanh',
 *   module: import.meta.url,
 *   settings: tokenLossSettings({ aggregation: 'sequence-mean' }),
 *   loss: ({ logprob, oldLogprob, advantage }) => logprob.minus(oldLogprob).tanh().times(advantage).negative(),
 * })
 */
export function defineTokenLoss<S extends TokenLossSettings & Settings>(options: {
  id: string
  module?: string
  settings: S
  loss(columns: NamedTokenColumns, settings: SettingValues<S>): LossResult
  advantages?: GroupAdvantages
}): TokenLossFactory<S> {
  checkGiven('options of defineTokenLoss', options, ['id', 'settings', 'loss'])
  const { id, settings, loss, advantages = null } = options
  for (const name of sharedSettingNames) {
    if (Object.hasOwn(settings ?? {}, name)) continue
    throw new InputError(`${id} settings`, `no ${name}`, 'the settings of tokenLossSettings and its own')
  }
  if (Object.hasOwn(algorithmPresets, id)) throw new InputError('loss id', id, 'an id that no built-in loss has')
  return defineFactory('loss', options, (values): LossDescriptor => {
    const own = resolveSettings(id, lossSettings, sharedValues(values as never))
    checkSettings(id, own)
    const program = traceTokenLoss(id, (columns) => loss(columns, values))
    const reads = (column: string) => Object.hasOwn(program.columns, column)
    if (reads('advantage') !== (own.advantage !== 'none')) {
      const got = `${own.advantage}, and a loss that ${reads('advantage') ? 'reads' : 'does not read'} advantages`
      throw new InputError(`${id}.advantage`, got, reads('advantage') ? 'another advantage' : 'none')
    }
    if (own.correction !== 'none' && !reads('weight')) {
      throw new InputError(`${id}.correction`, `${own.correction}, and a loss that does not read weight`, 'none')
    }
    const level = program.steps.some(({ operation }) => operation === 'sequenceSum') ? 'sequence' : 'token'
    const columns = columnsOf(own, program)
    if (advantages !== null) refuseIdle(id, own, settings)
    return { id, preset: null, level, columns, aggregation: own.aggregation, settings: own, program, advantages }
  })
}

/** @throws InputError for an advantage setting that has no effect because the loss has its own advantage function. */
function refuseIdle(id: string, settings: LossSettings, declared: Settings): void {
  if (settings.advantage !== 'group') {
    throw new InputError(`${id}.advantage`, settings.advantage, 'group: a function computes its advantages')
  }
  for (const key of ['baseline', 'scale', 'unbiased', 'epsilon', 'lone'] as const) {
    if (settings[key] === declared[key]!.default) continue
    throw new InputError(`${id}.${key}`, show(settings[key]), 'its default: a function computes the advantages')
  }
}
