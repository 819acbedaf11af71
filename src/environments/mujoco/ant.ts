import type { Physics } from './physics.ts'
import { defineSimulation, observeJoints, shakeJoints, sumOfSquares } from './simulation.ts'

const TORSO = 1

function isHealthy({ data: { qpos, qvel } }: Physics): boolean {
  return qpos[2]! >= 0.2 && qpos[2]! <= 1 && Number.isFinite(sumOfSquares(qpos) + sumOfSquares(qvel))
}

const cut = (x: number): number => Math.max(-1, Math.min(1, x))

function contactCost({ data: { cfrc_ext } }: Physics): number {
  let sum = 0
  for (let i = 0; i < cfrc_ext.length; i++) sum += cut(cfrc_ext[i]!) ** 2
  return 5e-4 * sum
}

/**
 * Ant-v5 with Gymnasium's model, rewards, ends and observations, and starts of the same distribution: a body with four legs walks forward.
 *
 * - **Action space**: Box of 8 within ±1: torques at eight joints.
 * - **Observation space**: Box of 105: joint positions except the first two (x and y), all velocities, and the contact forces on each
 *   body, cut to ±1.
 * - **Rewards**: 1 while it is healthy + x velocity (m/s, over the step) − ½ · Σ action² − 0.0005 · Σ of the squared contact forces, cut to
 *   ±1.
 * - **Starting state**: Positions uniform within ±0.1 of the model's; velocities normal with standard deviation 0.1.
 * - **Episode end**: Terminated when it is not healthy: height outside [0.2, 1] m. Truncated after `maxEpisodeSteps` (1000) steps.
 */
export const ant = defineSimulation({
  id: 'Ant-v5',
  module: import.meta.url,
  maxEpisodeSteps: 1000,
  file: 'ant.xml',
  frameSkip: 5,
  stateWidth: 150,
  observationWidth: 105,
  actions: { width: 8, size: 1 },
  returnThreshold: 6000,
  draw: { axes: [0, 2], center: [0, 0.8], size: [5, 2.4], follows: 1 },
  task: {
    begin: (physics, noise) => shakeJoints(physics, noise, 0.1, 'normal'),
    observe(physics, observation, at) {
      let k = observeJoints(physics, observation, at, 2)
      const { cfrc_ext } = physics.data
      for (let i = 6; i < cfrc_ext.length; i++) observation[k++] = cut(cfrc_ext[i]!)
    },
    measure: ({ data }) => data.xpos[3 * TORSO]!,
    reward: (physics, speed) =>
      speed + (isHealthy(physics) ? 1 : 0) - (0.5 * sumOfSquares(physics.data.ctrl) + contactCost(physics)),
    isOver: (physics) => !isHealthy(physics),
  },
})
