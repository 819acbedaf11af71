import { defineSimulation, observeJoints, shakeJoints, sumOfSquares } from './simulation.ts'

/**
 * HalfCheetah-v5 with Gymnasium's model, rewards, ends and observations, and starts of the same distribution: a planar animal with two legs
 * runs forward.
 *
 * - **Action space**: Box of 6 within ±1: torques at six joints.
 * - **Observation space**: Box of 17: joint positions except the first (x), and velocities of all nine.
 * - **Rewards**: x velocity (m/s, over the step) − 0.1 · Σ action².
 * - **Starting state**: Positions uniform within ±0.1 of the model's; velocities normal with standard deviation 0.1.
 * - **Episode end**: Never terminated. Truncated after `maxEpisodeSteps` (1000) steps.
 */
export const halfCheetah = defineSimulation({
  id: 'HalfCheetah-v5',
  module: import.meta.url,
  maxEpisodeSteps: 1000,
  file: 'half_cheetah.xml',
  frameSkip: 5,
  stateWidth: 91,
  observationWidth: 17,
  actions: { width: 6, size: 1 },
  returnThreshold: 4800,
  draw: { axes: [0, 2], center: [0, 0.7], size: [5, 2], follows: 1 },
  task: {
    begin: (physics, noise) => shakeJoints(physics, noise, 0.1, 'normal'),
    observe: (physics, observation, at) => observeJoints(physics, observation, at, 1),
    measure: ({ data }) => data.qpos[0]!,
    reward: ({ data }, speed) => speed - 0.1 * sumOfSquares(data.ctrl),
  },
})
