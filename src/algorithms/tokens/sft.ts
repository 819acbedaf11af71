/**
 * Training on given answers: supervised fine-tuning, the cross-entropy of the answers' tokens; distillation, the forward KL divergence to
 * a teacher's distribution at each of them; or a loss of preferences, which compares good answers with bad ones. The examples have a new
 * order per epoch.
 */
import { type DefinitionRecord, defineFactory, type Factory, type Parts } from '../../base/definition.ts'
import { InputError, show } from '../../base/errors.ts'
import type { Metrics } from '../../base/metrics.ts'
import {
  choice,
  integer,
  number,
  part,
  readSettingTexts,
  type SettingValue,
  type SettingValues,
  strings,
  text,
} from '../../base/settings.ts'
import type { PreferenceLossFactory } from '../losses/define-preference-loss.ts'
import { comparesAnswers, describeLoss, type LossDescriptor, readsScores } from '../losses/losses.ts'
import { preferenceLossIds, preferenceLossOf } from '../losses/preference-losses.ts'
import { checkOptimizer, type DefaultRates, learningRateSetting } from '../optimizers/optimizer.ts'
import { tokenOptimizerSettings } from '../optimizers/tensors.ts'
import { schedules } from '../schedule.ts'
import { preferenceMetrics, sftMetrics } from './text-metrics.ts'

/** The rate of a loaded model is TRL's; the rate of adapters is from TRL's guides. */
export const sftRates = { made: 3e-3, loaded: 2e-5, adapter: 1e-4 } as const

/** The learning rates of a loaded model and of its adapters are those of DPO in TRL and its guides. */
const preferenceRates = { made: 3e-4, loaded: 1e-6, adapter: 1e-5 } as const

/** A reward model is trained faster: that rate of TRL's, and ten times it for adapters. */
const scoreRates = { made: 3e-4, loaded: 1e-4, adapter: 1e-3 } as const

const listed = ({ made, loaded, adapter }: DefaultRates) => `${made}, ${loaded} and ${adapter}`

export const sftSettings = {
  loss: part(
    'loss',
    'sft',
    `the loss: sft for answers to imitate; or one for preferences (${preferenceLossIds.join(', ')}, or the path of a module that exports one)`,
  ),
  lossSettings: strings(
    [],
    'settings of a loss for preferences, like beta=0.2; each also has its own key (sft.loss.beta=0.2)',
  ),
  teacher: text(
    '',
    "a model, by folder or hub id, whose distribution of each token of the answers is learned in place of the token (distillation; the loss is the forward KL divergence to it, in nats), in one thread and memory of its own; the student's tokens",
  ),
  updates: integer(100, 'updates, each an optimizer step', { min: 0 }),
  batchSize: integer(64, 'examples per step', { min: 1 }),
  learningRate: withPreferences(learningRateSetting(sftRates)),
  learningRateSchedule: choice('constant', schedules, 'schedule of the learning rate after its warm-up'),
  warmupFraction: number(0, 'warm-up: fraction of the updates in which the learning rate rises', { min: 0, max: 1 }),
  maxGradNorm: number(1, 'global norm to which the gradient is clipped', { above: 0 }),
  ...tokenOptimizerSettings(1e-8), // As in PyTorch and TRL.
}

function withPreferences(setting: ReturnType<typeof learningRateSetting>) {
  return {
    ...setting,
    description: `${setting.description}; for preferences: ${listed(preferenceRates)}; for a reward model: ${listed(scoreRates)}`,
  }
}

export type SftSettings = SettingValues<typeof sftSettings>

/** Training on given answers with its settings. */
export interface SftDefinition extends DefinitionRecord {
  readonly settings: SftSettings
  readonly loss: LossDescriptor
  readonly metrics: Metrics
  /** A custom loss or optimizer, if given. */
  readonly parts: Parts
}

/** The default learning rates of its loss. */
export function ratesOf({ loss }: Pick<SftDefinition, 'loss'>): DefaultRates {
  if (readsScores(loss)) return scoreRates
  return comparesAnswers(loss) ? preferenceRates : sftRates
}

const factory: Factory<typeof sftSettings, SftDefinition> = defineFactory(
  'algorithm',
  { id: 'sft', module: import.meta.url, settings: sftSettings, newer: ['loss', 'lossSettings', 'teacher'] },
  (settings, parts) => {
    checkOptimizer('sft', settings, parts, true)
    const loss = lossOf(settings, parts.loss)
    if (settings.teacher !== '' && loss.id !== 'sft') {
      throw new InputError('sft.teacher', `${show(settings.teacher)}, with loss ${loss.id}`, 'none, or loss sft')
    }
    if (loss.level === 'answer' && settings.batchSize < 2 && Object.hasOwn(loss.program!.columns, 'kl')) {
      throw new InputError(
        'sft.batchSize',
        '1',
        `at least 2: ${loss.id} pairs prompts with answers to others of the batch`,
      )
    }
    return {
      settings,
      loss,
      metrics: comparesAnswers(loss) ? { ...sftMetrics, ...preferenceMetrics } : sftMetrics,
      parts,
    }
  },
)

/**
 * Training on given answers: supervised fine-tuning, or a loss of preferences by id or as a part.
 * @throws InputError for an unknown setting or loss, and a setting out of range.
 * @example sft({ updates: 200, learningRate: 1e-3 })
 * @example sft({ loss: 'dpo', lossSettings: ['beta=0.2'] })
 */
export const sft = Object.assign(factory, { metrics: sftMetrics })

function lossOf({ loss, lossSettings }: SftSettings, own: Parts[string] | undefined): LossDescriptor {
  if (own === undefined && loss === 'sft') {
    if (lossSettings.length === 0) return describeLoss('sft')
    throw new InputError('sft.lossSettings', show(lossSettings), 'none: the loss sft has no settings')
  }
  const found = (own ??
    preferenceLossOf(
      'sft.loss',
      loss,
      'sft, or the path of a module that exports one',
    )) as Partial<PreferenceLossFactory>
  if (!Object.hasOwn(found, 'settings')) {
    throw new InputError('sft.loss', show(loss), 'a loss made by definePreferenceLoss')
  }
  const make = found as PreferenceLossFactory
  const given = readSettingTexts('sft.lossSettings', `loss ${make.id}`, make.settings, lossSettings)
  const made: LossDescriptor = make(given as Record<string, SettingValue>)
  if (comparesAnswers(made)) return made
  throw new InputError('sft.loss', show(loss), 'a loss made by definePreferenceLoss')
}
