import type { Physics } from './physics.ts'
import { defineSimulation, observeJoints, shakeJoints, sumOfSquares } from './simulation.ts'

function isHealthy({ data: { qpos } }: Physics): boolean {
  return qpos[1]! > 0.8 && qpos[1]! < 2 && Math.abs(qpos[2]!) < 1
}

/**
 * Walker2d-v5 with Gymnasium's model, rewards, ends and observations, and starts of the same distribution: a planar body with two legs
 * walks forward.
 *
 * - **Action space**: Box of 6 within ±1: torques at six joints.
 * - **Observation space**: Box of 17: joint positions except the first (x), and velocities of all nine, clipped to ±10.
 * - **Rewards**: 1 while it is healthy + x velocity (m/s, over the step) − 0.001 · Σ action².
 * - **Starting state**: Positions and velocities uniform within ±0.005 of the model's.
 * - **Episode end**: Terminated when it is not healthy: height outside (0.8, 2) m, or |angle| ≥ 1 rad. Truncated after `maxEpisodeSteps`
 *   (1000) steps.
 */
export const walker2d = defineSimulation({
  id: 'Walker2d-v5',
  module: import.meta.url,
  maxEpisodeSteps: 1000,
  file: 'walker2d.xml',
  frameSkip: 4,
  stateWidth: 91,
  observationWidth: 17,
  actions: { width: 6, size: 1 },
  returnThreshold: null,
  draw: { axes: [0, 2], center: [0, 0.9], size: [4, 2.2], follows: 1 },
  task: {
    begin: (physics, noise) => shakeJoints(physics, noise, 0.005, 'uniform'),
    observe: (physics, observation, at) => observeJoints(physics, observation, at, 1, 10),
    measure: ({ data }) => data.qpos[0]!,
    reward: (physics, speed) => speed + (isHealthy(physics) ? 1 : 0) - 0.001 * sumOfSquares(physics.data.ctrl),
    isOver: (physics) => !isHealthy(physics),
  },
})
