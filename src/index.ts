/**
 * The public names of `colonnade`: those that a user needs in the first hour. `src/entries/` has all other public names.
 *
 * @module colonnade
 */

export { bc } from './algorithms/on-policy/bc.ts'
export { algorithmFactory, algorithms } from './algorithms/registry.ts'
export { rl } from './algorithms/tokens/rl.ts'
export { sft } from './algorithms/tokens/sft.ts'
export { textEnvironmentFactory, textEnvironments } from './environments/tasks/registry.ts'
export { defineTextEnvironment, type Reply, type TextEnvironmentDefinition, type Turn } from './environments/text.ts'
export * from './index.core.ts'
export { languageModel } from './language/language-model.ts'
export { convolutional, dense, recurrent } from './policies/network/ready-made.ts'
export { type PolicyFactory, policies, policyFactory } from './policies/registry.ts'
export { loadWeights, saveWeights } from './policies/weights.ts'
export { readArrow } from './tables/read-arrow.ts'
export type { ResumeOptions } from './training/folder/run-folder.ts'
export type { Algorithms } from './training/loop/trainer-options.ts'
export type { EpisodeRunDefinition, RunDefinition } from './training/run/definition.ts'
export { type EpisodeRunSummary, loadPolicy } from './training/run/episode-run.ts'
export type { RunListeners } from './training/run/kind.ts'
export {
  type CohortOfRun,
  configureRun,
  kindOfRun,
  openRun,
  type Run,
  type RunSummary,
  resumeRun,
  runTrainer,
  type SummaryOfRun,
  startRun,
} from './training/run/run.ts'
export { dataset } from './training/text/collect/dataset-environment.ts'
export { evaluateText, type TextEvaluateOptions, type TextEvaluation } from './training/text/evaluate/evaluate.ts'
export type { ConversationCohort } from './world/conversations/cohort.ts'
