/** Losses of one's own over tokens: their definition, from which a descriptor is made as from the name of a built-in one. */
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

/** A loss of one's own with its settings. */
export interface TokenLossDefinition extends LossDescriptor, DefinitionRecord {}

/** Makes a loss of one's own from its settings; `id` and `settings` say which. */
export type TokenLossFactory<S extends Settings = Settings> = Factory<S, TokenLossDefinition>

/**
 * Defines a loss of tokens as arithmetic: its derivatives by `logprob` and `entropy` are worked out. The function is called once
 * for each set of settings, and gives the loss of a token; it is minimized as `aggregation` sums it. Beside the loss it may
 * give `policyLoss`, `klPenalty`, `ratio`, `clippedLow`, `clippedHigh` and `capped`, which metrics are made of (the last three
 * count tokens: 1 or 0); a count that it does not give is NaN, and null in files. `advantage` is the token's, `weight` that of the correction, `sequenceTokens` how many tokens of its sequence are learned from.
 *
 * Advantages, corrections, aggregation and a critic are those of every loss (`tokenLossSettings`); `advantages`, a function of the
 * answers of one group, takes the place of its baseline and its scale. With
 * `module: import.meta.url`, exported under any name, `rl.loss=` takes the module's path. Threads are sent the arithmetic.
 *
 * @throws InputError where a setting of `tokenLossSettings` is missing; when the loss is made, as `traceLoss` does, and where it
 * does not read what its settings ask for: `advantage`, or the `weight` of a correction.
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
    throw new InputError(`${id} settings`, `no ${name}`, 'those of tokenLossSettings, and its own')
  }
  if (Object.hasOwn(algorithmPresets, id)) throw new InputError('loss id', id, 'one that no loss of Colonnade has')
  return defineFactory('loss', options, (values): LossDescriptor => {
    const own = resolveSettings(id, lossSettings, sharedValues(values as never))
    checkSettings(id, own)
    const program = traceTokenLoss(id, (columns) => loss(columns, values))
    const reads = (column: string) => Object.hasOwn(program.columns, column)
    if (reads('advantage') !== (own.advantage !== 'none')) {
      const got = `${own.advantage}, and a loss that ${reads('advantage') ? 'reads' : 'does not read'} advantages`
      throw new InputError(`${id}.advantage`, got, reads('advantage') ? 'another one' : 'none')
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

/** @throws InputError for a setting of advantages that a loss does not read, which has a function for them. */
function refuseIdle(id: string, settings: LossSettings, declared: Settings): void {
  if (settings.advantage !== 'group') {
    throw new InputError(
      `${id}.advantage`,
      settings.advantage,
      'group: its advantages are made by a function of groups',
    )
  }
  for (const key of ['baseline', 'scale', 'unbiased', 'epsilon', 'lone'] as const) {
    if (settings[key] === declared[key]!.default) continue
    throw new InputError(
      `${id}.${key}`,
      show(settings[key]),
      'what it was: advantages are made by a function of groups',
    )
  }
}
