/** The public names that `colonnade` has in Node and in a page. */
export { type AlgorithmDefinition, defineAlgorithm } from './algorithms/algorithm.ts'
export { a2c } from './algorithms/on-policy/a2c.ts'
export { ppo } from './algorithms/on-policy/ppo.ts'
export { InputError } from './base/errors.ts'
export { Random, Stream } from './base/random.ts'
export {
  type BoxSpace,
  box,
  type DiscreteSpace,
  discrete,
  type MultiDiscreteSpace,
  multiDiscrete,
  type Space,
} from './base/space.ts'
export { VERSION } from './base/version.ts'
export { Phase } from './components/episode.ts'
export { cartPole } from './environments/classic/cart-pole.ts'
export { cartPolePosition } from './environments/classic/cart-pole-position.ts'
export { pendulum } from './environments/classic/pendulum.ts'
export { recall } from './environments/classic/recall.ts'
export {
  defineEnvironment,
  type EnvironmentDefinition,
  type EnvironmentFactory,
  type EnvironmentModel,
  type Lanes,
  type State,
  type StateDeclaration,
} from './environments/environment.ts'
export { ticTacToe } from './environments/games/tic-tac-toe.ts'
export { breakout } from './environments/minatar/breakout.ts'
export { type EnvironmentId, environmentFactory, environments } from './environments/registry.ts'
export { mlp } from './policies/mlp.ts'
export type { Policy, PolicyDefinition, PolicyModel } from './policies/policy.ts'
export { restart } from './systems/episodes/reset.ts'
export { bootstrap, collect, infer, reset, step, store, tick } from './systems/tick.ts'
export { toArrow, writeArrow } from './tables/arrow.ts'
export type { Table } from './tables/table.ts'
export { type EvaluateOptions, type Evaluation, evaluate, recordEpisodes } from './training/evaluate/evaluate.ts'
export type { CohortMetrics, UpdateMetrics } from './training/loop/metrics.ts'
export type { EpisodeProgress, PopulationProgress } from './training/loop/trained-sets.ts'
export { createTrainer, type MetricsOf, type ProgressOf, type Trainer } from './training/loop/trainer.ts'
export type { TrainerOptions } from './training/loop/trainer-options.ts'
export type { LearnOptions } from './training/recorded/learn-options.ts'
export type { Cohort } from './world/cohort.ts'
export type { EpisodeCohort } from './world/episodes/cohort.ts'
export type { Autoreset, EpisodeCohortOptions } from './world/episodes/options.ts'
export type { CohortOptions } from './world/housing.ts'
export { Present } from './world/lanes.ts'
export { despawn, spawn } from './world/population.ts'
export { defineSystem, type SystemDefinition, type SystemLanes, type SystemRollout } from './world/system.ts'
export { createWorld, type SharedOptions, type World, type WorldOptions } from './world/world.ts'
