/**
 * The public names of `colonnade`, and nothing else: what the first hour of a user takes. `src/entries/` has the rest.
 *
 * @module colonnade
 */

export { a2c } from './algorithms/a2c.ts'
export { type AlgorithmDefinition, defineAlgorithm } from './algorithms/algorithm.ts'
export { bc } from './algorithms/bc.ts'
export { ppo } from './algorithms/ppo.ts'
export { algorithmFactory, algorithms } from './algorithms/registry.ts'
export { rl } from './algorithms/rl.ts'
export { sft } from './algorithms/sft.ts'
export type { Cohort } from './cohorts/cohort.ts'
export type { ConversationCohort } from './cohorts/conversations.ts'
export type { Autoreset, EpisodeCohortOptions } from './cohorts/episode-options.ts'
export type { EpisodeCohort } from './cohorts/episodes.ts'
export type { CohortOptions } from './cohorts/housing.ts'
export { Present } from './cohorts/lanes.ts'
export { despawn, spawn } from './cohorts/population.ts'
export { defineSystem, type SystemDefinition, type SystemLanes, type SystemRollout } from './cohorts/system.ts'
export { Phase } from './components/episode.ts'
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
export { defineTextEnvironment, type Reply, type TextEnvironmentDefinition, type Turn } from './environments/text.ts'
export { ticTacToe } from './environments/tic-tac-toe.ts'
export { InputError } from './errors.ts'
export { mlp } from './policies/mlp.ts'
export { convolutional, dense, recurrent } from './policies/network/ready-made.ts'
export type { Policy, PolicyDefinition, PolicyModel } from './policies/policy.ts'
export { type PolicyFactory, policies, policyFactory } from './policies/registry.ts'
export { loadWeights, saveWeights } from './policies/weights.ts'
export { Random, Stream } from './random.ts'
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
export type { Table } from './tables/table.ts'
export { languageModel } from './text/language-model.ts'
export { collect, tick } from './tick.ts'
export type { EpisodeProgress, PopulationProgress } from './training/agents.ts'
export { type EpisodeRunSummary, loadPolicy } from './training/episode-run.ts'
export { type EvaluateOptions, type Evaluation, evaluate, recordEpisodes } from './training/evaluate.ts'
export type { Algorithms } from './training/given-algorithms.ts'
export type { LearnOptions } from './training/learn-options.ts'
export type { CohortMetrics, UpdateMetrics } from './training/metrics.ts'
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
} from './training/run.ts'
export type { EpisodeRunDefinition, RunDefinition } from './training/run-definition.ts'
export type { ResumeOptions } from './training/run-folder.ts'
export type { RunListeners } from './training/run-kind.ts'
export { dataset } from './training/text/dataset-environment.ts'
export { evaluateText, type TextEvaluateOptions, type TextEvaluation } from './training/text/evaluate.ts'
export { createTrainer, type MetricsOf, type ProgressOf, type Trainer } from './training/trainer.ts'
export type { TrainerOptions } from './training/trainer-options.ts'
export { VERSION } from './version.ts'
export { createWorld, type SharedOptions, type World, type WorldOptions } from './world.ts'
