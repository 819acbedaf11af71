import { defineSimulation, distanceOf, sumOfSquares } from './simulation.ts'

const Body = { tip: 10, cylinder: 11, goal: 12 } as const
const JOINTS = 7

/**
 * Pusher-v5 with Gymnasium's model, rewards, ends and observations, and starts of the same distribution: an arm of seven joints pushes a
 * cylinder to a goal.
 *
 * - **Action space**: Box of 7 within ±2: torques at the joints.
 * - **Observation space**: Box of 23: positions and velocities of the seven joints, and the places of the fingertip, the cylinder and the
 *   goal.
 * - **Rewards**: −½ · distance of fingertip and cylinder − distance of cylinder and goal (m) − 0.1 · Σ action².
 * - **Starting state**: The arm in the model's position, with velocities uniform within ±0.005; the cylinder uniform in x [−0.3, 0) and y
 *   [−0.2, 0.2), more than 0.17 m from the goal.
 * - **Episode end**: Never terminated. Truncated after `maxEpisodeSteps` (100) steps.
 */
export const pusher = defineSimulation({
  id: 'Pusher-v5',
  module: import.meta.url,
  maxEpisodeSteps: 100,
  file: 'pusher.xml',
  frameSkip: 5,
  stateWidth: 130,
  observationWidth: 23,
  actions: { width: 7, size: 2 },
  returnThreshold: 0,
  draw: { axes: [0, 1], center: [0.2, -0.2], size: [2, 1.6] },
  task: {
    begin({ data: { qpos, qvel } }, noise) {
      do {
        qpos[JOINTS] = noise.uniform(-0.3, 0)
        qpos[JOINTS + 1] = noise.uniform(-0.2, 0.2)
      } while (Math.hypot(qpos[JOINTS]!, qpos[JOINTS + 1]!) <= 0.17)
      qpos.fill(0, JOINTS + 2)
      for (let i = 0; i < JOINTS; i++) qvel[i] = noise.uniform(-0.005, 0.005)
    },
    observe({ data: { qpos, qvel, xpos } }, observation, at) {
      for (let i = 0; i < JOINTS; i++) {
        observation[at + i] = qpos[i]!
        observation[at + JOINTS + i] = qvel[i]!
      }
      let k = at + 2 * JOINTS
      for (const body of [Body.tip, Body.cylinder, Body.goal]) {
        for (let i = 0; i < 3; i++) observation[k++] = xpos[3 * body + i]!
      }
    },
    reward({ data: { xpos, ctrl } }) {
      const near = 0.5 * distanceOf(xpos, Body.cylinder, Body.tip)
      return -distanceOf(xpos, Body.cylinder, Body.goal) - near - 0.1 * sumOfSquares(ctrl)
    },
  },
})
