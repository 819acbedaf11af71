/** Supervised fine-tuning: cross-entropy of the answers' tokens, with the examples in a new order per epoch. */
import { type DefinitionRecord, defineFactory, type Factory } from '../../base/definition.ts'
import type { Metrics } from '../../base/metrics.ts'
import { choice, integer, number, type SettingValues } from '../../base/settings.ts'
import { describeLoss, type LossDescriptor } from '../losses/losses.ts'
import { checkOptimizer, learningRateSetting, optimizerSettings } from '../optimizers/optimizer.ts'
import { schedules } from '../schedule.ts'
import { sftMetrics } from './text-metrics.ts'

/** The rate of a loaded model is TRL's; the rate of adapters is from TRL's guides. */
export const sftRates = { made: 3e-3, loaded: 2e-5, adapter: 1e-4 } as const

export const sftSettings = {
  updates: integer(100, 'updates, each an optimizer step', { min: 0 }),
  batchSize: integer(64, 'examples per step', { min: 1 }),
  learningRate: learningRateSetting(sftRates),
  learningRateSchedule: choice('constant', schedules, 'schedule of the learning rate after its warm-up'),
  warmupFraction: number(0, 'warm-up: fraction of the updates in which the learning rate rises', { min: 0, max: 1 }),
  maxGradNorm: number(1, 'global norm to which the gradient is clipped', { above: 0 }),
  ...optimizerSettings(1e-8), // As in PyTorch and TRL.
}

/** Supervised fine-tuning with its settings. */
export interface SftDefinition extends DefinitionRecord {
  readonly settings: SettingValues<typeof sftSettings>
  readonly loss: LossDescriptor
  readonly metrics: Metrics
}

const factory: Factory<typeof sftSettings, SftDefinition> = defineFactory(
  'algorithm',
  { id: 'sft', module: import.meta.url, settings: sftSettings },
  (settings, parts) => {
    checkOptimizer('sft', settings, parts)
    return { settings, loss: describeLoss('sft'), metrics: sftMetrics }
  },
)

/** Supervised fine-tuning. @example sft({ updates: 200, learningRate: 1e-3 }) */
export const sft = Object.assign(factory, { metrics: sftMetrics })
