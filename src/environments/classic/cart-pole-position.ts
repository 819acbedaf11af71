import { integer } from '../../base/settings.ts'
import { box, discrete } from '../../base/space.ts'
import { defineEnvironment, STEPS_MAX, withSettings } from '../environment.ts'
import { ANGLE_BOUND, CART_POLE_STATE, drawPole, POSITION_BOUND, startCartPoles } from './cart-pole.ts'

/**
 * CartPole-v1 with hidden velocities: the same dynamics, starts and ends, bit for bit, but only positions are observed. Two observations
 * determine the state, so a policy needs memory. The name is from Han, Doya, Tani, "Variational Recurrent Models for Solving Partially
 * Observable Control Tasks" (2020), P for position. POPGym's PositionOnlyCartPole hides the same and differs in reward and length.
 *
 * - **Action space**: Discrete(2): 0 pushes the cart to the left, 1 to the right, with 10 N.
 * - **Observation space**: Box of 2: cart position (m, ends at ±2.4), pole angle (rad, ends at ±12°).
 * - **Rewards**: 1 for every step, the last one included. Solved at a mean return of 475, like CartPole-v1.
 * - **Starting state**: Position, angle and both velocities uniform in [−0.05, 0.05).
 * - **Episode end**: Terminated when the cart is beyond ±2.4 m or the pole beyond ±12°. Truncated after `maxEpisodeSteps` (500) steps.
 */
export const cartPolePosition = defineEnvironment({
  id: 'CartPole-P-v1',
  module: import.meta.url,
  settings: { maxEpisodeSteps: integer(500, 'steps after which an episode is truncated', { min: 1, max: STEPS_MAX }) },
  presets: [
    {
      run: { numLanes: 32, totalSteps: 300_000 },
      algorithm: withSettings('ppo', {
        numSteps: 128,
        numMinibatches: 16,
        updateEpochs: 3,
        learningRate: 4e-3,
        gamma: 0.98,
        gaeLambda: 0.95,
      }),
      policy: {
        id: 'recurrent',
        // With a shared trunk, 300,000 steps reach 25 to 126.
        parameters: { units: 32, hidden: [32, 32], activation: 'relu', sequenceLength: 32 },
      },
      // One of six ends with a drifting cart; which seed it is depends on the kernels' last bits.
      reached: { episodeReturn: 475, reached: 5, seeds: 6 },
    },
  ],
  state: () => ({
    ...CART_POLE_STATE,
    /** CartPole-v1's full observation. */
    full: ['f32', 4],
  }),
  make: ({ maxEpisodeSteps }) => ({
    observationSpace: box({ low: [-POSITION_BOUND, -ANGLE_BOUND], high: [POSITION_BOUND, ANGLE_BOUND] }),
    actionSpace: discrete(2),
    maxEpisodeSteps,
    draw: drawPole,
    returnThreshold: 475,
    reset(lanes, rows, count) {
      const { state, observation } = lanes
      startCartPoles(lanes, state.full, rows, count)
      for (let i = 0; i < count; i++) {
        const n = rows[i]!
        observation[2 * n] = state.position[n]!
        observation[2 * n + 1] = state.angle[n]!
      }
    },
    step({ state, observation, reward, terminated, action, kernels }, from, to) {
      const { position, velocity, angle, angularVelocity, full } = state
      const pushes = action as Int32Array
      kernels.cartPoleStep(position, velocity, angle, angularVelocity, full, reward, terminated, pushes, from, to)
      for (let n = from; n < to; n++) {
        observation[2 * n] = position[n]!
        observation[2 * n + 1] = angle[n]!
      }
    },
  }),
})
