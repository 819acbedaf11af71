/**
 * Reinforcement learning of a language model: samples groups of conversations, compares their rewards, and makes better answers more
 * likely. A descriptor selects the loss and its settings.
 */
import { type DefinitionRecord, modulesOf, type Parts, withParts } from '../../base/definition.ts'
import { InputError, show, unknownWord } from '../../base/errors.ts'
import type { Metrics } from '../../base/metrics.ts'
import {
  choice,
  integer,
  number,
  part,
  resolveSettings,
  type SettingValue,
  type SettingValues,
  strings,
  text,
} from '../../base/settings.ts'
import { type GroupFilter, groupFilterIds, groupFilterOf } from '../../language/rewards/filters.ts'
import type { TokenLossFactory } from '../losses/define-token-loss.ts'
import { algorithmPresets, type LossId, type Preset, projectSettings } from '../losses/loss-presets.ts'
import type { LossSettings } from '../losses/loss-settings.ts'
import { describeLoss, type LossDescriptor } from '../losses/losses.ts'
import { checkOptimizer, learningRateSetting } from '../optimizers/optimizer.ts'
import { tokenOptimizerSettings } from '../optimizers/tensors.ts'
import { schedules } from '../schedule.ts'
import { rlMetrics } from './text-metrics.ts'

const lossIds = Object.keys(algorithmPresets).filter((id) => id !== 'sft') as LossId[]

/** The rate of a loaded model is TRL's; the rate of adapters is from PEFT's guides. */
export const rlRates = { made: 1e-3, loaded: 1e-6, adapter: 1e-4 } as const

export const rlSettings = {
  loss: part('loss', 'grpo', `the loss (${lossIds.join(', ')}, or the path of a module that exports one)`),
  preset: choice(
    'paper',
    Object.keys(projectSettings) as Preset[],
    "which system's defaults the loss takes; a custom loss takes those of its module",
  ),
  teacher: text(
    '',
    'the model that gives the reference log-probabilities, such as the teacher of loss distill: a folder, a hub id, or a server like vllm:http://… or sglang:http://…; empty: the initial model',
  ),
  updates: integer(100, 'updates', { min: 0 }),
  groupsPerUpdate: integer(16, 'groups per update', { min: 1 }),
  groupSize: integer(8, 'conversations per prompt', { min: 1 }),
  filter: part(
    'filter',
    'none',
    `filter of groups (${groupFilterIds.join(', ')}, or the path of a module that exports a filter); new groups replace dropped ones`,
  ),
  filterSettings: strings(
    [],
    'settings of the filter, like threshold=0.3; each also has its own key (rl.filter.threshold=0.3)',
  ),
  dropsMax: integer(1000, 'maximum of dropped groups per update', { min: 0 }),
  maxStaleness: integer(
    0,
    'η: maximum of updates between the weights that chose a token and those that learn from it; 0: no sampling during an update',
    { min: 0 },
  ),
  overSampling: number(1, 'groups to start per group that an update needs; more than 1 makes up for dropped groups', {
    min: 1,
  }),
  order: choice('number', ['number', 'arrival'], 'learn from groups in the order in which they began or finished'),
  failure: choice(
    'keep',
    ['keep', 'drop', 'throw'],
    'what happens to a group after the engine fails in one of its conversations: keep the group without that reward, drop the group, or end the training',
  ),
  weightSwap: choice(
    'in-place',
    ['in-place', 'interrupt'],
    'how running turns get new weights: in-place: from their next token on; interrupt: the turn is aborted, and continues from its tokens',
  ),
  staleLoss: choice(
    'bounded',
    ['bounded', 'any'],
    'with maxStaleness above 0: require a loss that clips or corrects the ratio (bounded), or allow any loss',
  ),
  updateEpochs: integer(1, 'passes over the conversations of an update', { min: 1 }),
  numMinibatches: integer(
    1,
    'minibatches per pass, one optimizer step each; advantages are computed over the whole update',
    {
      min: 1,
    },
  ),
  learningRate: learningRateSetting(rlRates),
  learningRateSchedule: choice('constant', schedules, 'schedule of the learning rate after its warm-up'),
  warmupFraction: number(0, 'warm-up: fraction of the updates in which the learning rate rises', { min: 0, max: 1 }),
  maxGradNorm: number(1, 'global norm to which the gradient is clipped', { above: 0 }),
  temperature: number(1, 'temperature that divides the logits, in sampling and training', { above: 0 }),
  topK: integer(0, 'sample from this many most probable tokens; 0: from all', { min: 0 }),
  topP: number(1, 'sample from the fewest tokens that have this probability together', { above: 0, max: 1 }),
  minP: number(0, 'sample from tokens with at least this fraction of the highest probability', { min: 0, max: 1 }),
  ...tokenOptimizerSettings(1e-8), // As in PyTorch and TRL.
}

export type RlSettings = SettingValues<typeof rlSettings>

/** Reinforcement learning with its settings. */
export interface RlDefinition extends DefinitionRecord {
  readonly settings: RlSettings
  readonly loss: LossDescriptor
  readonly metrics: Metrics
  /** Null if no group is dropped. */
  readonly filter: GroupFilter | null
  /** A custom loss and filter, if given. */
  readonly parts: Parts
}

/**
 * Reinforcement learning of a language model. A custom loss or filter is given as a part.
 * @throws InputError for an unknown setting or filter, a setting out of range, and groups of one with a loss that compares rewards.
 * @example rl({ loss: 'dapo', groupSize: 16, lossSettings: { klCoef: 0.01 } })
 * @example rl({}, { filter: defineGroupFilter('two', (group) => group.filter(({ reward }) => reward === 1).length >= 2) })
 */
export function rl(
  parameters: Partial<RlSettings> & {
    lossSettings?: Readonly<Record<string, SettingValue>> | Partial<LossSettings>
  } = {},
  parts: Parts = {},
): RlDefinition {
  if (typeof parameters !== 'object' || parameters === null) {
    throw new InputError('rl', show(parameters), 'an object of settings')
  }
  const { lossSettings = {}, ...given } = parameters
  const settings = resolveSettings('rl', rlSettings, withParts('rl', rlSettings, given, parts))
  const filter = groupFilterOf(parts.filter ?? settings.filter, settings.filterSettings)
  checkOptimizer('rl', settings, parts, true)
  const loss = lossOf(settings, lossSettings, ownLoss(parts))
  const comparesGroup = loss.settings.advantage === 'group' && loss.advantages === null
  if (comparesGroup && loss.settings.lone === 'mask' && settings.groupSize === 1) {
    throw new InputError('rl.groupSize', '1', `at least 2: ${settings.loss} compares the rewards of a group`)
  }
  checkStaleLoss(settings, loss)
  const hasReference = loss.columns.includes('referenceLogprob')
  if (settings.teacher !== '' && !hasReference) {
    const expected = 'none, or a loss that compares with a reference, like distill with rewardKlCoef=1'
    throw new InputError('rl.teacher', `${settings.teacher}, with loss ${loss.id}`, expected)
  }
  if (settings.teacher === '' && loss.id === 'distill') {
    throw new InputError('rl.teacher', 'none', 'a model or server to learn from, for loss distill')
  }
  const conversations = settings.groupsPerUpdate * settings.groupSize
  if (settings.numMinibatches > conversations) {
    const expected = `at most ${conversations}, the conversations of an update`
    throw new InputError('rl.numMinibatches', String(settings.numMinibatches), expected)
  }
  const travelling = { id: 'rl', parameters: { ...saidOf(settings), lossSettings }, module: import.meta.url }
  return Object.freeze({ ...travelling, ...modulesOf(parts), settings, loss, filter, parts, metrics: rlMetrics })
}

rl.metrics = rlMetrics

/** Settings that older runs lack: a definition contains them only if they differ from the default. */
const NEWER = [
  'teacher',
  'filterSettings',
  'maxStaleness',
  'overSampling',
  'order',
  'failure',
  'weightSwap',
  'staleLoss',
] as const

function saidOf(settings: RlSettings): Partial<RlSettings> {
  const isDefault = (key: (typeof NEWER)[number]) => show(settings[key]) === show(rlSettings[key].default)
  const left = new Set<string>(NEWER.filter(isDefault))
  return Object.fromEntries(Object.entries(settings).filter(([key]) => !left.has(key)))
}

/** Rejects stale tokens for a loss with an unbounded ratio. */
function checkStaleLoss({ maxStaleness, staleLoss }: RlSettings, { id, program, settings }: LossDescriptor): void {
  if (maxStaleness === 0 || staleLoss === 'any' || settings.correction !== 'none') return
  const { surrogate, clipHigh } = settings
  const isClipped = program === null && (surrogate === 'sapo' || (surrogate !== 'cross-entropy' && clipHigh !== null))
  if (isClipped) return
  const got = `${maxStaleness}, with loss ${id}, ${program === null ? 'whose ratio is not clipped' : 'which may not clip its ratio'}`
  throw new InputError('rl.maxStaleness', got, 'a clipped loss, a correction, or rl.staleLoss any')
}

/** Returns the custom loss, if one is given. @throws InputError if `defineTokenLoss` did not create it. */
export function ownLoss(parts: Parts): TokenLossFactory | undefined {
  const { loss } = parts as { readonly loss?: Parts[string] & Partial<TokenLossFactory> }
  if (loss === undefined || Object.hasOwn(loss, 'settings')) return loss as TokenLossFactory | undefined
  throw new InputError('rl.loss', show(loss), 'a loss made by defineTokenLoss')
}

function lossOf({ loss, preset }: RlSettings, lossSettings: object, own: TokenLossFactory | undefined): LossDescriptor {
  if (own === undefined) {
    if (!(lossIds as string[]).includes(loss)) throw unknownWord('rl.loss', loss, lossIds)
    return describeLoss(loss as LossId, preset, lossSettings)
  }
  if (preset === 'paper') return own(lossSettings)
  throw new InputError('rl.preset', preset, `no preset: ${loss} has the settings of its module`)
}
