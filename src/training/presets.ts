/**
 * Settings with which each built-in environment is known to be learnt, text among them; what a run uses where the user says nothing.
 * `tests/learning` and `bench/learning` hold the returns they reach.
 */
import type { DefinitionRecord } from '../definition.ts'
import type { SettingValue } from '../settings.ts'
import { languageModel } from '../text/language-model.ts'
import type { ConversationRunDefinition } from './conversation-run.ts'

/** What is known to work for an environment with one policy and one algorithm. */
export interface Preset {
  readonly run: Tuned
  readonly algorithm: TunedPart
  readonly policy: TunedPart
  /** How often it was seen to get there, where that was not always: a run says so at its end. */
  readonly reached?: Reached
}

/** Settings that differ from their defaults. */
type Tuned = Readonly<Record<string, SettingValue>>

/** A policy or an algorithm with such settings. */
interface TunedPart {
  readonly id: string
  readonly parameters: Tuned
}

/** Of so many seeds, those that reached what was wanted (`docs/bench.md`). */
export type Reached = Wanted & { readonly reached: number; readonly seeds: number }

/** A mean return of a policy over fresh episodes, or a mean reward of the last 100 groups of a training. */
type Wanted = { readonly episodeReturn: number } | { readonly groupReward: number }

/** By environment; the first is taken where no policy is named. */
const presets: Readonly<Record<string, readonly Preset[]>> = {
  'CartPole-v1': [
    {
      run: { numLanes: 16, totalSteps: 100_000 },
      algorithm: {
        id: 'ppo',
        parameters: {
          numSteps: 64,
          numMinibatches: 16,
          updateEpochs: 3,
          learningRate: 2e-3,
          gamma: 0.98,
          gaeLambda: 0.95,
        },
      },
      policy: { id: 'mlp', parameters: {} },
    },
    {
      run: { numLanes: 16, totalSteps: 200_000 },
      algorithm: { id: 'a2c', parameters: { learningRate: 2e-3, learningRateSchedule: 'linear', gamma: 0.98 } },
      policy: { id: 'mlp', parameters: {} },
    },
  ],
  'Pendulum-v1': [
    {
      run: { numLanes: 64, totalSteps: 204_800 },
      algorithm: {
        id: 'ppo',
        parameters: {
          numSteps: 128,
          numMinibatches: 64,
          updateEpochs: 2,
          learningRate: 1.5e-3, // With 3e-3 one seed in twelve never swings it up.
          gamma: 0.95,
          gaeLambda: 0.95,
          valueCoef: 0.05, // Returns are in the hundreds: with more, gradients are clipped for the critic's sake.
        },
      },
      policy: { id: 'mlp', parameters: { activation: 'relu' } },
    },
    {
      run: { numLanes: 32, totalSteps: 3_000_000 },
      algorithm: {
        id: 'a2c',
        parameters: {
          numSteps: 32,
          learningRate: 1.5e-3, // With 2e-3, or half the lanes, one seed or another stays below -200.
          learningRateSchedule: 'linear',
          gamma: 0.95,
          gaeLambda: 0.95,
          normalizeAdvantage: true,
          valueCoef: 0.05,
          epsilon: 1e-3,
        },
      },
      policy: { id: 'mlp', parameters: { activation: 'relu' } },
    },
  ],
  'CartPole-P-v1': [
    {
      run: { numLanes: 32, totalSteps: 300_000 },
      algorithm: {
        id: 'ppo',
        parameters: {
          numSteps: 128,
          numMinibatches: 16,
          updateEpochs: 3,
          learningRate: 4e-3,
          gamma: 0.98,
          gaeLambda: 0.95,
        },
      },
      policy: {
        id: 'recurrent',
        // With a shared trunk, 300,000 steps reach 25 to 126.
        parameters: { units: 32, hidden: [32, 32], activation: 'relu', sequenceLength: 32 },
      },
      // One ends with a cart that drifts away, and which one changes with the last bits of the kernels.
      reached: { episodeReturn: 475, reached: 5, seeds: 6 },
    },
  ],
  'Recall-v0': [
    {
      run: { numLanes: 64, totalSteps: 60_000 },
      algorithm: {
        id: 'ppo',
        parameters: { numSteps: 24, numMinibatches: 8, updateEpochs: 4, learningRate: 4e-3 },
      },
      policy: { id: 'recurrent', parameters: { units: 32, hidden: [32], sequenceLength: 24, sharedTrunk: true } },
    },
  ],
  'Breakout-MinAtar': [
    {
      run: { numLanes: 64, totalSteps: 1_000_000 },
      algorithm: {
        id: 'ppo',
        parameters: { numSteps: 32, numMinibatches: 8, updateEpochs: 4, learningRate: 5e-3, entropyCoef: 0.01 },
      },
      policy: { id: 'mlp', parameters: { activation: 'relu' } },
    },
    {
      run: { numLanes: 64, totalSteps: 1_000_000 },
      algorithm: {
        id: 'ppo',
        parameters: {
          numSteps: 32,
          numMinibatches: 8,
          updateEpochs: 3,
          learningRate: 6e-3, // With 2e-3 it stays at 6, as the perceptron does.
          clipCoef: 0.1,
          gamma: 0.98,
          entropyCoef: 0.01,
        },
      },
      policy: { id: 'convolutional', parameters: { filters: [16], hidden: [64] } },
      reached: { episodeReturn: 15.2, reached: 2, seeds: 3 },
    },
  ],
  'TicTacToe-v0': [
    {
      run: { numLanes: 64, totalSteps: 500_000 },
      algorithm: {
        id: 'ppo',
        parameters: {
          numSteps: 32,
          numMinibatches: 8,
          updateEpochs: 4,
          learningRate: 2e-3,
          gamma: 1,
          entropyCoef: 0.02,
        },
      },
      policy: { id: 'mlp', parameters: { activation: 'relu' } },
    },
    {
      run: { numLanes: 64, totalSteps: 500_000 },
      algorithm: {
        id: 'ppo',
        parameters: {
          numSteps: 32,
          numMinibatches: 8,
          updateEpochs: 4,
          learningRate: 3e-3,
          gamma: 1,
          entropyCoef: 0.02,
        },
      },
      policy: {
        id: 'recurrent',
        parameters: { hidden: [64], activation: 'relu', sequenceLength: 8, sharedTrunk: true },
      },
    },
  ],
}

/** What is known to work for an environment, with the named policy and algorithm or the best ones; nothing, where nothing is known. */
export function presetOf(environment: string, named: { policy?: string; algorithm?: string } = {}): Preset {
  const known = Object.hasOwn(presets, environment) ? presets[environment]! : []
  const isNamed = (part: 'policy' | 'algorithm', preset: Preset) => (named[part] ?? preset[part].id) === preset[part].id
  const { policy = 'mlp', algorithm = 'ppo' } = named
  return (
    known.find((preset) => isNamed('policy', preset) && isNamed('algorithm', preset)) ?? {
      run: {},
      algorithm: { id: algorithm, parameters: {} },
      policy: { id: policy, parameters: {} },
    }
  )
}

/** What a run differs in from its preset decides how often it succeeds: of a run that follows it, how often that was. */
export function reachedByPreset(
  environment: DefinitionRecord,
  policy: DefinitionRecord,
  { algorithm, settings }: { algorithm: DefinitionRecord; settings: Tuned },
): Reached | null {
  const preset = presetOf(environment.id, { policy: policy.id, algorithm: algorithm.id })
  const follows =
    isSame(preset.run, settings) &&
    isSame(preset.algorithm.parameters, algorithm.parameters) &&
    isSame(preset.policy.parameters, policy.parameters)
  return follows ? (preset.reached ?? null) : null
}

function isSame(tuned: Tuned, given: Readonly<Record<string, unknown>>): boolean {
  return Object.entries(tuned).every(([key, value]) => JSON.stringify(given[key]) === JSON.stringify(value))
}

/** What is known to work for a text environment. */
export interface TextPreset {
  readonly run: Tuned
  readonly sft: Tuned
  readonly rl: Tuned
  readonly loss: Tuned
  readonly model: Tuned
  readonly environment: Tuned
  /** As of `Preset`. */
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

const letters: Partial<TextPreset> = { ...warm, environment: { maxLength: 4 }, sft: { steps: 35 } }

const textPresets: Readonly<Record<string, Partial<TextPreset>>> = {
  // One had settled on answers that are nearly right: 0.90.
  'text/reverse': { ...letters, reached: { groupReward: 0.95, reached: 4, seeds: 5 } },
  'text/copy': letters,
  'text/sort': { ...letters, sft: { steps: 25 } },
  'text/arithmetic-1': { ...warm, sft: { steps: 20 }, rl: { ...warm.rl, updates: 300 } },
  'text/arithmetic-2': { ...warm, sft: { steps: 600 }, rl: { ...warm.rl, updates: 400 } },
  // With a constant rate one of three seeds left the best guesses again, and came to 0.73.
  'text/guess-number': {
    run: { numLanes: 128, heldOut: 0.2 },
    sft: { steps: 300 },
    rl: { updates: 250, groupsPerUpdate: 20, groupSize: 16, schedule: 'linear' },
    loss: { klCoef: 0, rewardKlCoef: 0, entropyCoef: 0.01 },
    model: { width: 32, layers: 2 },
  },
  // With one digit there are 200 questions: a model learned those that it was asked by heart, and was worth 0.39 on the others.
  'text/math-multi-turn': {
    ...warm,
    run: { ...warm.run, heldOut: 0.2 },
    environment: { digits: 2 },
    sft: { steps: 4000, schedule: 'linear' },
    rl: { ...warm.rl, updates: 200, schedule: 'linear' },
  },
  'text/tool-arithmetic': {
    ...warm,
    run: { ...warm.run, heldOut: 0.2 },
    sft: { steps: 1000 },
    rl: { ...warm.rl, updates: 120 },
    loss: { ...warm.loss, entropyCoef: 0.01 },
  },
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
    isSame(languageModel(preset.model as never).parameters as Tuned, policy.parameters) &&
    isSame(preset.environment, environment.parameters)
  return follows ? (preset.reached ?? null) : null
}
