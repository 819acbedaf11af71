/**
 * How papers and libraries set the losses of `losses.ts`. A loss's settings are the defaults there, then what the project
 * does everywhere, then what makes the loss (`base`), then what the project does with this loss.
 *
 * TRL's are those of version 1.16. Where a paper leaves something open, the default stands.
 */
import type { LossSettings } from './loss-settings.ts'

/** Whose settings a loss has. */
export type Preset = 'paper' | 'trl' | 'verl' | 'areal' | 'slime'

export const projectSettings: Readonly<Record<Preset, Partial<LossSettings>>> = {
  paper: { epsilon: 0 },
  trl: {
    epsilon: 1e-4,
    klCorrected: true,
    correction: 'sequence-mask',
    correctionHigh: 3,
    countsEmpty: true,
  },
  verl: { epsilon: 1e-6, lone: 'reward', dualClip: 3, logRatioMax: 20, klMax: 10 },
  areal: { epsilon: 1e-5, correction: 'token-mask', correctionHigh: 5 },
  slime: { epsilon: 1e-6, aggregation: 'sequence-mean' },
}

/** A loss and whose settings there are for it. */
export interface AlgorithmPresets {
  readonly base: Partial<LossSettings>
  /** The presets that there are. */
  readonly presets: Readonly<Partial<Record<Preset, Partial<LossSettings>>>>
}

/** No rewards are compared in a group: discounted returns of each trajectory, whitened over the batch. */
const reinforce = { advantage: 'returns', whiten: true } as const

export const algorithmPresets = {
  /** Group-relative policy optimization (arXiv 2402.03300). */
  grpo: {
    base: {},
    presets: {
      paper: { aggregation: 'sequence-mean', klCoef: 0.04 },
      trl: { aggregation: 'sequence-mean' },
      verl: {},
      areal: {},
      slime: {},
    },
  },
  /** Dr. GRPO (arXiv 2503.20783): neither the deviation nor an answer's own length divides. */
  'dr-grpo': {
    base: { scale: 'none' },
    presets: {
      paper: { aggregation: 'constant-length' },
      trl: { aggregation: 'constant-length' },
      verl: { aggregation: 'constant-length-sum' },
    },
  },
  /** DAPO, decoupled clip and dynamic sampling; the sampling is the filters'. */
  dapo: {
    base: { clipHigh: 0.28, aggregation: 'token-mean' },
    presets: { paper: {}, trl: {}, verl: {}, areal: {}, slime: {} },
  },
  /** REINFORCE leave-one-out (arXiv 2402.14740), of whole answers. */
  rloo: {
    base: { baseline: 'leave-one-out', scale: 'none' },
    presets: {
      paper: { ratio: 'product', clipLow: null, clipHigh: null, aggregation: 'sequence-mean' },
      trl: { ratio: 'product', aggregation: 'sequence-mean', rewardKlCoef: 0.05, correction: 'none' },
      verl: {},
      areal: {},
    },
  },
  /** REINFORCE++ (arXiv 2501.03262), with the KL in the reward. */
  'reinforce++': {
    base: reinforce,
    presets: { paper: { rewardKlCoef: 0.01 }, verl: {}, slime: {} },
  },
  /** REINFORCE++ with the group's mean as baseline, and the KL in the loss. */
  'reinforce++-baseline': {
    base: { scale: 'none', whiten: true, kl: 'k2' },
    presets: { paper: { klCoef: 0.01 }, verl: {}, slime: {} },
  },
  /** Maximum-likelihood RL, as textpolicy has it: rewards over the mean of the group. */
  'max-rl': { base: { scale: 'mean' }, presets: { paper: {} } },
  /** Group sequence policy optimization (arXiv 2507.18071). */
  gspo: {
    base: { ratio: 'sequence', clipLow: 3e-4, clipHigh: 4e-4, dualClip: null, aggregation: 'sequence-mean' },
    presets: { paper: {}, trl: {}, verl: { ratio: 'sequence-token' }, areal: { aggregation: 'token-mean' }, slime: {} },
  },
  /** Clipped importance-sampling policy optimization (arXiv 2506.13585). TRL's absolute bound of 5 is 1 + clipHigh. */
  cispo: {
    base: { surrogate: 'cispo', clipLow: null, clipHigh: 4, aggregation: 'token-mean' },
    presets: { paper: {}, trl: {}, verl: { clipLow: 0.2, clipHigh: 0.2 }, slime: { aggregation: 'sequence-mean' } },
  },
  /** Soft adaptive policy optimization (arXiv 2511.20347). */
  sapo: {
    base: { surrogate: 'sapo' },
    presets: { paper: { aggregation: 'sequence-mean' }, trl: { aggregation: 'sequence-mean' }, areal: {} },
  },
  /** PPO with a critic on tokens (Schulman et al. 2017). */
  ppo: {
    base: { advantage: 'critic', whiten: true },
    presets: {
      paper: { gaeLambda: 0.95 },
      trl: {
        gaeLambda: 0.95,
        clipValue: 0.2,
        valueCoef: 0.1,
        rewardKlCoef: 0.05,
        klCorrected: false,
        correction: 'none',
      },
      verl: { clipValue: 0.5 },
      areal: { clipValue: 0.5 },
      slime: { clipValue: 0.2 },
    },
  },
  /** PPO with proximal and behavior policy apart (AReaL, arXiv 2505.24298). AReaL masks where the paper only weighs. */
  'decoupled-ppo': {
    base: { correction: 'token-truncate' },
    presets: { paper: {}, areal: { correction: 'token-mask' } },
  },
  /** Supervised fine-tuning. */
  sft: {
    base: { advantage: 'none', surrogate: 'cross-entropy' },
    presets: { paper: {} },
  },
} as const satisfies Record<string, AlgorithmPresets>

/** The name of a loss. */
export type LossId = keyof typeof algorithmPresets

/** Corrections by their names; overrides for any loss. The bounds are ones in common use, to be chosen by the user. */
export const corrections = {
  tis: { correction: 'token-truncate', correctionLow: 0, correctionHigh: 2 },
  icePop: { correction: 'token-mask', correctionLow: 0.5, correctionHigh: 5 },
} as const satisfies Record<string, Partial<LossSettings>>
