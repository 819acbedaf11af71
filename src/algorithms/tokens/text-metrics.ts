/** Metrics of the algorithms for language models. */
import { type Metrics, metric } from '../../base/metrics.ts'

/** Metrics of a step of either phase. */
export const sftMetrics = {
  phase: { unit: null, description: 'sft or rl', reduction: 'last' },
  step: { unit: null, description: 'completed steps of the phase, this one included', reduction: 'last' },
  seconds: { unit: 's', description: 'time of training so far', reduction: 'last' },
  loss: { unit: null, description: "the loss, a critic's included", reduction: 'minibatchMean' },
  learningRate: { unit: null, description: 'learning rate of the optimizer step', reduction: 'last' },
  gradNorm: { unit: null, description: 'norm of the gradient before clipping', reduction: 'minibatchMean' },
  tokens: { unit: 'tokens', description: 'trained tokens', reduction: 'last' },
  phaseSeconds: {
    unit: 's',
    description: "time of the caller's thread per kind of work, by name; the times add up to the whole step",
    reduction: 'last',
  },
} as const satisfies Metrics

/** Metrics of a step on preferences. Rewards are those of the loss, with its β; null if it returns none. */
export const preferenceMetrics = {
  chosenReward: metric('mean reward of chosen or good answers; null without any', 'rowMean'),
  rejectedReward: metric('mean reward of rejected or bad answers; null without any', 'rowMean'),
  rewardMargin: metric('mean reward of the former minus that of the latter', 'rowMean'),
  rewardAccuracy: metric(
    'fraction of pairs whose chosen answer has the higher reward; null for single answers',
    'rowMean',
  ),
  chosenLogprob: metric('mean log-probability of a chosen or good answer, summed over its tokens', 'rowMean', 'nats'),
  rejectedLogprob: metric(
    'mean log-probability of a rejected or bad answer, summed over its tokens',
    'rowMean',
    'nats',
  ),
  preferenceKl: metric(
    "KL to the reference that kto subtracts, by answers to the batch's other prompts; null for other losses",
    'last',
    'nats',
  ),
} as const satisfies Metrics

/** Metrics of an update's conversations and of its first pass over them. */
export const conversationMetrics = {
  reward: { unit: null, description: 'mean of the known rewards; null if none is known', reduction: 'last' },
  rewardStd: {
    unit: null,
    description: 'standard deviation of the known rewards; null if none is known',
    reduction: 'last',
  },
  components: { unit: null, description: 'means of the reward components, by name', reduction: 'last' },
  numUnknown: { unit: null, description: 'number of unknown rewards', reduction: 'last' },
  firstError: {
    unit: null,
    description: 'reason of the first unknown reward; null if there is none',
    reduction: 'last',
  },
  groupRewards: {
    unit: null,
    description: 'mean of the known rewards of each group with known rewards, in the order of the groups',
    reduction: 'last',
  },
  fracRewardZeroStd: {
    unit: null,
    description: 'fraction of groups with equal rewards, from which nothing is learned',
    reduction: 'last',
  },
  clippedRatio: {
    unit: null,
    description: 'fraction of conversations cut off by the token budget or the context',
    reduction: 'last',
  },
  cutTurns: {
    unit: null,
    description: 'turns cut off by the token budget or the context, including turns that others followed',
    reduction: 'last',
  },
  droppedReplies: {
    unit: null,
    description: 'conversations that ended at a cut turn although the environment had replied',
    reduction: 'last',
  },
  rewrites: {
    unit: null,
    description: 'how often the chat template rewrote earlier text, so that the conversation continued in a new row',
    reduction: 'last',
  },
  mismatchKl: {
    unit: 'nats',
    description:
      'estimate of KL(recorded ‖ trained) over tokens evaluated again before the update; null if no token was compared',
    reduction: 'last',
  },
  importanceRatio: {
    unit: null,
    description: 'mean, min and max of the ratio of the probability before the update to the recorded probability',
    reduction: 'last',
  },
  importanceWeight: {
    unit: null,
    description: "mean, min and max of the correction's weights; null without a correction",
    reduction: 'last',
  },
  entropy: {
    unit: 'nats',
    description: "entropy of a token's whole distribution, from the training forward pass",
    reduction: 'rowMean',
  },
  kl: { unit: 'nats', description: 'estimators k1, k2 and k3 of KL(old ‖ new)', reduction: 'rowMean' },
  referenceKl: {
    unit: 'nats',
    description: 'estimators k1, k2 and k3 of KL(new ‖ reference); null without a reference',
    reduction: 'rowMean',
  },
  ratio: { unit: null, description: 'mean ratio of new to old probabilities', reduction: 'rowMean' },
  valueLoss: {
    unit: null,
    description: "the critic's part of the loss; null without a critic",
    reduction: 'minibatchMean',
  },
  clipRatio: {
    unit: null,
    description: 'fractions of tokens clipped at the low and the high bound',
    reduction: 'rowMean',
  },
  completionLength: { unit: 'tokens', description: 'sampled tokens per conversation', reduction: 'last' },
  trajectories: { unit: null, description: 'trained conversations', reduction: 'last' },
  staleness: {
    unit: 'updates',
    description:
      'updates since the weights that chose a token: mean, max, and counts of tokens 0, 1, … max updates stale; null if the weights are unknown',
    reduction: 'last',
  },
  rolloutAgeSeconds: {
    unit: 's',
    description: 'age of groups from their start to the update: mean, max, and counts of ages 0–1, 1–2, 2–4, 4–8 … s',
    reduction: 'last',
  },
  queueDepth: { unit: 'groups', description: 'complete groups that wait for a later update', reduction: 'last' },
  lanesIdleSeconds: {
    unit: 's',
    description: 'time without a conversation to continue since the previous update, mean over lanes',
    reduction: 'last',
  },
  drops: { unit: null, description: 'groups dropped since the previous update, by reason', reduction: 'last' },
  sampledTokens: { unit: 'tokens', description: 'sampled tokens', reduction: 'last' },
  untrainedTokens: {
    unit: 'tokens',
    description:
      'tokens of turns sampled from another distribution than the trained one, such as another temperature; they are not trained on',
    reduction: 'last',
  },
  trainedTokens: {
    unit: 'tokens',
    description: 'processed tokens of the training, prompts included',
    reduction: 'last',
  },
  numRecomputed: {
    unit: 'tokens',
    description: 'tokens without a recorded log-probability, replaced by that of the weights before the update',
    reduction: 'last',
  },
  rolloutSeconds: {
    unit: 's',
    description: "time for which the learner waited for the update's conversations",
    reduction: 'last',
  },
  updateSeconds: { unit: 's', description: 'time of the update itself', reduction: 'last' },
} as const satisfies Metrics

/** All metrics of an update of reinforcement learning. */
export const rlMetrics = { ...sftMetrics, ...conversationMetrics } as const satisfies Metrics
