/**
 * `colonnade/algorithms`: what an algorithm, a loss or a training backend of your own is made of.
 *
 * @module colonnade/algorithms
 */

export type {
  AdvantageContext,
  AlgorithmFactory,
  AlgorithmModel,
  EstimateAdvantages,
  Learner,
  LearnerContext,
  LearnerMetrics,
  LearnerShape,
} from '../algorithms/algorithm.ts'
export { defineTokenLoss, type TokenLossDefinition, type TokenLossFactory } from '../algorithms/define-token-loss.ts'
export { dqn } from '../algorithms/dqn.ts'
export type { GroupAdvantages, RewardedAnswer } from '../algorithms/group-advantages.ts'
export { corrections, type LossId, type Preset } from '../algorithms/loss-presets.ts'
export type { LossResult } from '../algorithms/loss-program.ts'
export { type LossSettings, type TokenLossSettings, tokenLossSettings } from '../algorithms/loss-settings.ts'
export {
  type AdvantageDescriptor,
  describeAdvantages,
  describeLoss,
  type LossDescriptor,
} from '../algorithms/losses.ts'
export {
  defineOffPolicyAlgorithm,
  type OffPolicyContext,
  type OffPolicyDefaults,
  type OffPolicyLoss,
  type OffPolicyOptions,
  offPolicySettings,
  type ReplayedBlock,
} from '../algorithms/off-policy.ts'
export {
  defineOnPolicyAlgorithm,
  type LossOfRows,
  type MinibatchNumbers,
  type OnPolicyDefaults,
  type OnPolicyLoss,
  type OnPolicyOptions,
  onPolicySettings,
} from '../algorithms/on-policy.ts'
export { type RowLossColumns, rowLoss } from '../algorithms/row-loss.ts'
export { sac } from '../algorithms/sac.ts'
export { type Staleness, stalenessSettings } from '../algorithms/staleness.ts'
export type { TokenBatch } from '../algorithms/token-batch.ts'
export type { NamedTokenColumns } from '../algorithms/token-loss.ts'
export { Expression, type Operand, where } from '../expression.ts'
export type { ActionValuePolicy, ActionValueShape, SoftPolicy, SoftShape } from '../policies/policy.ts'
export { qNetwork } from '../policies/q-network.ts'
export { sacNetwork } from '../policies/sac-network.ts'
export { type ArrayModel, defineArrayBackend, visitTokens } from '../training/array-backend.ts'
export type {
  BackendCall,
  BackendContext,
  BackendDefinition,
  BackendShape,
  BackwardOptions,
  LossDerivatives,
  PreparedBatchLoss,
  TrainFuture,
  TrainingBackend,
} from '../training/backend.ts'
export { type BackendWork, defineBackend } from '../training/define-backend.ts'
export { replayTable } from '../training/replay-table.ts'
export { type TinkerBackendOptions, tinkerBackend } from '../training/tinker-backend.ts'
