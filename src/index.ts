/** The public names of Colonnade, and nothing else. */
export { a2c } from './algorithms/a2c.ts'
export {
  type AlgorithmDefinition,
  type AlgorithmFactory,
  type AlgorithmModel,
  defineAlgorithm,
  type Learner,
  type LearnerContext,
  type LearnerMetrics,
  type LearnerShape,
} from './algorithms/algorithm.ts'
export { corrections, type LossId, type Preset } from './algorithms/loss-presets.ts'
export {
  type AdvantageDescriptor,
  describeAdvantages,
  describeLoss,
  type LossDescriptor,
  type LossSettings,
} from './algorithms/losses.ts'
export { cispo, dapo, grpo, gspo, type NamedLoss, rloo, sapo } from './algorithms/named-losses.ts'
export {
  defineOnPolicyAlgorithm,
  type MinibatchNumbers,
  type OnPolicyDefaults,
  type OnPolicyLoss,
  type OnPolicyOptions,
  onPolicySettings,
} from './algorithms/on-policy.ts'
export { ppo } from './algorithms/ppo.ts'
export { algorithmFactory, algorithms } from './algorithms/registry.ts'
export { type RlDefinition, rl } from './algorithms/rl.ts'
export { type SftDefinition, sft } from './algorithms/sft.ts'
export type { Cohort, CohortOptions } from './cohorts/cohort.ts'
export type { ConversationCohort, ConversationCohortOptions } from './cohorts/conversations.ts'
export { loadAdapter } from './cohorts/conversations.ts'
export type { Autoreset, EpisodeCohort, EpisodeCohortOptions } from './cohorts/episodes.ts'
export type { Action } from './components/action.ts'
export { type Arena, formatBytes, takeArena } from './components/arena.ts'
export type { Column, ColumnSpec, Columns, ColumnType, Plan, PlannedColumn } from './components/column.ts'
export { column, saved } from './components/column.ts'
export { type Episode, Phase } from './components/episode.ts'
export type { Observation } from './components/observation.ts'
export type { RolloutColumns } from './components/rollout.ts'
export type { Transition } from './components/transition.ts'
export {
  type BufferState,
  createBufferFromJsonl,
  DataBuffer,
  type DealtPrompt,
  getSamples,
  loadPromptsFromJsonl,
  loadPromptsFromList,
  type PromptFileOptions,
  type SavedBufferState,
} from './datasets/data-buffer.ts'
export { downloadDataset, type SplitOptions } from './datasets/hub-dataset.ts'
export {
  type DatasetOptions,
  loadDatasetWithAnswers,
  loadExamples,
  loadRlPrompts,
  loadSftDataset,
  type SftExample,
} from './datasets/load.ts'
export type { DefinitionRecord, Factory, Part, Parts } from './definition.ts'
export { type Backend, type Device, type DeviceName, deviceNames, startDevice } from './devices/device.ts'
export { type DeviceReport, examineDevice } from './devices/examine.ts'
export { breakout } from './environments/breakout.ts'
export { cartPole } from './environments/cart-pole.ts'
export { cartPolePosition } from './environments/cart-pole-position.ts'
export {
  defineEnvironment,
  type EnvironmentDefinition,
  type EnvironmentFactory,
  type EnvironmentModel,
  type Lanes,
  type State,
  type StateDeclaration,
} from './environments/environment.ts'
export { pendulum } from './environments/pendulum.ts'
export { recall } from './environments/recall.ts'
export { type EnvironmentId, environmentFactory, environments } from './environments/registry.ts'
export { textEnvironmentFactory, textEnvironments } from './environments/tasks/registry.ts'
export {
  defineTextEnvironment,
  type Example,
  type Message,
  type Reply,
  type RewardReduction,
  type TextEnvironmentDefinition,
  type Turn,
} from './environments/text.ts'
export { ticTacToe } from './environments/tic-tac-toe.ts'
export { InputError, OptimizerRequiredError } from './errors.ts'
export { type ExportOptions, exportFormats, exportPolicy } from './export/export.ts'
export { bestKernelBuild, createKernels, type KernelBuild, type Kernels } from './kernels/bind.ts'
export type { Metric, Metrics, Reduction } from './metrics.ts'
export { mlp } from './policies/mlp.ts'
export type { Features, Module, NetworkParameter, SeenSteps, Weights } from './policies/network/module.ts'
export { type NetworkFunction, type NetworkOptions, type NetworkResult, network } from './policies/network/network.ts'
export { convolutional, dense, recurrent } from './policies/network/ready-made.ts'
export type { Policy, PolicyDefinition, PolicyModel } from './policies/policy.ts'
export { type PolicyFactory, policies, policyFactory } from './policies/registry.ts'
export type { TransformerConfig, TransformerShape } from './policies/transformer/config.ts'
export { loadTransformer, saveTransformer } from './policies/transformer/folder.ts'
export { type LoraModel, type LoraSettings, lora, mergeLora, unmergeLora } from './policies/transformer/lora.ts'
export { loadLora, saveLora } from './policies/transformer/lora-folder.ts'
export { type TransformerModel, transformer } from './policies/transformer/model.ts'
export { type BaseWeights, type QuantizedColumns, wholeWeights } from './policies/transformer/quantized.ts'
export { checkSampling, type Sampling } from './policies/transformer/sampling.ts'
export { loadWeights, saveWeights } from './policies/weights.ts'
export { Random, Stream } from './random.ts'
export {
  extractBoxedAnswer,
  extractFinalAnswer,
  extractFinalNumber,
  normalizeMathAnswer,
} from './rewards/answers.ts'
export {
  accuracyReward,
  computeF1Score,
  f1ScoreReward,
  formatReward,
  keywordReward,
  lengthReward,
} from './rewards/basic.ts'
export { type CodeTest, codeReward, extractCode } from './rewards/code.ts'
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
} from './rewards/evaluation.ts'
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
  type GroupSample,
  makeLengthFilter,
  makeThresholdFilter,
} from './rewards/filters.ts'
export { type MathEquality, mathAccuracyReward, mathEqual } from './rewards/maths.ts'
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
} from './rewards/registry.ts'
export {
  createRemoteRewardProcessor,
  type RemoteJudge,
  type RemoteRewardSettings,
  remoteReward,
} from './rewards/remote.ts'
export {
  composeRewards,
  createAsyncBatchProcessor,
  defineReward,
  type ExcessKind,
  type FailureKind,
  type Judgment,
  judge,
  judgesInTime,
  type Reward,
  type RewardCounts,
  type RewardFactory,
  RewardFailure,
  type RewardInput,
  type RewardOptions,
  type RewardPart,
  type RewardPolicy,
  type RewardValue,
  withPolicy,
} from './rewards/reward.ts'
export { pairedTTest, type TTest, welchTTest } from './rewards/statistics.ts'
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
} from './rewards/verifiers.ts'
export {
  readSafetensors,
  type Safetensors,
  type Tensor,
  type TensorType,
  type TensorValues,
  tensorOf,
  tensorValues,
  writeSafetensors,
} from './safetensors.ts'
export {
  choice,
  number,
  optionalNumber,
  part,
  type Setting,
  type Settings,
  sizes,
  text,
  toggle,
  whole,
  words,
} from './settings.ts'
export {
  type BoxSpace,
  box,
  type DiscreteSpace,
  discrete,
  type MultiDiscreteSpace,
  multiDiscrete,
  type Space,
} from './space.ts'
export { restart } from './systems/episodes/reset.ts'
export { bootstrap, infer, reset, step, store } from './systems/systems.ts'
export { readArrow, toArrow, writeArrow } from './tables/arrow.ts'
export { EpisodeBuffer, type EpisodeTurn, type StepColumns, type StepSequences } from './tables/episode-buffer.ts'
export {
  type BatchMetadata,
  buildBatchMetadata,
  computeResponseLengths,
  convertToBatch,
  extractSampleFields,
  type RolloutBatch,
  type SampleFields,
} from './tables/rollout-batch.ts'
export {
  appendResponseTokens,
  type ResponseTokens,
  type Sample,
  type SampleStart,
  type Status,
  samplesOf,
  samplesOfFile,
  samplesToTrajectories,
  startSample,
  statuses,
} from './tables/sample.ts'
export {
  exportSamplesToHuggingfaceFormat,
  exportSamplesToJsonl,
  type LoadSamplesOptions,
  loadSamplesFromJsonl,
} from './tables/sample-files.ts'
export type { Field, Table } from './tables/table.ts'
export { groupNumbers, Trajectories, type Trajectory, type TrajectoryColumns } from './tables/trajectories.ts'
export {
  readTrajectories,
  type TextOrigin,
  type TrajectoriesRead,
  type TrajectoryWords,
  trajectoryTable,
  writeTrajectories,
} from './tables/trajectory-table.ts'
export { type ByteTokenizer, byteTokenizer } from './text/byte-tokenizer.ts'
export type { ChatTemplate, RenderOptions } from './text/chat-template.ts'
export { checkTokenizer } from './text/check-tokenizer.ts'
export { type DownloadProgress, downloadModel, type HubOptions } from './text/hub.ts'
export { type LanguageModelDefinition, languageModel } from './text/language-model.ts'
export { type LanguageModel, loadLanguageModel } from './text/load-language-model.ts'
export { loadTokenizer } from './text/load-tokenizer.ts'
export { StopStrings } from './text/stop-strings.ts'
export { type DecodeOptions, type EncodeOptions, saveTokenizer, type Tokenizer } from './text/tokenizer.ts'
export {
  type NextTurn,
  nextTurn,
  promptIds,
  renderIds,
  type TrainingExample,
  trainingRows,
  turnIds,
} from './text/turn-ids.ts'
export { collect, tick } from './tick.ts'
export {
  type ConversationRunDefinition,
  type ConversationRunSummary,
  findTextEnvironment,
  type TextEnvironmentId,
} from './training/conversation-run.ts'
export type { ConversationProgress } from './training/conversations.ts'
export {
  type EpisodeRunDefinition,
  type EpisodeRunSummary,
  listRollouts,
  loadPolicy,
} from './training/episode-run.ts'
export type { EpisodeProgress } from './training/episodes.ts'
export { type EvaluateOptions, type Evaluation, evaluate, recordEpisodes } from './training/evaluate.ts'
export type { CohortMetrics, UpdateMetrics } from './training/metrics.ts'
export {
  type CohortOfRun,
  configureRun,
  kindOfRun,
  openRun,
  type Run,
  type RunDefinition,
  type RunSummary,
  resumeRun,
  runKeys,
  runMetrics,
  runTrainer,
  type SummaryOfRun,
  startRun,
} from './training/run.ts'
export type { ResumeOptions } from './training/run-folder.ts'
export type { RunListeners } from './training/run-kind.ts'
export { dataset } from './training/text/dataset-environment.ts'
export {
  evaluateText,
  loadTrainedModel,
  type TextEvaluateOptions,
  type TextEvaluation,
} from './training/text/evaluate.ts'
export { exportTrainedModel, exportTrajectories, trajectoryFormats } from './training/text/export.ts'
export { type Generated, type GenerateOptions, generateTokens } from './training/text/generate.ts'
export {
  type LogprobCheck,
  type LogprobModel,
  type LogprobReport,
  type LogprobTolerances,
  LogprobValidator,
  logprobChecks,
  validateLogprobImplementation,
} from './training/text/logprob-validator.ts'
export type { RlMetrics, TextMetrics } from './training/text/metrics.ts'
export type { TextRunPlan } from './training/text/plan.ts'
export { runSftTraining, type SftTrainingOptions } from './training/text/sft-training.ts'
export {
  type AdvantageFn,
  type LossFn,
  RolloutCoordinator,
  type StepMetrics,
  selectAllData,
  selectRecentData,
  type TrainedLanguageModel,
  Trainer,
  type TrainerOptions,
  type TrainingColumns,
  type TrajectoryBuffer,
} from './training/text/token-trainer.ts'
export { transformerLogprobs, type ValidatedTransformer } from './training/text/transformer-logprobs.ts'
export {
  type Algorithms,
  createTrainer,
  type MetricsOf,
  type ProgressOf,
  type Trainer as WorldTrainer,
  type TrainerOptions as WorldTrainerOptions,
} from './training/trainer.ts'
export { type ForeignModule, type ModuleTrust, trustList, trustModule } from './trust.ts'
export { VERSION } from './version.ts'
export { createWorld, type SharedOptions, type World, type WorldOptions } from './world.ts'
