/** What the algorithms of language models tell of a step: the names of their metrics, with units and sentences. */
import type { Metrics } from '../../base/metrics.ts'

/** Of a step of either phase. */
export const sftMetrics = {
  phase: { unit: null, description: 'sft or rl', reduction: 'last' },
  step: { unit: null, description: 'steps of the phase done, this one included', reduction: 'last' },
  seconds: { unit: 's', description: 'of training so far', reduction: 'last' },
  loss: { unit: null, description: "the loss, a critic's included", reduction: 'minibatchMean' },
  learningRate: { unit: null, description: 'of the optimizer step', reduction: 'last' },
  gradNorm: { unit: null, description: 'norm of the gradient before it was clipped', reduction: 'minibatchMean' },
  tokens: { unit: 'tokens', description: 'that were learned from', reduction: 'last' },
  phaseSeconds: {
    unit: 's',
    description: "that the caller's thread spent on each kind of work, by its name; they add up to the whole step",
    reduction: 'last',
  },
} as const satisfies Metrics

/** Of an update's conversations, and of its first pass over them. */
export const conversationMetrics = {
  reward: { unit: null, description: 'mean of the known rewards; null where none is known', reduction: 'last' },
  rewardStd: { unit: null, description: 'their standard deviation; null where none is known', reduction: 'last' },
  components: { unit: null, description: 'means of what the rewards are made of, by name', reduction: 'last' },
  numUnknown: { unit: null, description: 'rewards that could not be told', reduction: 'last' },
  firstError: { unit: null, description: 'the first reason for it; null where there is none', reduction: 'last' },
  groupRewards: {
    unit: null,
    description: 'mean of the known rewards of each group that has one, in the order of the groups',
    reduction: 'last',
  },
  fracRewardZeroStd: {
    unit: null,
    description: 'part of the groups whose rewards are all equal: nothing is learned of them',
    reduction: 'last',
  },
  clippedRatio: {
    unit: null,
    description: 'part of the conversations that their budget or the context cut off',
    reduction: 'last',
  },
  cutTurns: {
    unit: null,
    description: 'turns that their budget or the context cut off, those after which others followed among them',
    reduction: 'last',
  },
  droppedReplies: {
    unit: null,
    description: 'conversations that ended so, where a reply of the environment was dropped',
    reduction: 'last',
  },
  rewrites: {
    unit: null,
    description: 'how often the chat template rewrote what stood: the conversation went on in a row of its own',
    reduction: 'last',
  },
  mismatchKl: {
    unit: 'nats',
    description:
      'estimate of KL(recorded ‖ trained), of tokens evaluated again before the update; null where none was compared',
    reduction: 'last',
  },
  importanceRatio: {
    unit: null,
    description:
      'mean, min and max of what those weights are made of: probability before the update over the recorded one',
    reduction: 'last',
  },
  importanceWeight: {
    unit: null,
    description: "mean, min and max of the correction's weights; null without one",
    reduction: 'last',
  },
  entropy: {
    unit: 'nats',
    description: 'of the whole distribution, a token, from the forward pass of the training',
    reduction: 'rowMean',
  },
  kl: { unit: 'nats', description: 'estimators k1, k2 and k3 of KL(old ‖ new)', reduction: 'rowMean' },
  referenceKl: {
    unit: 'nats',
    description: 'the same of KL(new ‖ reference); null where there is no reference',
    reduction: 'rowMean',
  },
  ratio: { unit: null, description: 'mean ratio of new to old probabilities', reduction: 'rowMean' },
  valueLoss: { unit: null, description: "the critic's part of the loss; null without one", reduction: 'minibatchMean' },
  clipRatio: { unit: null, description: 'part of the tokens clipped, low and high', reduction: 'rowMean' },
  completionLength: { unit: 'tokens', description: 'that the model chose, a conversation', reduction: 'last' },
  trajectories: { unit: null, description: 'conversations learned from', reduction: 'last' },
  staleness: {
    unit: 'updates',
    description:
      'of tokens, since the weights that chose them: mean, max, and counts of those 0, 1, … max updates stale; null where nobody knows the weights',
    reduction: 'last',
  },
  rolloutAgeSeconds: {
    unit: 's',
    description:
      'of groups, from their beginning until the update took them: mean, max, and counts of those below 1 s and from there below 2, 4, 8 … s each',
    reduction: 'last',
  },
  queueDepth: { unit: 'groups', description: 'that are whole and wait for a later update', reduction: 'last' },
  lanesIdleSeconds: {
    unit: 's',
    description: 'in which a lane had no conversation to go on with since the update before, mean of all lanes',
    reduction: 'last',
  },
  drops: { unit: null, description: 'groups dropped since the update before, by reason', reduction: 'last' },
  sampledTokens: { unit: 'tokens', description: 'that the model chose', reduction: 'last' },
  untrainedTokens: {
    unit: 'tokens',
    description:
      'of turns that were drawn from another distribution than is trained (by a temperature of their own, say): nothing is learned of them',
    reduction: 'last',
  },
  trainedTokens: { unit: 'tokens', description: 'that it was trained on, prompts included', reduction: 'last' },
  numRecomputed: {
    unit: 'tokens',
    description: 'without a recorded log-probability: that of the weights before the update stands for it',
    reduction: 'last',
  },
  rolloutSeconds: {
    unit: 's',
    description: "in which the learner waited for the update's conversations",
    reduction: 'last',
  },
  updateSeconds: { unit: 's', description: 'of learning from them', reduction: 'last' },
} as const satisfies Metrics

/** All that an update of reinforcement learning tells. */
export const rlMetrics = { ...sftMetrics, ...conversationMetrics } as const satisfies Metrics
