/** Settings with which each built-in text environment is known to be learnt; what a run uses where the user says nothing. */
import type { SettingValue } from '../settings.ts'

type Tuned = Readonly<Record<string, SettingValue>>

/** What is known to work for a text environment. */
export interface TextPreset {
  readonly run: Tuned
  readonly sft: Tuned
  readonly rl: Tuned
  readonly model: Tuned
  readonly environment: Tuned
}

const untuned: TextPreset = { run: {}, sft: {}, rl: {}, model: {}, environment: {} }

const presets: Readonly<Record<string, Partial<TextPreset>>> = {
  'text/reverse': { sft: { steps: 60 }, rl: { updates: 600, groupSize: 16 } },
}

/** What is known to work for a text environment; nothing, where nothing is known. */
export function textPresetOf(environment: string): TextPreset {
  return { ...untuned, ...(Object.hasOwn(presets, environment) ? presets[environment] : {}) }
}
