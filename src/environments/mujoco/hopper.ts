import type { Physics } from './physics.ts'
import { defineSimulation, observeJoints, shakeJoints, sumOfSquares } from './simulation.ts'

function isHealthy({ data: { qpos, qvel } }: Physics): boolean {
  for (let i = 2; i < qpos.length; i++) if (!(Math.abs(qpos[i]!) < 100)) return false
  for (let i = 0; i < qvel.length; i++) if (!(Math.abs(qvel[i]!) < 100)) return false
  return qpos[1]! > 0.7 && Math.abs(qpos[2]!) < 0.2
}

/**
 * Hopper-v5 with Gymnasium's model, rewards, ends and observations, and starts of the same distribution: a leg with a foot hops forward.
 *
 * - **Action space**: Box of 3 within ±1: torques at thigh, leg and foot.
 * - **Observation space**: Box of 11: joint positions except the first (x), and velocities of all six, clipped to ±10.
 * - **Rewards**: 1 while it is healthy + x velocity (m/s, over the step) − 0.001 · Σ action².
 * - **Starting state**: Positions and velocities uniform within ±0.005 of the model's.
 * - **Episode end**: Terminated when it is not healthy: height ≤ 0.7 m, |angle| ≥ 0.2 rad, or another number beyond ±100. Truncated after
 *   `maxEpisodeSteps` (1000) steps.
 */
export const hopper = defineSimulation({
  id: 'Hopper-v5',
  module: import.meta.url,
  maxEpisodeSteps: 1000,
  file: 'hopper.xml',
  frameSkip: 4,
  stateWidth: 58,
  observationWidth: 11,
  actions: { width: 3, size: 1 },
  returnThreshold: 3800,
  draw: { axes: [0, 2], center: [0, 0.9], size: [4, 2.2], follows: 1 },
  task: {
    begin: (physics, noise) => shakeJoints(physics, noise, 0.005, 'uniform'),
    observe: (physics, observation, at) => observeJoints(physics, observation, at, 1, 10),
    measure: ({ data }) => data.qpos[0]!,
    reward: (physics, speed) => speed + (isHealthy(physics) ? 1 : 0) - 0.001 * sumOfSquares(physics.data.ctrl),
    isOver: (physics) => !isHealthy(physics),
  },
})
