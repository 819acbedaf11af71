import { withSettings } from '../environment.ts'
import type { Physics } from './physics.ts'
import { defineSimulation, observeJoints, shakeJoints } from './simulation.ts'

const isFallen = ({ data: { qpos, qvel } }: Physics): boolean =>
  !(Math.abs(qpos[1]!) <= 0.2 && Number.isFinite(qpos[0]! + qvel[0]! + qvel[1]!))

/**
 * InvertedPendulum-v5 with Gymnasium's model, rewards, ends and observations, and starts of the same distribution: a cart keeps a pole
 * upright.
 *
 * - **Action space**: Box of 1 within ±3: force on the cart.
 * - **Observation space**: Box of 4: position of the cart, angle of the pole, and their velocities.
 * - **Rewards**: 1 for each step that does not end the episode.
 * - **Starting state**: Positions and velocities uniform within ±0.01 of the model's.
 * - **Episode end**: Terminated when |angle| > 0.2 rad. Truncated after `maxEpisodeSteps` (1000) steps.
 */
export const invertedPendulum = defineSimulation({
  id: 'InvertedPendulum-v5',
  module: import.meta.url,
  maxEpisodeSteps: 1000,
  file: 'inverted_pendulum.xml',
  frameSkip: 2,
  stateWidth: 28,
  observationWidth: 4,
  actions: { width: 1, size: 3 },
  presets: [
    {
      run: { numLanes: 16, totalSteps: 150_000 },
      algorithm: withSettings('ppo', { numSteps: 64, learningRate: 1e-3 }),
      policy: withSettings('mlp', {}),
    },
  ],
  returnThreshold: 950,
  draw: { axes: [0, 2], center: [0, 0.3], size: [3, 1.2] },
  task: {
    begin: (physics, noise) => shakeJoints(physics, noise, 0.01, 'uniform'),
    observe: (physics, observation, at) => observeJoints(physics, observation, at, 0),
    reward: (physics) => (isFallen(physics) ? 0 : 1),
    isOver: isFallen,
  },
})
