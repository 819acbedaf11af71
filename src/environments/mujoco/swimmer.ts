import { defineSimulation, observeJoints, shakeJoints, sumOfSquares } from './simulation.ts'

/**
 * Swimmer-v5 with Gymnasium's model, rewards, ends and observations, and starts of the same distribution: three links swim forward in a
 * plane.
 *
 * - **Action space**: Box of 2 within ±1: torques at two joints.
 * - **Observation space**: Box of 8: joint positions except the first two (x and y), and velocities of all five.
 * - **Rewards**: x velocity (m/s, over the step) − 0.0001 · Σ action².
 * - **Starting state**: Positions and velocities uniform within ±0.1 of the model's.
 * - **Episode end**: Never terminated. Truncated after `maxEpisodeSteps` (1000) steps.
 */
export const swimmer = defineSimulation({
  id: 'Swimmer-v5',
  module: import.meta.url,
  maxEpisodeSteps: 1000,
  file: 'swimmer.xml',
  frameSkip: 4,
  stateWidth: 47,
  observationWidth: 8,
  actions: { width: 2, size: 1 },
  returnThreshold: 360,
  draw: { axes: [0, 1], center: [0, 0], size: [6, 4], follows: 1 },
  task: {
    begin: (physics, noise) => shakeJoints(physics, noise, 0.1, 'uniform'),
    observe: (physics, observation, at) => observeJoints(physics, observation, at, 2),
    measure: ({ data }) => data.qpos[0]!,
    reward: ({ data }, speed) => speed - 1e-4 * sumOfSquares(data.ctrl),
  },
})
