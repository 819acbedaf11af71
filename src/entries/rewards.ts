/**
 * `colonnade/rewards`: rewards, verifiers, filters of groups, and the judging of models by task suites.
 *
 * @module colonnade/rewards
 */

export { extractBoxedAnswer, extractFinalAnswer, extractFinalNumber, normalizeMathAnswer } from '../rewards/answers.ts'
export {
  accuracyReward,
  computeF1Score,
  f1ScoreReward,
  formatReward,
  keywordReward,
  lengthReward,
} from '../rewards/basic.ts'
export { type CodeTest, codeReward, extractCode } from '../rewards/code.ts'
export { composeRewards, type RewardPart } from '../rewards/compose.ts'
export {
  type Criterion,
  type Difficulty,
  type EvaluateModelOptions,
  evaluateModel,
  type Generate,
  getTaskSuite,
  type LearningProgress,
  listTaskSuites,
  type ModelEvaluation,
  registerTaskSuite,
  type ScoreSummary,
  type Scores,
  type TaskEvaluation,
  type TextGenerationTask,
  validateLearningProgress,
} from '../rewards/evaluation.ts'
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
} from '../rewards/filters.ts'
export { type MathEquality, mathAccuracyReward, mathEqual } from '../rewards/maths.ts'
export { createAsyncBatchProcessor, type RewardCounts, type RewardPolicy, withPolicy } from '../rewards/policy.ts'
export {
  clearRegistries,
  createConfiguredRewardFunction,
  createCustomVerifierPipeline,
  getRewardFunction,
  getVerifierFunction,
  listRegisteredFunctions,
  type RewardConfig,
  reward,
  type VerifierConfig,
  verifier,
} from '../rewards/registry.ts'
export {
  createRemoteRewardProcessor,
  type RemoteJudge,
  type RemoteRewardSettings,
  remoteReward,
} from '../rewards/remote.ts'
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
} from '../rewards/reward.ts'
export { pairedTTest, type TTest, welchTTest } from '../rewards/statistics.ts'
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
} from '../rewards/verifiers.ts'
