/**
 * Settings of the losses in papers and libraries. A loss's settings are the defaults of `loss-settings.ts`, overridden in order by the
 * project's general settings, the loss's definition (`base`) and the project's settings for this loss.
 *
 * TRL's are from version 1.16. If a paper leaves a setting open, the default applies.
 */
import type { LossSettings } from './loss-settings.ts'

/** The source of a preset. */
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

export interface AlgorithmPresets {
  readonly base: Partial<LossSettings>
  readonly presets: Readonly<Partial<Record<Preset, Partial<LossSettings>>>>
}

/** No comparison within a group: discounted returns of each trajectory, whitened over the batch. */
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
  /** Dr. GRPO (arXiv 2503.20783): no division by the deviation or by an answer's length. */
  'dr-grpo': {
    base: { scale: 'none' },
    presets: {
      paper: { aggregation: 'constant-length' },
      trl: { aggregation: 'constant-length' },
      verl: { aggregation: 'constant-length-sum' },
    },
  },
  /** DAPO, decoupled clip and dynamic sampling. A group filter provides the sampling. */
  dapo: {
    base: { clipHigh: 0.28, aggregation: 'token-mean' },
    presets: { paper: {}, trl: {}, verl: {}, areal: {}, slime: {} },
  },
  /** REINFORCE leave-one-out (arXiv 2402.14740), over whole answers. */
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
  /** REINFORCE++ with the group's mean as baseline and the KL in the loss. */
  'reinforce++-baseline': {
    base: { scale: 'none', whiten: true, kl: 'k2' },
    presets: { paper: { klCoef: 0.01 }, verl: {}, slime: {} },
  },
  /** Maximum-likelihood RL as in textpolicy: rewards divided by the mean of the group. */
  'max-rl': { base: { scale: 'mean' }, presets: { paper: {} } },
  /** Group sequence policy optimization (arXiv 2507.18071). */
  gspo: {
    base: { ratio: 'sequence', clipLow: 3e-4, clipHigh: 4e-4, dualClip: null, aggregation: 'sequence-mean' },
    presets: { paper: {}, trl: {}, verl: { ratio: 'sequence-token' }, areal: { aggregation: 'token-mean' }, slime: {} },
  },
  cispo: {
    base: { surrogate: 'cispo', clipLow: null, clipHigh: 4, aggregation: 'token-mean' },
    presets: { paper: {}, trl: {}, verl: { clipLow: 0.2, clipHigh: 0.2 }, slime: { aggregation: 'sequence-mean' } },
  },
  sapo: {
    base: { surrogate: 'sapo' },
    presets: { paper: { aggregation: 'sequence-mean' }, trl: { aggregation: 'sequence-mean' }, areal: {} },
  },
  /** Token-level PPO with a critic (Schulman et al. 2017). */
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
  /** PPO with separate proximal and behavior policies (AReaL, arXiv 2505.24298). AReaL masks tokens that the paper only weights. */
  'decoupled-ppo': {
    base: { correction: 'token-truncate' },
    presets: { paper: {}, areal: { correction: 'token-mask' } },
  },
  /**
   * On-policy distillation: the reverse KL to a teacher by token (arXiv 2306.13649, 2306.08543). Each token's advantage is the teacher's
   * log-probability minus the student's, and rewards do not count.
   */
  distill: {
    base: { advantage: 'returns', gamma: 0, rewardCoef: 0, rewardKlCoef: 1, clipLow: null, clipHigh: null },
    presets: { paper: {} },
  },
  sft: {
    base: { advantage: 'none', surrogate: 'cross-entropy' },
    presets: { paper: {} },
  },
} as const satisfies Record<string, AlgorithmPresets>

/** The id of a built-in token loss. */
export type LossId = keyof typeof algorithmPresets

/** Named corrections, as overrides for any loss. The bounds are common values; choose your own. */
export const corrections = {
  tis: { correction: 'token-truncate', correctionLow: 0, correctionHigh: 2 },
  icePop: { correction: 'token-mask', correctionLow: 0.5, correctionHigh: 5 },
} as const satisfies Record<string, Partial<LossSettings>>
