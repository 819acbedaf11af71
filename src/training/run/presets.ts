/**
 * What a run uses where the user says nothing: the presets that an environment declares, and those of text environments, which stand
 * here. `tests/learning` and `bench/learning` hold the returns they reach.
 */
import { algorithms } from '../../algorithms/registry.ts'
import type { DefinitionRecord } from '../../base/definition.ts'
import type { Settings } from '../../base/settings.ts'
import type { EnvironmentPreset, TunedSettings } from '../../environments/environment.ts'
import { environments } from '../../environments/registry.ts'
import { languageModel } from '../../language/language-model.ts'
import { policies } from '../../policies/registry.ts'
import type { ConversationRunDefinition, EpisodeRunDefinition } from './definition.ts'

/** Of so many seeds, those that reached what was wanted ("What presets reach" in the log of the repository). */
export type Reached = Wanted & { readonly reached: number; readonly seeds: number }

/** A mean return of a policy over fresh episodes, or a mean reward of the last 100 groups of a training. */
type Wanted = { readonly episodeReturn: number } | { readonly groupReward: number }

/** Of an environment's presets the first with the named policy and algorithm; nothing tuned, where there is none. */
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

/** The policies of algorithms that learn others than those of probabilities. */
const usualPolicies: Readonly<Record<string, string>> = { dqn: 'qNetwork', sac: 'sacNetwork' }

/** What a run differs in from its preset decides how often it succeeds: of a run that follows it, how often that was. */
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

/** Whether a part has the settings that a preset tunes, and the defaults of all others; these are known of parts that come with Colonnade. */
function isOfPreset(
  { id, parameters }: DefinitionRecord,
  tuned: TunedSettings = {},
  known: readonly { readonly id: string; readonly settings: Settings }[],
): boolean {
  const settings = known.find((factory) => factory.id === id)?.settings ?? {}
  const defaults = Object.entries(settings).map(([name, setting]) => [name, setting.default])
  return isSame({ ...Object.fromEntries(defaults), ...tuned }, parameters)
}

function isSame(tuned: TunedSettings, given: Readonly<Record<string, unknown>>): boolean {
  return Object.entries(tuned).every(([key, value]) => JSON.stringify(given[key]) === JSON.stringify(value))
}

/** What is known to work for a text environment. */
export interface TextPreset {
  readonly run: TunedSettings
  readonly sft: TunedSettings
  readonly rl: TunedSettings
  readonly loss: TunedSettings
  readonly model: TunedSettings
  readonly environment: TunedSettings
  /** As of `EnvironmentPreset`. */
  readonly reached?: Reached
}

const untunedText: TextPreset = { run: {}, sft: {}, rl: {}, loss: {}, model: {}, environment: {} }

/**
 * Supervised steps bring a model to where some answers are right; groups this large, and some entropy, keep it from settling
 * on the first that are. No reference holds it back.
 */
const warm: Partial<TextPreset> = {
  run: { numLanes: 128 },
  rl: { updates: 500, groupsPerUpdate: 64, groupSize: 16 },
  loss: { klCoef: 0, rewardKlCoef: 0, entropyCoef: 0.02 },
}

const letters: Partial<TextPreset> = { ...warm, environment: { maxLength: 4 }, sft: { updates: 35 } }

const textPresets: Readonly<Record<string, Partial<TextPreset>>> = {
  // One had settled on answers that are nearly right: 0.90.
  'text/reverse': { ...letters, reached: { groupReward: 0.95, reached: 4, seeds: 5 } },
  'text/copy': letters,
  'text/sort': { ...letters, sft: { updates: 25 } },
  'text/arithmetic-1': { ...warm, sft: { updates: 20 }, rl: { ...warm.rl, updates: 300 } },
  'text/arithmetic-2': { ...warm, sft: { updates: 600 }, rl: { ...warm.rl, updates: 400 } },
  // With a constant rate one of three seeds left the best guesses again, and came to 0.73.
  'text/guess-number': {
    run: { numLanes: 128, heldOutFraction: 0.2 },
    sft: { updates: 300 },
    rl: { updates: 250, groupsPerUpdate: 20, groupSize: 16, learningRateSchedule: 'linear' },
    loss: { klCoef: 0, rewardKlCoef: 0, entropyCoef: 0.01 },
    model: { width: 32, layers: 2 },
  },
  // With one digit there are 200 questions: a model learned those that it was asked by heart, and was worth 0.39 on the others.
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

/** They were tuned, and are tested, with Adam's ε of openai/baselines. */
const EPSILON = 1e-5

/**
 * What a run uses where the user says nothing, who has given these keys: for a new model what is known to work for the text
 * environment, if anything is. A model that was loaded can talk already, so it takes no supervised steps unless their keys
 * are given, and as many lanes as fit; the rest are the settings' own defaults, which are the field's.
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

/** Of a run of a new language model that follows its preset, by GRPO: how often that succeeds, where not always. */
export function reachedByTextPreset(definition: ConversationRunDefinition): Reached | null {
  const { environment, policy, sft, rl, settings } = definition
  if (sft === null || rl === null || rl.settings.loss !== 'grpo' || rl.filter !== null) return null
  const preset = textPresetOf(environment.id)
  const follows =
    isSame(preset.run, settings) &&
    isSame(preset.sft, sft.parameters) &&
    isSame(preset.rl, rl.parameters) &&
    isSame(preset.loss, rl.loss.settings as never) &&
    isSame(languageModel(preset.model as never).parameters as TunedSettings, policy.parameters) &&
    isSame(preset.environment, environment.parameters)
  return follows ? (preset.reached ?? null) : null
}
