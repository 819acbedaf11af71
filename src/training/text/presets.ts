/** Settings with which each built-in text environment is known to be learnt; what a run uses where the user says nothing. */
import type { SettingValue } from '../../settings.ts'

type Tuned = Readonly<Record<string, SettingValue>>

/** What is known to work for a text environment. */
export interface TextPreset {
  readonly run: Tuned
  readonly sft: Tuned
  readonly rl: Tuned
  readonly loss: Tuned
  readonly model: Tuned
  readonly environment: Tuned
}

const untuned: TextPreset = { run: {}, sft: {}, rl: {}, loss: {}, model: {}, environment: {} }

/**
 * Supervised steps bring a model to where some answers are right; groups this large, and some entropy, keep it from settling
 * on the first that are. No reference holds it back.
 */
const warm: Partial<TextPreset> = {
  run: { numLanes: 128 },
  rl: { updates: 500, groupsPerUpdate: 64, groupSize: 16 },
  loss: { klCoef: 0, rewardKlCoef: 0, entropyCoef: 0.02 },
}

const letters: Partial<TextPreset> = { ...warm, environment: { maxLength: 4 }, sft: { steps: 35 } }

const presets: Readonly<Record<string, Partial<TextPreset>>> = {
  'text/reverse': letters,
  'text/copy': letters,
  'text/sort': { ...letters, sft: { steps: 25 } },
  'text/arithmetic-1': { ...warm, sft: { steps: 20 }, rl: { ...warm.rl, updates: 300 } },
  'text/arithmetic-2': { ...warm, sft: { steps: 600 }, rl: { ...warm.rl, updates: 400 } },
  'text/countdown': { ...warm, sft: { steps: 2000 }, rl: { ...warm.rl, updates: 250 } },
}

/** They were tuned, and are tested, with Adam's ε of openai/baselines. */
const EPSILON = 1e-5

/**
 * What a run uses where the user says nothing, who has given these keys: for a new model what is known to work for the text
 * environment, if anything is. A model that was loaded can talk already, so it takes no supervised steps unless their keys
 * are given, and as many lanes as fit; the rest are the settings' own defaults, which are the field's.
 */
export function textPresetOf(environment: string, given: Readonly<Record<string, string>> = {}): TextPreset {
  const known = Object.hasOwn(presets, environment) ? { ...untuned, ...presets[environment] } : untuned
  if (given['languageModel.folder']) {
    const isSupervised = Object.keys(given).some((key) => key.startsWith('sft.'))
    return { ...untuned, run: { mode: isSupervised ? 'sft+rl' : 'rl' }, environment: known.environment }
  }
  if (known === untuned) return untuned
  return { ...known, sft: { ...known.sft, epsilon: EPSILON }, rl: { ...known.rl, epsilon: EPSILON } }
}
