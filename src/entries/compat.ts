/**
 * `colonnade/compat`: names and shapes of other systems, over the rest; `docs/names.md` says which.
 *
 * @module colonnade/compat
 */

export { OptimizerRequiredError } from '../base/errors.ts'
export {
  type Agent,
  type AgentEnvironmentOptions,
  type AgentFactory,
  type AgentObservation,
  agentEnvironment,
  type GenerationOutputs,
  makeAgent,
  registerAgent,
  type TrajectoryContext,
} from '../compat/agent.ts'
export { BufferAggregator, type EpisodeSource } from '../compat/aggregator.ts'
export {
  type Abstraction,
  type CheckedService,
  type EnvironmentService,
  makeEnvironment,
  type ResetResult,
  registerEnvironment,
  type ServiceFactory,
  type ServiceOptions,
  type StepResult,
} from '../compat/environment-service.ts'
export {
  type EngineGenerationOptions,
  type EnginePrompt,
  generateByEngines,
} from '../compat/generate-by-engines.ts'
export type { GeneratedSample } from '../compat/generated-sample.ts'
export { cispo, dapo, grpo, gspo, type NamedLoss, rloo, sapo } from '../compat/named-losses.ts'
export {
  type CollectedFrom,
  type CoordinatedEnvironment,
  type CoordinatedPolicy,
  type CoordinatorOptions,
  RolloutCoordinator,
} from '../compat/rollout-coordinator.ts'
export {
  AsyncRolloutManager,
  type GenerateFn,
  generateRolloutBatches,
  type RolloutConfig,
  type SampleFilterFn,
  type SampleRewardFn,
  type SavedRolloutManager,
  type SavedSample,
} from '../compat/rollout-manager.ts'
export {
  RolloutRunner,
  RolloutWorker,
  type RunnerOptions,
  type RunnerStatistics,
  type WorkerFn,
} from '../compat/runner.ts'
export {
  createStrategy,
  type PolicyAnswer,
  type PolicyFn,
  type RolloutStrategy,
  strategies,
  type TransitionData,
  validateTransitionData,
} from '../compat/strategy.ts'
export {
  type CheckpointEngine,
  computeAdvantages,
  JsonlLogger,
  type MetricsLogger,
  type RlTrainingConfig,
  runRlTraining,
  runSftTraining,
  type SftSample,
  type SftTrainingConfig,
  type SyncedEngine,
  syncWeightsToEngines,
  type TrainingLoopConfig,
  type TrainingStep,
  type WeightsEngine,
} from '../compat/training.ts'
export {
  type BatchBackend,
  type OpenBackend,
  type OpenBackendOptions,
  openTrainingBackend,
  type TrainingBatch,
} from '../compat/training-backend.ts'
export {
  EpisodeBuffer,
  type EpisodeTurn,
  type StepColumns,
  type StepSequences,
} from '../tables/episodes/episode-buffer.ts'
export {
  type BatchMetadata,
  buildBatchMetadata,
  computeResponseLengths,
  convertToBatch,
  extractSampleFields,
  type RolloutBatch,
  type SampleFields,
} from '../tables/episodes/rollout-batch.ts'
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
} from '../tables/trajectories/sample.ts'
export {
  exportSamplesToHuggingfaceFormat,
  exportSamplesToJsonl,
  type LoadSamplesOptions,
  loadSamplesFromJsonl,
} from '../tables/trajectories/sample-files.ts'
export type { SftTrainingOptions } from '../training/text/learn/sft-training.ts'
export {
  type AdvantageFn,
  type LossFn,
  type StepMetrics,
  selectAllData,
  selectRecentData,
  type TrainedLanguageModel,
  Trainer,
  type TrainerParts,
  type TrainingColumns,
  type TrajectoryBuffer,
} from '../training/text/learn/token-trainer.ts'
