import { Stream } from '../random.ts'
import { integer } from '../settings.ts'
import { box, discrete } from '../space.ts'
import { defineEnvironment, STEPS_MAX } from './environment.ts'

// Both links: 1 m long, 1 kg, their center of mass in the middle, a moment of inertia of 1 kg·m².
const GRAVITY = 9.8 // m/s²
const STEP_SECONDS = 0.2
const VELOCITY_1_MAX = 4 * Math.PI // rad/s
const VELOCITY_2_MAX = 9 * Math.PI
const START_MAX = 0.1

/**
 * Acrobot-v1 with Gymnasium's dynamics (those of the book; one Runge-Kutta step of fourth order in f64), limits and starting
 * states. Two links hang from a joint; a torque on the joint between them has to swing the free end above a line one link's
 * length over the first joint (Sutton, "Generalization in Reinforcement Learning: Successful Examples Using Sparse Coarse
 * Coding", 1996).
 *
 * ## Action Space
 * Discrete(3): a torque of −1, 0 or 1 N·m on the joint between the links.
 *
 * ## Observation Space
 * Box of 6: cos and sin of the first link's angle (0 rad hangs down), cos and sin of the second link's angle against the
 * first, both angular velocities (rad/s, within ±4π and ±9π).
 *
 * ## Rewards
 * −1 for every step but the one that reaches the line, which has 0. Solved at a mean return of −100.
 *
 * ## Starting State
 * Both angles and angular velocities uniform in [−0.1, 0.1), rounded to f32.
 *
 * ## Episode End
 * Terminated when −cos(angle 1) − cos(angle 1 + angle 2) > 1. Truncated after `maxEpisodeSteps` (500) steps.
 */
export const acrobot = defineEnvironment({
  id: 'Acrobot-v1',
  module: import.meta.url,
  settings: { maxEpisodeSteps: integer(500, 'steps after which an episode is truncated', { min: 1, max: STEPS_MAX }) },
  presets: [
    {
      run: { numLanes: 16, totalSteps: 200_000 },
      algorithm: {
        id: 'ppo',
        parameters: { numSteps: 128, numMinibatches: 16, updateEpochs: 4, learningRate: 2e-3, gamma: 0.99 },
      },
      policy: { id: 'mlp', parameters: {} },
    },
  ],
  state: () => ({ angle1: 'f64', angle2: 'f64', velocity1: 'f64', velocity2: 'f64' }),
  make: ({ maxEpisodeSteps }) => {
    const high = [1, 1, 1, 1, Math.fround(VELOCITY_1_MAX), Math.fround(VELOCITY_2_MAX)]
    /** Room for the derivatives at the four places of a Runge-Kutta step: both velocities, both accelerations. */
    const slopes = [0, 1, 2, 3].map(() => new Float64Array(4))
    const [first, second, third, fourth] = slopes as [Float64Array, Float64Array, Float64Array, Float64Array]
    /** By how much the k-th number of the state changes: of the four slopes the inner ones count twice. */
    const change = (k: number) => (STEP_SECONDS / 6) * (first[k]! + 2 * second[k]! + 2 * third[k]! + fourth[k]!)
    return {
      observationSpace: box({ low: high.map((bound) => -bound), high }),
      actionSpace: discrete(3),
      maxEpisodeSteps,
      returnThreshold: -100,
      reset({ state, observation, lane, episode, random }, rows, count) {
        const { angle1, angle2, velocity1, velocity2 } = state
        for (let i = 0; i < count; i++) {
          const n = rows[i]!
          random.draw(Stream.reset, lane[n]!, episode[n]!, 0)
          angle1[n] = Math.fround(random.uniform(0, -START_MAX, START_MAX))
          angle2[n] = Math.fround(random.uniform(1, -START_MAX, START_MAX))
          velocity1[n] = Math.fround(random.uniform(2, -START_MAX, START_MAX))
          velocity2[n] = Math.fround(random.uniform(3, -START_MAX, START_MAX))
          show(observation, n, angle1[n]!, angle2[n]!, velocity1[n]!, velocity2[n]!)
        }
      },
      step({ state, observation, reward, terminated, action }, from, to) {
        const { angle1, angle2, velocity1, velocity2 } = state
        const half = STEP_SECONDS / 2
        for (let n = from; n < to; n++) {
          const torque = action[n]! - 1
          const a = angle1[n]!
          const b = angle2[n]!
          const u = velocity1[n]!
          const v = velocity2[n]!
          derive(first, a, b, u, v, torque)
          deriveAhead(second, first, half, a, b, u, v, torque)
          deriveAhead(third, second, half, a, b, u, v, torque)
          deriveAhead(fourth, third, STEP_SECONDS, a, b, u, v, torque)
          angle1[n] = wrap(a + change(0))
          angle2[n] = wrap(b + change(1))
          velocity1[n] = Math.min(Math.max(u + change(2), -VELOCITY_1_MAX), VELOCITY_1_MAX)
          velocity2[n] = Math.min(Math.max(v + change(3), -VELOCITY_2_MAX), VELOCITY_2_MAX)
          const isThere = -Math.cos(angle1[n]!) - Math.cos(angle2[n]! + angle1[n]!) > 1
          show(observation, n, angle1[n]!, angle2[n]!, velocity1[n]!, velocity2[n]!)
          reward[n] = isThere ? 0 : -1
          terminated[n] = isThere ? 1 : 0
        }
      },
    }
  },
})

/** The derivatives of the state that lies `seconds` ahead along `slope`. */
function deriveAhead(
  out: Float64Array,
  slope: Float64Array,
  seconds: number,
  angle1: number,
  angle2: number,
  velocity1: number,
  velocity2: number,
  torque: number,
): void {
  derive(
    out,
    angle1 + seconds * slope[0]!,
    angle2 + seconds * slope[1]!,
    velocity1 + seconds * slope[2]!,
    velocity2 + seconds * slope[3]!,
    torque,
  )
}

/** The derivatives of both angles and both velocities, by the equations of Sutton and Barto's book. */
function derive(
  out: Float64Array,
  angle1: number,
  angle2: number,
  velocity1: number,
  velocity2: number,
  torque: number,
): void {
  const sin2 = Math.sin(angle2)
  const cos2 = Math.cos(angle2)
  const d1 = 0.25 + (1.25 + cos2) + 2
  const d2 = 0.25 + 0.5 * cos2 + 1
  const phi2 = 0.5 * GRAVITY * Math.cos(angle1 + angle2 - Math.PI / 2)
  const phi1 =
    -0.5 * velocity2 * velocity2 * sin2 -
    velocity2 * velocity1 * sin2 +
    1.5 * GRAVITY * Math.cos(angle1 - Math.PI / 2) +
    phi2
  const acceleration2 =
    (torque + (d2 / d1) * phi1 - 0.5 * velocity1 * velocity1 * sin2 - phi2) / (1.25 - (d2 * d2) / d1)
  out[0] = velocity1
  out[1] = velocity2
  out[2] = -(d2 * acceleration2 + phi1) / d1
  out[3] = acceleration2
}

/** The same angle in [−π, π]: whole turns are taken away one by one, as Gymnasium does. */
function wrap(angle: number): number {
  let wrapped = angle
  while (wrapped > Math.PI) wrapped -= 2 * Math.PI
  while (wrapped < -Math.PI) wrapped += 2 * Math.PI
  return wrapped
}

/** Writes row n of the observation. */
function show(
  observation: Float32Array,
  n: number,
  angle1: number,
  angle2: number,
  velocity1: number,
  velocity2: number,
): void {
  observation[6 * n] = Math.cos(angle1)
  observation[6 * n + 1] = Math.sin(angle1)
  observation[6 * n + 2] = Math.cos(angle2)
  observation[6 * n + 3] = Math.sin(angle2)
  observation[6 * n + 4] = velocity1
  observation[6 * n + 5] = velocity2
}
