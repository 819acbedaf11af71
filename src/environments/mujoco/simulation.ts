/** Environments that simulate a MuJoCo model: start, observation, reward and end. */
import { InputError } from '../../base/errors.ts'
import { ownFile } from '../../base/files/own-files.ts'
import { integer } from '../../base/settings.ts'
import { box } from '../../base/space.ts'
import { Canvas } from '../canvas.ts'
import { defineEnvironment, type EnvironmentPreset, type Lanes, STEPS_MAX } from '../environment.ts'
import { compileModel, type Physics, ResetNoise } from './physics.ts'

/** A task on a model. */
export interface Task {
  /** Changes the positions and velocities in `physics.data` from the model's own to those of an initial state. Default: no change. */
  begin?(physics: Physics, noise: ResetNoise): void
  /** Writes an observation from element `at`. */
  observe(physics: Physics, observation: Float32Array, at: number): void
  /** The reward of a step with the action `physics.data.ctrl`; `speed` is the change of `measure` over the step, per second. */
  reward(physics: Physics, speed: number): number
  /** Whether a step has ended the episode. Default: never. */
  isOver?(physics: Physics): boolean
  /** A number whose change is rewarded, such as the position of a body. Default: 0. */
  measure?(physics: Physics): number
}

/** A built-in environment on a model. */
export interface SimulationOptions<I extends string> extends SimulationShape {
  readonly id: I
  readonly module: string
  readonly presets?: readonly EnvironmentPreset[]
  /** The model's file in `mujoco/`. */
  readonly file: string
  readonly observationWidth: number
  /** Number of actions, each within ±size. */
  readonly actions: { readonly width: number; readonly size: number }
  /** Default number of steps after which an episode is truncated. */
  readonly maxEpisodeSteps: number
  readonly returnThreshold: number | null
  readonly task: Task
}

interface SimulationShape {
  /** Steps of the model per step of the environment. */
  readonly frameSkip: number
  /** Number of values of the model's state, which is declared before the model is compiled. */
  readonly stateWidth: number
  readonly draw?: SideView
}

/** The picture's axes, by their place in a position, its size, and the body that it follows. */
export interface SideView {
  readonly axes: readonly [0 | 1 | 2, 0 | 1 | 2]
  readonly center: readonly [number, number]
  readonly size: readonly [number, number]
  readonly follows?: number
}

const folder = new URL(`${import.meta.url.endsWith('.ts') ? '../../../' : '../../../../'}mujoco/`, import.meta.url)

/** Defines a built-in environment on a model. */
export function defineSimulation<const I extends string>({
  id,
  module,
  presets = [],
  file,
  observationWidth,
  actions,
  maxEpisodeSteps: usual,
  returnThreshold,
  task,
  ...shape
}: SimulationOptions<I>) {
  return defineEnvironment({
    id,
    module,
    presets,
    settings: {
      maxEpisodeSteps: integer(usual, 'steps after which an episode is truncated', { min: 1, max: STEPS_MAX }),
    },
    state: () => simulationState(shape.stateWidth),
    make: ({ maxEpisodeSteps }) => ({
      observationSpace: box({ low: -Infinity, high: Infinity, shape: [observationWidth] }),
      actionSpace: box({ low: -actions.size, high: actions.size, shape: [actions.width] }),
      maxEpisodeSteps,
      returnThreshold,
      ...simulate(`environment ${id}`, () => ownFile(new URL(file, folder)), task, shape),
    }),
  })
}

/** The columns of a lane: MuJoCo's integration state (`mjSTATE_INTEGRATION`), and the task's measure. */
export function simulationState(stateWidth: number) {
  return { simulation: ['f64', stateWidth], measured: 'f64' } as const
}

interface SimulationColumns {
  readonly simulation: Float64Array
  readonly measured: Float64Array
}

/** The functions of an environment on a model, given as MJCF or as its file. */
export function simulate(
  subject: string,
  model: () => string | URL,
  task: Task,
  { frameSkip, stateWidth, draw: view }: SimulationShape,
) {
  let physics: Physics | undefined
  const noise = new ResetNoise()
  const loaded = (): Physics => {
    if (physics !== undefined) return physics
    throw new InputError(subject, 'a call before its model is compiled', 'createWorld, or await environment.prepare()')
  }
  return {
    allocates: true, // MuJoCo's bindings allocate in each call.
    async prepare() {
      physics = await compileModel(subject, model())
      if (physics.stateWidth === stateWidth) return
      throw new InputError(`${subject} model`, `${physics.stateWidth} numbers of state`, `${stateWidth}`)
    },
    reset({ state, observation, lane, episode, random }: Lanes<SimulationColumns>, rows: Uint32Array, count: number) {
      const physics = loaded()
      const width = observation.length / lane.length
      for (let i = 0; i < count; i++) {
        const n = rows[i]!
        noise.begin(random, lane[n]!, episode[n]!)
        physics.reset()
        task.begin?.(physics, noise)
        physics.forward()
        physics.store(state.simulation, n)
        state.measured[n] = task.measure?.(physics) ?? 0
        task.observe(physics, observation, n * width)
      }
    },
    step({ state, observation, action, reward, terminated, lane }: Lanes<SimulationColumns>, from: number, to: number) {
      const physics = loaded()
      const width = observation.length / lane.length
      for (let n = from; n < to; n++) {
        physics.load(state.simulation, n)
        const { ctrl } = physics.data
        for (let k = 0; k < ctrl.length; k++) ctrl[k] = action[n * ctrl.length + k]!
        physics.step(frameSkip)
        physics.store(state.simulation, n)
        const measured = task.measure?.(physics) ?? 0
        const speed = (measured - state.measured[n]!) / (frameSkip * physics.timestep)
        state.measured[n] = measured
        task.observe(physics, observation, n * width)
        reward[n] = task.reward(physics, speed)
        terminated[n] = task.isOver?.(physics) ? 1 : 0
      }
    },
    ...(view && { draw: ({ simulation }: SimulationColumns, n: number) => drawGeoms(loaded(), view, simulation, n) }),
  }
}

/** The types of MuJoCo's geoms that are drawn (`mjtGeom`). */
const Geom = { sphere: 2, capsule: 3, cylinder: 5 } as const

function drawGeoms(physics: Physics, view: SideView, simulation: Float64Array, n: number): Canvas {
  physics.load(simulation, n)
  physics.forward()
  const { geom_xpos: position, geom_xmat: turned, xpos } = physics.data
  const { geomType, geomSize } = physics
  const [right, up] = view.axes
  const middle = [...view.center] as [number, number]
  if (view.follows !== undefined) middle[0] += xpos[3 * view.follows + right]!
  const low = [middle[0] - view.size[0] / 2, middle[1] - view.size[1] / 2] as const
  const high = [middle[0] + view.size[0] / 2, middle[1] + view.size[1] / 2] as const
  const canvas = new Canvas({ low, high })
  if (up === 2) canvas.below(() => 0, 9)
  for (let g = 0; g < geomType.length; g++) {
    const type = geomType[g]!
    if (type !== Geom.sphere && type !== Geom.capsule && type !== Geom.cylinder) continue
    const [x, y] = [position[3 * g + right]!, position[3 * g + up]!]
    const half = type === Geom.sphere ? 0 : geomSize[3 * g + 1]!
    // A capsule extends along the third axis of its own frame.
    const [alongX, alongY] = [half * turned[9 * g + 3 * right + 2]!, half * turned[9 * g + 3 * up + 2]!]
    canvas.line(x - alongX, y - alongY, x + alongX, y + alongY, 2 * geomSize[3 * g]!, 2 + (g % 6))
  }
  return canvas
}

/** Writes the positions from index `skipped` on, then all velocities, clipped to ±`most`. Returns the end index. */
export function observeJoints(
  { data: { qpos, qvel } }: Physics,
  observation: Float32Array,
  at: number,
  skipped: number,
  most = Number.POSITIVE_INFINITY,
): number {
  let k = at
  for (let i = skipped; i < qpos.length; i++) observation[k++] = qpos[i]!
  for (let i = 0; i < qvel.length; i++) observation[k++] = Math.max(-most, Math.min(most, qvel[i]!))
  return k
}

/** Adds uniform noise within ±scale to positions and velocities, or normal noise with that standard deviation to velocities. */
export function shakeJoints(
  { data: { qpos, qvel } }: Physics,
  noise: ResetNoise,
  scale: number,
  velocities: 'uniform' | 'normal',
): void {
  for (let i = 0; i < qpos.length; i++) qpos[i] = qpos[i]! + noise.uniform(-scale, scale)
  for (let i = 0; i < qvel.length; i++) {
    qvel[i] = qvel[i]! + (velocities === 'normal' ? scale * noise.normal() : noise.uniform(-scale, scale))
  }
}

/** Σ x² over an array. */
export function sumOfSquares(x: ArrayLike<number>): number {
  let sum = 0
  for (let i = 0; i < x.length; i++) sum += x[i]! * x[i]!
  return sum
}

/** The distance between two bodies, given by their numbers in the model. */
export function distanceOf(xpos: Float64Array, one: number, other: number): number {
  const [x, y, z] = [0, 1, 2].map((i) => xpos[3 * one + i]! - xpos[3 * other + i]!) as [number, number, number]
  return Math.sqrt(x * x + y * y + z * z)
}
