/**
 * Settings of token losses. Advantages, corrections and reductions are common to all. The surrogate, its ratio and the KL penalty belong
 * to the built-in losses (`losses.ts`); a custom loss declares its own settings in their place.
 */
import { checkGiven, InputError, show, unknownWord } from '../../base/errors.ts'
import {
  boolean,
  choice,
  fraction,
  integer,
  number,
  optionalNumber,
  type Setting,
  type SettingValues,
} from '../../base/settings.ts'

/**
 * How token losses are reduced to one number: Σ over the tokens, divided by
 *
 *     token-mean             all tokens of the batch                                        DAPO
 *     sequence-mean          the tokens of the sequence, then the number of sequences       GRPO
 *     sequence-sum           the number of sequences
 *     constant-length        the number of sequences · maxLength                            Dr. GRPO
 *     constant-length-sum    maxLength                                                      Dr. GRPO in verl
 */
export const aggregations = [
  'token-mean',
  'sequence-mean',
  'sequence-sum',
  'constant-length',
  'constant-length-sum',
] as const
export type Aggregation = (typeof aggregations)[number]

/** All settings of a loss, with the defaults that apply unless the project or the loss overrides them. */
export const lossSettings = {
  advantage: choice(
    'group',
    ['group', 'returns', 'critic', 'none'],
    'how advantages are computed: from rewards within the group, from discounted returns, by GAE with a critic; none: no advantages',
  ),
  baseline: choice(
    'mean',
    ['mean', 'leave-one-out'],
    'baseline of a reward: the mean of its group, or of the other members',
  ),
  scale: choice(
    'group',
    ['none', 'group', 'batch', 'mean'],
    'divisor of the difference between reward and baseline: the standard deviation of the group or batch, or the mean of the group',
  ),
  unbiased: boolean(true, 'compute deviations with n − 1 in the denominator, not n'),
  epsilon: number(1e-6, 'added to the divisor', { min: 0 }),
  lone: choice(
    'mask',
    ['mask', 'reward'],
    'a trajectory that is alone in its group: drop it, or use its reward as advantage',
  ),
  whiten: boolean(false, "give the tokens' advantages mean 0 and deviation 1 over the batch"),
  gamma: fraction(1, 'discount factor of returns and critic'),
  gaeLambda: fraction(1, 'mixing factor of generalized advantage estimation, with a critic'),
  rewardCoef: number(1, 'factor of the reward in advantages; 0: rewards do not count, and may be unknown', { min: 0 }),
  rewardKlCoef: number(0, 'weight of the KL to the reference in the reward', { min: 0 }),
  overlongCache: optionalNumber(
    null,
    'an answer within this many tokens of maxLength gets a penalty; null: no penalty',
    {
      above: 0,
    },
  ),
  overlongFactor: number(1, 'penalty of an answer of maxLength tokens', { min: 0 }),
  surrogate: choice('clip', ['clip', 'cispo', 'sapo', 'cross-entropy'], 'form of the loss of a token'),
  ratio: choice(
    'token',
    ['token', 'sequence', 'sequence-token', 'hybrid', 'product'],
    'level at which the ratio of probabilities is computed',
  ),
  sequencePart: number(0.5, 'α, weight of the sequence’s ratio in a hybrid ratio', { min: 0 }),
  tokenPart: number(0.5, 'β, weight of the token’s ratio in a hybrid ratio', { min: 0 }),
  clipLow: optionalNumber(0.2, 'how far the ratio may fall below 1; null: to 0', { min: 0, max: 1 }),
  clipHigh: optionalNumber(0.2, 'how far the ratio may rise above 1; null: no bound', { min: 0 }),
  dualClip: optionalNumber(
    null,
    'dual clip: bound of the loss of a negative advantage, in multiples of it; null: no bound',
    {
      above: 1,
    },
  ),
  ratioMax: optionalNumber(null, 'δ, bound of the unclipped ratio; null: no bound', { above: 1 }),
  tauPositive: number(1, 'temperature of sapo for positive advantages', { above: 0 }),
  tauNegative: number(1.05, 'temperature of sapo for other advantages', { above: 0 }),
  logRatioMax: optionalNumber(null, 'bound of the absolute log-ratio; null: no bound', {
    above: 0,
  }),
  kl: choice('k3', ['k1', 'k2', 'k3', 'k3+'], 'estimator of the KL to the reference; k3+: k3 with the gradient of k2'),
  klCoef: number(0, 'weight of the KL to the reference in the loss; 0: no reference', { min: 0 }),
  klCorrected: boolean(false, 'multiply the KL by the ratio, which makes it unbiased off-policy'),
  klMax: optionalNumber(null, "bound of a token's absolute KL; null: no bound", { above: 0 }),
  entropyCoef: number(0, 'weight of the entropy in the loss', { min: 0 }),
  correction: choice(
    'none',
    ['none', 'token-truncate', 'token-mask', 'sequence-truncate', 'sequence-mask'],
    'correction by the ratio of recomputed to recorded probabilities: none, truncate it, or mask beyond its bounds',
  ),
  correctionLow: number(0, 'lower bound of that ratio', { min: 0 }),
  correctionHigh: optionalNumber(null, 'upper bound of that ratio; null: no bound', { above: 0 }),
  countsRejected: boolean(true, 'keep tokens that the correction masks in the denominator'),
  aggregation: choice('token-mean', aggregations, 'divisor of the sum over tokens'),
  countsEmpty: boolean(false, 'count sequences without trained tokens in the divisor'),
  maxLength: optionalWhole('maximum of tokens of an answer'),
  valueCoef: number(1, "weight of the critic's loss", { min: 0 }),
  clipValue: optionalNumber(null, 'how far a value may move from the old one; null: no bound', { above: 0 }),
}

function optionalWhole(description: string) {
  const some = integer(1, description, { min: 1 })
  const expected = `${some.expected}, or null`
  return {
    default: null as number | null,
    description,
    expected,
    accepts: (v: unknown) => v === null || some.accepts(v),
  }
}

/** The settings of a loss. */
export type LossSettings = SettingValues<typeof lossSettings>

export const advantageSettings = [
  'advantage',
  'baseline',
  'scale',
  'unbiased',
  'epsilon',
  'lone',
  'whiten',
  'gamma',
  'gaeLambda',
] as const

/** The settings that act in a custom loss as in every other one. */
const sharedSettings = [
  ...advantageSettings,
  'rewardCoef',
  'rewardKlCoef',
  'overlongCache',
  'overlongFactor',
  'correction',
  'correctionLow',
  'correctionHigh',
  'countsRejected',
  'aggregation',
  'countsEmpty',
  'maxLength',
  'valueCoef',
  'clipValue',
] as const

type SharedName = (typeof sharedSettings)[number]

/** The settings that every token loss declares. */
export type TokenLossSettings = Pick<typeof lossSettings, SharedName>

/**
 * The common settings of a custom loss: how advantages are computed, how the ratio to the sampler's probabilities is corrected, and the
 * divisor of the sum.
 * @throws InputError for a default that is unknown or out of range.
 * @example settings: { ...tokenLossSettings({ aggregation: 'sequence-mean' }), clipCoef: number(0.2, 'how far …') }
 */
export function tokenLossSettings(defaults: Partial<SettingValues<TokenLossSettings>> = {}): TokenLossSettings {
  checkGiven('defaults of tokenLossSettings', defaults, [])
  const declared: Record<string, Setting> = Object.fromEntries(sharedSettings.map((key) => [key, lossSettings[key]]))
  for (const [key, value] of Object.entries(defaults)) {
    const setting = Object.hasOwn(declared, key) ? declared[key] : undefined
    if (setting === undefined) throw unknownWord('setting of every loss', key, sharedSettings)
    if (!setting.accepts(value)) throw new InputError(`tokenLossSettings ${key}`, show(value), setting.expected)
    declared[key] = { ...setting, default: value }
  }
  return declared as unknown as TokenLossSettings
}

/** Selects the common settings from the values of a custom loss. */
export function sharedValues(values: SettingValues<TokenLossSettings>): SettingValues<TokenLossSettings> {
  return Object.fromEntries(sharedSettings.map((key) => [key, values[key]])) as never
}

export const sharedSettingNames: readonly string[] = sharedSettings
