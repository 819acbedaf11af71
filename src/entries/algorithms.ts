/**
 * `colonnade/algorithms`: parts for your own algorithms, losses and training backends.
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
export * from '../algorithms/losses/define-preference-loss.ts'
export * from '../algorithms/losses/define-token-loss.ts'
export { corrections, type LossId, type Preset } from '../algorithms/losses/loss-presets.ts'
export type { LossResult } from '../algorithms/losses/loss-program.ts'
export { type LossSettings, type TokenLossSettings, tokenLossSettings } from '../algorithms/losses/loss-settings.ts'
export {
  type AdvantageDescriptor,
  describeAdvantages,
  describeLoss,
  type LossDescriptor,
} from '../algorithms/losses/losses.ts'
export { type RowLossColumns, rowLoss } from '../algorithms/losses/row-loss.ts'
export { cql } from '../algorithms/off-policy/cql.ts'
export { discreteCql } from '../algorithms/off-policy/discrete-cql.ts'
export { dqn } from '../algorithms/off-policy/dqn.ts'
export { iql } from '../algorithms/off-policy/iql.ts'
export * from '../algorithms/off-policy/off-policy.ts'
export { sac } from '../algorithms/off-policy/sac.ts'
export { td3 } from '../algorithms/off-policy/td3.ts'
export { td3bc } from '../algorithms/off-policy/td3bc.ts'
export { awr } from '../algorithms/on-policy/awr.ts'
export * from '../algorithms/on-policy/on-policy.ts'
export {
  defineOptimizer,
  type Optimizer,
  type OptimizerPart,
  type OptimizerStep,
} from '../algorithms/optimizers/define-optimizer.ts'
export type { GroupAdvantages, RewardedAnswer } from '../algorithms/tokens/group-advantages.ts'
export { type Staleness, stalenessSettings } from '../algorithms/tokens/staleness.ts'
export type { TokenBatch } from '../algorithms/tokens/token-batch.ts'
export type { NamedTokenColumns } from '../algorithms/tokens/token-loss.ts'
export { Expression, type Operand, where } from '../base/expressions/expression.ts'
export { iqlNetwork } from '../policies/iql-network.ts'
export type {
  ActionCriticPolicy,
  ActionValuePolicy,
  ActionValueShape,
  DeterministicPolicy,
  DeterministicShape,
  ImplicitPolicy,
  ImplicitShape,
  SoftPolicy,
  SoftShape,
} from '../policies/policy.ts'
export { qNetwork } from '../policies/q-network.ts'
export { sacNetwork } from '../policies/sac-network.ts'
export { td3Network } from '../policies/td3-network.ts'
export { type ArrayModel, defineArrayBackend, visitTokens } from '../training/backends/array-backend.ts'
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
} from '../training/backends/backend.ts'
export { type BackendWork, defineBackend } from '../training/backends/define-backend.ts'
export { type TinkerBackendOptions, tinkerBackend } from '../training/backends/tinker-backend.ts'
export { replayTable } from '../training/recorded/replay-table.ts'
