import { Stream } from '../../base/random.ts'
import { integer } from '../../base/settings.ts'
import { box, discrete } from '../../base/space.ts'
import { Canvas } from '../canvas.ts'
import { defineEnvironment, STEPS_MAX, withSettings } from '../environment.ts'

// Each link: 1 m, 1 kg, center of mass in the middle, moment of inertia 1 kg·m².
const GRAVITY = 9.8 // m/s²
const STEP_SECONDS = 0.2
const VELOCITY_1_MAX = 4 * Math.PI // rad/s
const VELOCITY_2_MAX = 9 * Math.PI
const START_MAX = 0.1

/**
 * Acrobot-v1 with Gymnasium's dynamics (those of the book; one fourth-order Runge-Kutta step in f64), limits and starting states. Two
 * links hang from a joint. A torque on the joint between them must swing the free end above a line one link length over the first joint
 * (Sutton, "Generalization in Reinforcement Learning: Successful Examples Using Sparse Coarse Coding", 1996).
 *
 * - **Action space**: Discrete(3): a torque of −1, 0 or 1 N·m on the joint between the links.
 * - **Observation space**: Box of 6: cos and sin of the first link's angle (0 rad hangs down), cos and sin of the second link's angle
 *   relative to the first, both angular velocities (rad/s, within ±4π and ±9π).
 * - **Rewards**: −1 for every step except the one that reaches the line, which has 0. Solved at a mean return of −100.
 * - **Starting state**: Both angles and angular velocities uniform in [−0.1, 0.1), rounded to f32.
 * - **Episode end**: Terminated when −cos(angle 1) − cos(angle 1 + angle 2) > 1. Truncated after `maxEpisodeSteps` (500) steps.
 */
export const acrobot = defineEnvironment({
  id: 'Acrobot-v1',
  module: import.meta.url,
  settings: { maxEpisodeSteps: integer(500, 'steps after which an episode is truncated', { min: 1, max: STEPS_MAX }) },
  presets: [
    {
      run: { numLanes: 16, totalSteps: 400_000 },
      algorithm: withSettings('ppo', {
        numSteps: 128,
        numMinibatches: 16,
        updateEpochs: 4,
        learningRate: 2e-3,
        gamma: 0.99,
      }),
      policy: withSettings('mlp', {}),
    },
  ],
  state: () => ({ angle1: 'f64', angle2: 'f64', velocity1: 'f64', velocity2: 'f64' }),
  make: ({ maxEpisodeSteps }) => {
    const high = [1, 1, 1, 1, Math.fround(VELOCITY_1_MAX), Math.fround(VELOCITY_2_MAX)]
    // Functions get numbers in arrays: as arguments they would be boxed, and so allocated.
    const current = new Float64Array(4)
    const ahead = new Float64Array(4)
    const slopes = [0, 1, 2, 3].map(() => new Float64Array(4)) as [Slope, Slope, Slope, Slope]
    return {
      draw({ angle1, angle2 }, n) {
        const [first, second] = [angle1[n]!, angle1[n]! + angle2[n]!]
        const [x, y] = [Math.sin(first), -Math.cos(first)]
        return new Canvas({ low: [-2.2, -2.2], high: [2.2, 2.2], columns: 100 })
          .line(-2.2, 1, 2.2, 1, 0.04, 3) // The target height.
          .line(0, 0, x, y, 0.2, 1)
          .line(x, y, x + Math.sin(second), y - Math.cos(second), 0.2, 5)
          .disc(0, 0, 0.1, 6)
          .disc(x, y, 0.1, 6)
      },
      observationSpace: box({ low: high.map((bound) => -bound), high }),
      actionSpace: discrete(3),
      maxEpisodeSteps,
      returnThreshold: -100,
      reset({ state, observation, lane, episode, random }, rows, count) {
        const { angle1, angle2, velocity1, velocity2 } = state
        for (let i = 0; i < count; i++) {
          const n = rows[i]!
          random.draw(Stream.reset, lane[n]!, episode[n]!, 0)
          for (let k = 0; k < 4; k++) current[k] = Math.fround(random.uniform(k, -START_MAX, START_MAX))
          angle1[n] = current[0]!
          angle2[n] = current[1]!
          velocity1[n] = current[2]!
          velocity2[n] = current[3]!
          show(observation, n, current)
        }
      },
      step({ state, observation, reward, terminated, action }, from, to) {
        const { angle1, angle2, velocity1, velocity2 } = state
        for (let n = from; n < to; n++) {
          current[0] = angle1[n]!
          current[1] = angle2[n]!
          current[2] = velocity1[n]!
          current[3] = velocity2[n]!
          integrate(current, action[n]! - 1, slopes, ahead)
          angle1[n] = current[0]!
          angle2[n] = current[1]!
          velocity1[n] = current[2]!
          velocity2[n] = current[3]!
          const isThere = -Math.cos(current[0]!) - Math.cos(current[1]! + current[0]!) > 1
          show(observation, n, current)
          reward[n] = isThere ? 0 : -1
          terminated[n] = isThere ? 1 : 0
        }
      },
    }
  },
})

/** Derivatives of both angles and both velocities. */
type Slope = Float64Array

/** Advances both angles and both velocities by one fourth-order Runge-Kutta step. `slopes` and `ahead` are workspace. */
function integrate(
  state: Float64Array,
  torque: number,
  slopes: readonly [Slope, Slope, Slope, Slope],
  ahead: Float64Array,
): void {
  const [first, second, third, fourth] = slopes
  derive(first, state, torque)
  for (let k = 0; k < 4; k++) ahead[k] = state[k]! + (STEP_SECONDS / 2) * first[k]!
  derive(second, ahead, torque)
  for (let k = 0; k < 4; k++) ahead[k] = state[k]! + (STEP_SECONDS / 2) * second[k]!
  derive(third, ahead, torque)
  for (let k = 0; k < 4; k++) ahead[k] = state[k]! + STEP_SECONDS * third[k]!
  derive(fourth, ahead, torque)
  for (let k = 0; k < 4; k++) {
    state[k] = state[k]! + (STEP_SECONDS / 6) * (first[k]! + 2 * second[k]! + 2 * third[k]! + fourth[k]!)
  }
  // Subtracts whole turns one by one, as Gymnasium does: the angles are in [−π, π].
  for (let k = 0; k < 2; k++) {
    while (state[k]! > Math.PI) state[k] = state[k]! - 2 * Math.PI
    while (state[k]! < -Math.PI) state[k] = state[k]! + 2 * Math.PI
  }
  state[2] = Math.min(Math.max(state[2]!, -VELOCITY_1_MAX), VELOCITY_1_MAX)
  state[3] = Math.min(Math.max(state[3]!, -VELOCITY_2_MAX), VELOCITY_2_MAX)
}

/** The derivatives at a state, by the equations in Sutton and Barto's book. */
function derive(slope: Slope, state: Float64Array, torque: number): void {
  const velocity1 = state[2]!
  const velocity2 = state[3]!
  const sin2 = Math.sin(state[1]!)
  const cos2 = Math.cos(state[1]!)
  const d1 = 0.25 + (1.25 + cos2) + 2
  const d2 = 0.25 + 0.5 * cos2 + 1
  const phi2 = 0.5 * GRAVITY * Math.cos(state[0]! + state[1]! - Math.PI / 2)
  const phi1 =
    -0.5 * velocity2 * velocity2 * sin2 -
    velocity2 * velocity1 * sin2 +
    1.5 * GRAVITY * Math.cos(state[0]! - Math.PI / 2) +
    phi2
  const acceleration2 =
    (torque + (d2 / d1) * phi1 - 0.5 * velocity1 * velocity1 * sin2 - phi2) / (1.25 - (d2 * d2) / d1)
  slope[0] = velocity1
  slope[1] = velocity2
  slope[2] = -(d2 * acceleration2 + phi1) / d1
  slope[3] = acceleration2
}

function show(observation: Float32Array, n: number, state: Float64Array): void {
  observation[6 * n] = Math.cos(state[0]!)
  observation[6 * n + 1] = Math.sin(state[0]!)
  observation[6 * n + 2] = Math.cos(state[1]!)
  observation[6 * n + 3] = Math.sin(state[1]!)
  observation[6 * n + 4] = state[2]!
  observation[6 * n + 5] = state[3]!
}
