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

/** What is known to work for a text environment; nothing, where nothing is known. */
export function textPresetOf(environment: string): TextPreset {
  if (!Object.hasOwn(presets, environment)) return untuned
  const preset = { ...untuned, ...presets[environment] }
  return { ...preset, sft: { ...preset.sft, epsilon: EPSILON }, rl: { ...preset.rl, epsilon: EPSILON } }
}
