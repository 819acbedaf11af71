/**
 * `colonnade/environments`: environments beyond those in `colonnade`, environments from objects, from bitecs games or
 * in Python, finding them by id, checking their contract and speed, and systems that change rewards.
 *
 * @module colonnade/environments
 */

export { dict, type SpacePart } from '../base/space.ts'
export * from '../environments/bridges/from-bitecs.ts'
export { type FromGymnasiumOptions, fromGymnasium } from '../environments/bridges/from-gymnasium.ts'
export { type FromMujocoOptions, fromMujoco } from '../environments/bridges/from-mujoco.ts'
export { type FromObjectsOptions, fromObjects } from '../environments/bridges/from-objects.ts'
export { type FromPettingZooOptions, fromPettingZoo } from '../environments/bridges/from-petting-zoo.ts'
export type { ObjectAction, ObjectEnvironment, ObjectObservation } from '../environments/bridges/led.ts'
export { Canvas } from '../environments/canvas.ts'
export * from '../environments/checks/check.ts'
export { type EnvironmentCheck, environmentChecks } from '../environments/checks/checks.ts'
export { type ColumnStepInputs, type ColumnStepOutputs, columnStep } from '../environments/column-step.ts'
export { LEVEL_STATE } from '../environments/environment.ts'
export { encodeGif } from '../environments/gif.ts'
export { beginLevel, levelRandom } from '../environments/levels.ts'
export type { Physics, ResetNoise } from '../environments/mujoco/physics.ts'
export type { Task } from '../environments/mujoco/simulation.ts'
export { gridPicture, isGrid, type Picture, pictureColors } from '../environments/picture.ts'
export {
  createEnvironment,
  type EnvironmentSpec,
  listEnvironments,
  registerEnvironment,
} from '../environments/registry.ts'
export { sharedCritic } from '../environments/shared-critic.ts'
export * from '../environments/suite.ts'
export * from '../environments/wrapper.ts'
export { actionRepeat, frameStack, rescaleAction, timeLimit } from '../environments/wrappers.ts'
export { prioritizedLevels } from '../systems/levels.ts'
export { clipRewards, normalizeRewards } from '../systems/rewards.ts'
export {
  type EnvironmentMeasurement,
  type EnvironmentSpeed,
  type MeasureOptions,
  measureEnvironment,
  recommendedNumLanes,
} from '../training/evaluate/measure-environment.ts'
export type { SelfPlayOptions } from '../world/episodes/self-play.ts'
