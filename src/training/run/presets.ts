/** A run's defaults: presets of environments, and of text environments, which are here. Tests check their returns. */
import { algorithms } from '../../algorithms/registry.ts'
import type { DefinitionRecord } from '../../base/definition.ts'
import type { Settings } from '../../base/settings.ts'
import type { EnvironmentPreset, TunedSettings } from '../../environments/environment.ts'
import { environments } from '../../environments/registry.ts'
import { languageModel } from '../../language/language-model.ts'
import { policies } from '../../policies/registry.ts'
import type { ConversationRunDefinition, EpisodeRunDefinition } from './definition.ts'

/** How many of the tested seeds reached the result ("What presets reach" in the repository's log). */
export type Reached = Wanted & { readonly reached: number; readonly seeds: number }

/** A mean return over fresh episodes, or a mean reward of the last 100 groups of a training. */
type Wanted = { readonly episodeReturn: number } | { readonly groupReward: number }

/** An environment's first preset with this policy and algorithm; an empty one without. */
export function presetOf(
  known: readonly EnvironmentPreset[],
  named: { policy?: string; algorithm?: string } = {},
): EnvironmentPreset {
  const isNamed = (part: 'policy' | 'algorithm', preset: EnvironmentPreset) =>
    (named[part] ?? preset[part].id) === preset[part].id
  const ofPolicy = Object.keys(usualPolicies).find((id) => usualPolicies[id] === named.policy)
  const { algorithm = ofPolicy ?? 'ppo' } = named
  const { policy = usualPolicies[algorithm] ?? 'mlp' } = named
  return (
    known.find((preset) => isNamed('policy', preset) && isNamed('algorithm', preset)) ?? {
      run: {},
      algorithm: { id: algorithm, parameters: {} },
      policy: { id: policy, parameters: {} },
    }
  )
}

/** The default policies of algorithms that need special ones. */
const usualPolicies: Readonly<Record<string, string>> = {
  dqn: 'qNetwork',
  sac: 'sacNetwork',
  td3: 'td3Network',
  td3bc: 'td3Network',
  iql: 'iqlNetwork',
  cql: 'sacNetwork',
  discreteCql: 'qNetwork',
}

/** How often a run that follows its preset succeeds; changed settings would change that. */
export function reachedByPreset(
  definition: Pick<EpisodeRunDefinition, 'environment' | 'policy' | 'algorithm' | 'systems' | 'settings'>,
): Reached | null {
  const { environment, policy, algorithm, systems, settings } = definition
  const preset = presetOf(environment.presets, { policy: policy.id, algorithm: algorithm.id })
  const follows =
    environment.wrappers === undefined &&
    systems.length === 0 &&
    isSame(preset.run, settings) &&
    isOfPreset(environment, preset.environment, environments) &&
    isOfPreset(algorithm, preset.algorithm.parameters, algorithms) &&
    isOfPreset(policy, preset.policy.parameters, policies)
  return follows ? (preset.reached ?? null) : null
}

/** Whether a part has its preset's settings and otherwise defaults. Only built-in parts are known. */
function isOfPreset(
  { id, parameters }: DefinitionRecord,
  tuned: TunedSettings = {},
  known: readonly { readonly id: string; readonly settings: Settings }[],
): boolean {
  const settings = known.find((factory) => factory.id === id)?.settings ?? {}
  // Records leave out settings that older runs lack, where they have their defaults.
  const defaults = Object.fromEntries(Object.entries(settings).map(([name, setting]) => [name, setting.default]))
  return isSame({ ...defaults, ...tuned }, { ...defaults, ...parameters })
}

function isSame(tuned: TunedSettings, given: Readonly<Record<string, unknown>>): boolean {
  return Object.entries(tuned).every(([key, value]) => JSON.stringify(given[key]) === JSON.stringify(value))
}

export interface TextPreset {
  readonly run: TunedSettings
  readonly sft: TunedSettings
  readonly rl: TunedSettings
  readonly loss: TunedSettings
  readonly model: TunedSettings
  readonly environment: TunedSettings
  readonly reached?: Reached
}

const untunedText: TextPreset = { run: {}, sft: {}, rl: {}, loss: {}, model: {}, environment: {} }

/** Supervised steps make some answers right; large groups and entropy avoid settling on the first. No reference. */
const warm: Partial<TextPreset> = {
  run: { numLanes: 128 },
  rl: { updates: 500, groupsPerUpdate: 64, groupSize: 16 },
  loss: { klCoef: 0, rewardKlCoef: 0, entropyCoef: 0.02 },
}

const letters: Partial<TextPreset> = { ...warm, environment: { maxLength: 4 }, sft: { updates: 35 } }

const textPresets: Readonly<Record<string, Partial<TextPreset>>> = {
  // After 35 supervised steps seeds settled on nearly right answers (0.86 to 0.93), and more entropy or a falling rate did not help.
  'text/reverse': { ...letters, sft: { updates: 150 }, reached: { groupReward: 0.95, reached: 6, seeds: 6 } },
  'text/copy': letters,
  'text/sort': { ...letters, sft: { updates: 25 } },
  'text/arithmetic-1': { ...warm, sft: { updates: 20 }, rl: { ...warm.rl, updates: 300 } },
  'text/arithmetic-2': { ...warm, sft: { updates: 600 }, rl: { ...warm.rl, updates: 400 } },
  // With a constant rate one of three seeds unlearned the best guesses, and reached 0.73.
  'text/guess-number': {
    run: { numLanes: 128, heldOutFraction: 0.2 },
    sft: { updates: 300 },
    rl: { updates: 250, groupsPerUpdate: 20, groupSize: 16, learningRateSchedule: 'linear' },
    loss: { klCoef: 0, rewardKlCoef: 0, entropyCoef: 0.01 },
    model: { width: 32, layers: 2 },
  },
  // With one digit there are 200 questions: a model memorized those in training, and scored 0.39 on others.
  'text/math-multi-turn': {
    ...warm,
    run: { ...warm.run, heldOutFraction: 0.2 },
    environment: { digits: 2 },
    sft: { updates: 6000, learningRateSchedule: 'linear' },
    rl: { ...warm.rl, updates: 200, learningRateSchedule: 'linear' },
    loss: { ...warm.loss, entropyCoef: 0 },
  },
  'text/tool-arithmetic': {
    ...warm,
    run: { ...warm.run, heldOutFraction: 0.2 },
    sft: { updates: 1000 },
    rl: { ...warm.rl, updates: 120 },
    loss: { ...warm.loss, entropyCoef: 0.01 },
  },
  'text/countdown': { ...warm, sft: { updates: 2000 }, rl: { ...warm.rl, updates: 250 } },
}

/** Adam's ε of openai/baselines, with which they were tuned and tested. */
const EPSILON = 1e-5

/**
 * A run's defaults, given the user's keys: for a new model the text environment's tuned settings. A loaded model can
 * already talk, so it takes no supervised steps unless their keys are given, and as many lanes as fit; its other
 * settings have standard defaults.
 */
export function textPresetOf(environment: string, given: Readonly<Record<string, string>> = {}): TextPreset {
  const known = Object.hasOwn(textPresets, environment) ? { ...untunedText, ...textPresets[environment] } : untunedText
  if (given['languageModel.folder']) {
    const isSupervised = Object.keys(given).some((key) => key.startsWith('sft.'))
    return { ...untunedText, run: { mode: isSupervised ? 'sft+rl' : 'rl' }, environment: known.environment }
  }
  if (known === untunedText) return untunedText
  return { ...known, sft: { ...known.sft, epsilon: EPSILON }, rl: { ...known.rl, epsilon: EPSILON } }
}

/** How often a new language model's run by its GRPO preset succeeds, if not always. */
export function reachedByTextPreset(definition: ConversationRunDefinition): Reached | null {
  const { environment, policy, sft, rl, settings } = definition
  if (sft === null || rl === null || rl.settings.loss !== 'grpo' || rl.filter !== null) return null
  const preset = textPresetOf(environment.id)
  const follows =
    isSame(preset.run, settings) &&
    isSame(preset.sft, sft.parameters) &&
    isSame(preset.rl, rl.parameters) &&
    isSame(preset.loss, rl.loss.settings as never) &&
    isOfPreset(policy, preset.model, [languageModel]) &&
    isSame(preset.environment, environment.parameters)
  return follows ? (preset.reached ?? null) : null
}
