import { Stream } from '../../base/random.ts'
import { integer, number } from '../../base/settings.ts'
import { box } from '../../base/space.ts'
import { Canvas } from '../canvas.ts'
import { defineEnvironment, STEPS_MAX, withSettings } from '../environment.ts'

/**
 * Pendulum-v1 with Gymnasium's dynamics, limits and starting states: swing a pendulum up and hold it there, with a torque at its joint
 * that is too weak to lift it directly.
 *
 * - **Action space**: Box of 1: torque in [−2, 2] N·m.
 * - **Observation space**: Box of 3: cos angle, sin angle (0 rad is upright), angular velocity (rad/s, within ±8).
 * - **Rewards**: −(angle² + 0.1 · angular velocity² + 0.001 · torque²), the angle in [−π, π): between −16.3 and 0 per step.
 * - **Starting state**: Angle uniform in [−π, π), angular velocity in [−1, 1).
 * - **Episode end**: Never terminated. Truncated after `maxEpisodeSteps` (200) steps.
 */
export const pendulum = defineEnvironment({
  id: 'Pendulum-v1',
  module: import.meta.url,
  settings: {
    maxEpisodeSteps: integer(200, 'steps after which an episode is truncated', { min: 1, max: STEPS_MAX }),
    gravity: number(10, "acceleration of free fall in m/s², Gymnasium's g"),
  },
  presets: [
    {
      run: { numLanes: 64, totalSteps: 204_800 },
      algorithm: withSettings('ppo', {
        numSteps: 128,
        numMinibatches: 64,
        updateEpochs: 2,
        learningRate: 1.5e-3, // With 3e-3 one of twelve seeds never swings it up.
        gamma: 0.95,
        gaeLambda: 0.95,
        valueCoef: 0.05, // Returns are in the hundreds: with more, the critic's gradient dominates the clipping.
      }),
      policy: withSettings('mlp', { activation: 'relu' }),
    },
    {
      run: { numLanes: 32, totalSteps: 3_000_000 },
      algorithm: withSettings('a2c', {
        numSteps: 32,
        learningRate: 1.5e-3, // With 2e-3, or half the lanes, some seeds stay below -200.
        learningRateSchedule: 'linear',
        gamma: 0.95,
        gaeLambda: 0.95,
        normalizeAdvantage: true,
        valueCoef: 0.05,
        epsilon: 1e-3,
      }),
      policy: withSettings('mlp', { activation: 'relu' }),
    },
    {
      run: { numLanes: 4, totalSteps: 30_000 },
      algorithm: withSettings('sac', { numSteps: 2, gradientSteps: 8, batchSize: 128, gamma: 0.98 }),
      policy: withSettings('sacNetwork', { hidden: [64, 64] }),
    },
    {
      run: { numLanes: 4, totalSteps: 30_000 },
      algorithm: withSettings('td3', { numSteps: 2, gradientSteps: 8, batchSize: 128, gamma: 0.98 }),
      policy: withSettings('td3Network', { hidden: [64, 64] }),
    },
  ],
  state: () => ({ angle: 'f32', angularVelocity: 'f32' }),
  make: ({ maxEpisodeSteps, gravity }) => ({
    observationSpace: box({ low: [-1, -1, -8], high: [1, 1, 8] }),
    actionSpace: box({ low: -2, high: 2, shape: [1] }),
    maxEpisodeSteps,
    returnThreshold: null,
    draw({ angle }, n) {
      const [x, y] = [Math.sin(angle[n]!), Math.cos(angle[n]!)]
      return new Canvas({ low: [-1.3, -1.3], high: [1.3, 1.3], columns: 80 })
        .line(0, 0, x, y, 0.2, 2)
        .disc(0, 0, 0.06, 9)
    },
    reset({ state, observation, lane, episode, random }, rows, count) {
      for (let i = 0; i < count; i++) {
        const n = rows[i]!
        random.draw(Stream.reset, lane[n]!, episode[n]!, 0)
        state.angle[n] = random.uniform(0, -Math.PI, Math.PI)
        state.angularVelocity[n] = random.uniform(1, -1, 1)
        observation[3 * n] = Math.cos(state.angle[n]!)
        observation[3 * n + 1] = Math.sin(state.angle[n]!)
        observation[3 * n + 2] = state.angularVelocity[n]!
      }
    },
    step({ state, observation, reward, action, kernels }, from, to) {
      const torque = action as Float32Array
      kernels.pendulumStep(state.angle, state.angularVelocity, observation, reward, torque, gravity, from, to)
    },
  }),
})
