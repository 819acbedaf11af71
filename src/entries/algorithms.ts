/** `colonnade/algorithms`: what an algorithm or a loss of your own is made of. */
export type {
  AlgorithmFactory,
  AlgorithmModel,
  Learner,
  LearnerContext,
  LearnerMetrics,
  LearnerShape,
} from '../algorithms/algorithm.ts'
export { corrections, type LossId, type Preset } from '../algorithms/loss-presets.ts'
export {
  type AdvantageDescriptor,
  describeAdvantages,
  describeLoss,
  type LossDescriptor,
  type LossSettings,
} from '../algorithms/losses.ts'
export {
  defineOnPolicyAlgorithm,
  type MinibatchNumbers,
  type OnPolicyDefaults,
  type OnPolicyLoss,
  type OnPolicyOptions,
  onPolicySettings,
} from '../algorithms/on-policy.ts'
