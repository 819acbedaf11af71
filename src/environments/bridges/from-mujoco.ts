/** Environments from a user's model in MJCF, MuJoCo's format. */
import { checkOptions, InputError, show } from '../../base/errors.ts'
import { box } from '../../base/space.ts'
import { defineEnvironment, type EnvironmentFactory, type EnvironmentPreset } from '../environment.ts'
import { compileModel, type Physics } from '../mujoco/physics.ts'
import { observeJoints, simulate, simulationState, type Task } from '../mujoco/simulation.ts'

/** Options of `fromMujoco`: a model and the task on it. */
export interface FromMujocoOptions<I extends string = string>
  extends Omit<Task, 'observe'>,
    Partial<Pick<Task, 'observe'>> {
  readonly id: I
  /** `import.meta.url` of the module that exports the environment, so that other threads and resumed runs can create it. */
  readonly module?: string
  /** The model: MJCF, or the URL of an MJCF file. Files that the model names are not loaded. */
  readonly model: string | URL
  /** Steps of the model per step of the environment. Default 1. */
  readonly frameSkip?: number
  /** Number of elements that `observe` writes. Default: positions and velocities of all joints, written without an `observe`. */
  readonly observationWidth?: number
  /** Steps after which an episode is truncated; null for no limit. */
  readonly maxEpisodeSteps: number | null
  /** Mean return of 100 episodes at which it counts as solved. Default null: none. */
  readonly returnThreshold?: number | null
  /** Tested presets. Default: none. */
  readonly presets?: readonly EnvironmentPreset[]
}

const optionNames = Object.keys({
  ...{ id: true, module: true, model: true, frameSkip: true, observationWidth: true, maxEpisodeSteps: true },
  ...{ returnThreshold: true, presets: true, begin: true, observe: true, reward: true, isOver: true, measure: true },
} satisfies Record<keyof FromMujocoOptions, true>)

/**
 * Compiles a model with MuJoCo (`npm install @mujoco/mujoco`) and creates an environment of it. Its actions are the model's controls,
 * within their ranges. The columns of a lane hold MuJoCo's integration state without `eq_active`.
 * @throws InputError if the package is not installed, MuJoCo refuses the model, or a control has no range.
 * @example
 * export const arm = await fromMujoco({
 *   id: 'Arm-v0',
 *   module: import.meta.url,
 *   model: new URL('arm.xml', import.meta.url),
 *   frameSkip: 5,
 *   maxEpisodeSteps: 200,
 *   begin: ({ data }, noise) => { data.qpos[0] = noise.uniform(-1, 1) },
 *   reward: ({ data }) => -(data.qpos[0] ** 2),
 * })
 */
export async function fromMujoco<const I extends string>(
  options: FromMujocoOptions<I>,
  // biome-ignore lint/complexity/noBannedTypes: no settings.
): Promise<EnvironmentFactory<{}, I>> {
  checkOptions('fromMujoco', options, optionNames)
  const { id, module, model, frameSkip = 1, maxEpisodeSteps, returnThreshold = null, presets = [], ...given } = options
  const subject = `environment ${id}`
  if (typeof given.reward !== 'function') throw new InputError(`${subject} reward`, show(given.reward), 'a function')
  if (!Number.isSafeInteger(frameSkip) || frameSkip < 1) {
    throw new InputError(`${subject} frameSkip`, show(frameSkip), 'a whole number ≥ 1')
  }
  if ((given.observe === undefined) !== (given.observationWidth === undefined)) {
    throw new InputError(
      `${subject} observationWidth`,
      show(given.observationWidth),
      'a number together with observe, or neither of the two',
    )
  }
  const physics = await compileModel(subject, model)
  const { nq, nv } = physics.model
  const { observationWidth = nq + nv, ...task } = given
  const observe =
    task.observe ??
    ((physics: Physics, observation: Float32Array, at: number) => {
      observeJoints(physics, observation, at, 0)
    })
  const actionSpace = actionsOf(subject, physics)
  const shape = { frameSkip, stateWidth: physics.stateWidth }
  return defineEnvironment({
    id,
    ...(module !== undefined && { module }),
    presets,
    settings: {},
    state: () => simulationState(physics.stateWidth),
    make: () => ({
      observationSpace: box({ low: -Infinity, high: Infinity, shape: [observationWidth] }),
      actionSpace,
      maxEpisodeSteps,
      returnThreshold,
      ...simulate(subject, () => model, { ...task, observe }, shape),
    }),
  })
}

function actionsOf(subject: string, { model }: Physics) {
  const { nu, actuator_ctrlrange: range } = model
  if (nu === 0) throw new InputError(`${subject} model`, 'no actuator', 'one or more actuators, each with a ctrlrange')
  const controls = Array.from({ length: nu }, (_, i) => i)
  const open = controls.find((i) => !(range[2 * i]! < range[2 * i + 1]!))
  if (open !== undefined)
    throw new InputError(`${subject} actuator ${open}`, 'no ctrlrange', 'a ctrlrange: its actions')
  const bounds = (side: 0 | 1) => controls.map((i) => Math.fround(range[2 * i + side]!))
  return box({ low: bounds(0), high: bounds(1) })
}
