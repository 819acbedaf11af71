import type { Physics } from './physics.ts'
import { defineSimulation, observeJoints, shakeJoints, sumOfSquares } from './simulation.ts'

const isHealthy = ({ data: { qpos } }: Physics): boolean => qpos[2]! > 1 && qpos[2]! < 2

/** x of the center of mass. */
function massCenter({ mass, data: { xipos } }: Physics): number {
  let [sum, total] = [0, 0]
  for (let body = 0; body < mass.length; body++) {
    sum += mass[body]! * xipos[3 * body]!
    total += mass[body]!
  }
  return sum / total
}

/** Appends the elements from `from` on. Returns the end index. */
function append(observation: Float32Array, at: number, x: ArrayLike<number>, from: number): number {
  for (let i = from; i < x.length; i++) observation[at + i - from] = x[i]!
  return at + x.length - from
}

/**
 * Humanoid-v5 with Gymnasium's model, rewards, ends and observations, and starts of the same distribution: a body with arms and legs walks
 * forward.
 *
 * - **Action space**: Box of 17 within ±0.4: torques at seventeen joints.
 * - **Observation space**: Box of 348: joint positions except the first two (x and y), all velocities, the inertia, velocity and
 *   contact forces of each body, and the forces of the actuators.
 * - **Rewards**: 5 while it is healthy + 1.25 · x velocity of the center of mass (m/s, over the step) − 0.1 · Σ action² − 5e-7 · Σ of the
 *   squared contact forces, at most 10.
 * - **Starting state**: Positions and velocities uniform within ±0.01 of the model's.
 * - **Episode end**: Terminated when it is not healthy: height outside (1, 2) m. Truncated after `maxEpisodeSteps` (1000) steps.
 */
export const humanoid = defineSimulation({
  id: 'Humanoid-v5',
  module: import.meta.url,
  maxEpisodeSteps: 1000,
  file: 'humanoid.xml',
  frameSkip: 5,
  stateWidth: 195,
  observationWidth: 348,
  actions: { width: 17, size: Math.fround(0.4) },
  returnThreshold: null,
  draw: { axes: [0, 2], center: [0, 0.9], size: [4, 2.4], follows: 1 },
  task: {
    begin: (physics, noise) => shakeJoints(physics, noise, 0.01, 'uniform'),
    observe(physics, observation, at) {
      const { cinert, cvel, qfrc_actuator, cfrc_ext } = physics.data
      let k = observeJoints(physics, observation, at, 2)
      k = append(observation, k, cinert, 10)
      k = append(observation, k, cvel, 6)
      k = append(observation, k, qfrc_actuator, 6)
      append(observation, k, cfrc_ext, 6)
    },
    measure: massCenter,
    reward: (physics, speed) =>
      1.25 * speed +
      (isHealthy(physics) ? 5 : 0) -
      (0.1 * sumOfSquares(physics.data.ctrl) + Math.min(10, 5e-7 * sumOfSquares(physics.data.cfrc_ext))),
    isOver: (physics) => !isHealthy(physics),
  },
})
