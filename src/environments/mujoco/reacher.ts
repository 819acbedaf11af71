import { defineSimulation, distanceOf, sumOfSquares } from './simulation.ts'

const Body = { fingertip: 3, target: 4 } as const

/**
 * Reacher-v5 with Gymnasium's model, rewards, ends and observations, and starts of the same distribution: an arm of two links reaches for a
 * target in a plane.
 *
 * - **Action space**: Box of 2 within ±1: torques at two joints.
 * - **Observation space**: Box of 10: cosines and sines of both angles, the target's x and y, the angles' velocities, and the way from the
 *   target to the fingertip in x and y.
 * - **Rewards**: −distance of the fingertip from the target (m) − Σ action².
 * - **Starting state**: Angles uniform within ±0.1, the target uniform in a disc of 0.2 m, velocities uniform within ±0.005, 0 for the
 *   target.
 * - **Episode end**: Never terminated. Truncated after `maxEpisodeSteps` (50) steps.
 */
export const reacher = defineSimulation({
  id: 'Reacher-v5',
  module: import.meta.url,
  maxEpisodeSteps: 50,
  file: 'reacher.xml',
  frameSkip: 2,
  stateWidth: 49,
  observationWidth: 10,
  actions: { width: 2, size: 1 },
  returnThreshold: -3.75,
  draw: { axes: [0, 1], center: [0, 0], size: [0.6, 0.6] },
  task: {
    begin({ data: { qpos, qvel } }, noise) {
      for (const i of [0, 1]) qpos[i] = qpos[i]! + noise.uniform(-0.1, 0.1)
      do for (const i of [2, 3]) qpos[i] = noise.uniform(-0.2, 0.2)
      while (Math.hypot(qpos[2]!, qpos[3]!) >= 0.2)
      for (const i of [0, 1]) qvel[i] = noise.uniform(-0.005, 0.005)
    },
    observe({ data: { qpos, qvel, xpos } }, observation, at) {
      for (const i of [0, 1]) {
        observation[at + i] = Math.cos(qpos[i]!)
        observation[at + 2 + i] = Math.sin(qpos[i]!)
        observation[at + 4 + i] = qpos[2 + i]!
        observation[at + 6 + i] = qvel[i]!
        observation[at + 8 + i] = xpos[3 * Body.fingertip + i]! - xpos[3 * Body.target + i]!
      }
    },
    reward: ({ data: { xpos, ctrl } }) => -distanceOf(xpos, Body.fingertip, Body.target) - sumOfSquares(ctrl),
  },
})
