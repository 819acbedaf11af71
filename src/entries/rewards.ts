/**
 * `colonnade/rewards`: rewards, verifiers, filters of groups, and task suites to evaluate models.
 *
 * @module colonnade/rewards
 */

export {
  accuracyReward,
  computeF1Score,
  f1ScoreReward,
  formatReward,
  keywordReward,
  lengthReward,
} from '../language/rewards/basic.ts'
export { type CodeTest, codeReward, extractCode } from '../language/rewards/code/code.ts'
export { composeRewards, type RewardPart } from '../language/rewards/compose.ts'
export * from '../language/rewards/evaluation.ts'
export {
  admitGroup,
  checkAnySuccess,
  checkMinReward,
  checkQualityAndDiversity,
  checkReasonableLength,
  checkResponseDiversity,
  checkRewardNonzeroStd,
  defineGroupFilter,
  FilterCounts,
  type FilterDecision,
  type GroupFilter,
  type GroupFilterFactory,
  type GroupSample,
  makeLengthFilter,
  makeThresholdFilter,
} from '../language/rewards/filters.ts'
export {
  extractBoxedAnswer,
  extractFinalAnswer,
  extractFinalNumber,
  normalizeMathAnswer,
} from '../language/rewards/maths/answers.ts'
export { type MathEquality, mathAccuracyReward, mathEqual } from '../language/rewards/maths/maths.ts'
export { modelReward } from '../language/rewards/model.ts'
export {
  createAsyncBatchProcessor,
  type RewardCounts,
  type RewardPolicy,
  withPolicy,
} from '../language/rewards/policy.ts'
export * from '../language/rewards/registry.ts'
export * from '../language/rewards/remote.ts'
export {
  type BatchJudge,
  type BatchSize,
  defineReward,
  type ExcessKind,
  type FailureKind,
  type Judgment,
  judge,
  judgesInTime,
  judgesTogether,
  type Reward,
  type RewardFactory,
  RewardFailure,
  type RewardInput,
  type RewardOptions,
  type RewardValue,
} from '../language/rewards/reward.ts'
export { pairedTTest, type TTest, welchTTest } from '../language/rewards/statistics.ts'
export {
  applyVerifiersToReward,
  coherenceVerifier,
  containsKeywords,
  createDefaultVerifierPipeline,
  defineVerifier,
  factualVerifier,
  hasGreeting,
  lengthVerifier,
  noEmptyResponse,
  toxicityVerifier,
  type Verification,
  VerificationPipeline,
  type VerificationReport,
  type VerificationResult,
  type Verifier,
  type VerifierFactory,
} from '../language/rewards/verifiers.ts'
