/**
 * `colonnade/compat`: a migration layer with names and interfaces of other systems; `docs/names.md` lists them. New programs do not need it.
 *
 * @module colonnade/compat
 */

export { OptimizerRequiredError } from '../base/errors.ts'
export * from '../compat/agent.ts'
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
export * from '../compat/generate-by-engines.ts'
export type { GeneratedSample } from '../compat/generated-sample.ts'
export { cispo, dapo, grpo, gspo, type NamedLoss, rloo, sapo } from '../compat/named-losses.ts'
export * from '../compat/rollout-coordinator.ts'
export * from '../compat/rollout-manager.ts'
export * from '../compat/runner.ts'
export * from '../compat/strategy.ts'
export * from '../compat/training.ts'
export * from '../compat/training-backend.ts'
export * from '../tables/episodes/episode-buffer.ts'
export * from '../tables/episodes/rollout-batch.ts'
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
export * from '../tables/trajectories/sample-files.ts'
export type { SftTrainingOptions } from '../training/text/learn/sft-training.ts'
export * from '../training/text/learn/token-trainer.ts'
