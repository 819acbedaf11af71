import type { Physics } from './physics.ts'
import { defineSimulation, shakeJoints } from './simulation.ts'

const isFallen = ({ data: { site_xpos } }: Physics): boolean => site_xpos[2]! <= 1

const cut = (x: number): number => Math.max(-10, Math.min(10, x))

/**
 * InvertedDoublePendulum-v5 with Gymnasium's model, rewards, ends and observations, and starts of the same distribution: a cart keeps two
 * poles upright, one on the other.
 *
 * - **Action space**: Box of 1 within ±1: force on the cart.
 * - **Observation space**: Box of 9: position of the cart, sines and cosines of both angles, velocities clipped to ±10, and the force of
 *   the constraint on the cart, clipped to ±10.
 * - **Rewards**: 10 for each step that does not end the episode − 0.01 · x² − (y − 2)² of the tip (m) − 0.001 · v₁² − 0.005 · v₂² of the
 *   poles (rad/s).
 * - **Starting state**: Positions uniform within ±0.1 of the model's; velocities normal with standard deviation 0.1.
 * - **Episode end**: Terminated when the tip is at most 1 m high. Truncated after `maxEpisodeSteps` (1000) steps.
 */
export const invertedDoublePendulum = defineSimulation({
  id: 'InvertedDoublePendulum-v5',
  module: import.meta.url,
  maxEpisodeSteps: 1000,
  file: 'inverted_double_pendulum.xml',
  frameSkip: 5,
  stateWidth: 38,
  observationWidth: 9,
  actions: { width: 1, size: 1 },
  returnThreshold: 9100,
  draw: { axes: [0, 2], center: [0, 0.6], size: [4, 1.8] },
  task: {
    begin: (physics, noise) => shakeJoints(physics, noise, 0.1, 'normal'),
    observe({ data: { qpos, qvel, qfrc_constraint } }, observation, at) {
      observation[at] = qpos[0]!
      for (const i of [1, 2]) {
        observation[at + i] = Math.sin(qpos[i]!)
        observation[at + 2 + i] = Math.cos(qpos[i]!)
      }
      for (let i = 0; i < 3; i++) observation[at + 5 + i] = cut(qvel[i]!)
      observation[at + 8] = cut(qfrc_constraint[0]!)
    },
    reward(physics) {
      const { site_xpos, qvel } = physics.data
      const [x, y, v1, v2] = [site_xpos[0]!, site_xpos[2]!, qvel[1]!, qvel[2]!]
      const bonus = isFallen(physics) ? 0 : 10
      return bonus - (0.01 * x ** 2 + (y - 2) ** 2) - (1e-3 * v1 ** 2 + 5e-3 * v2 ** 2)
    },
    isOver: isFallen,
  },
})
