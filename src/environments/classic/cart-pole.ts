import { integer } from '../../base/settings.ts'
import { box, discrete } from '../../base/space.ts'
import { Canvas } from '../canvas.ts'
import { defineEnvironment, type Lanes, STEPS_MAX, type State, withSettings } from '../environment.ts'
import type { Picture } from '../picture.ts'

/** The state of a cart and pole: m, m/s, rad, rad/s. */
export const CART_POLE_STATE = { position: 'f32', velocity: 'f32', angle: 'f32', angularVelocity: 'f32' } as const
/** Bounds of the observed position (m) and angle (rad): twice the limits of an episode. */
export const POSITION_BOUND = 4.8
export const ANGLE_BOUND = (24 * 2 * Math.PI) / 360

/**
 * CartPole-v1 with Gymnasium's dynamics, limits and starting states. A pole stands on a cart that moves along a track; the task is to
 * keep it upright by pushing the cart (Barto, Sutton, Anderson 1983).
 *
 * - **Action space**: Discrete(2): 0 pushes the cart to the left, 1 to the right, with 10 N.
 * - **Observation space**: Box of 4: cart position (m, ends at ±2.4), cart velocity (m/s), pole angle (rad, ends at ±12°), angular
 *   velocity (rad/s).
 * - **Rewards**: 1 for every step, the last one included. Solved at a mean return of 475.
 * - **Starting state**: All four uniform in [−0.05, 0.05).
 * - **Episode end**: Terminated when the cart is beyond ±2.4 m or the pole beyond ±12°. Truncated after `maxEpisodeSteps` (500) steps.
 */
export const cartPole = defineEnvironment({
  id: 'CartPole-v1',
  module: import.meta.url,
  settings: { maxEpisodeSteps: integer(500, 'steps after which an episode is truncated', { min: 1, max: STEPS_MAX }) },
  presets: [
    {
      run: { numLanes: 16, totalSteps: 100_000 },
      algorithm: withSettings('ppo', {
        numSteps: 64,
        numMinibatches: 16,
        updateEpochs: 3,
        learningRate: 2e-3,
        gamma: 0.98,
        gaeLambda: 0.95,
      }),
      policy: withSettings('mlp', {}),
    },
    {
      run: { numLanes: 16, totalSteps: 200_000 },
      algorithm: withSettings('a2c', { learningRate: 2e-3, learningRateSchedule: 'linear', gamma: 0.98 }),
      policy: withSettings('mlp', {}),
    },
    {
      run: { numLanes: 8, totalSteps: 49_920 },
      algorithm: withSettings('dqn', {
        numSteps: 16,
        gradientSteps: 64,
        batchSize: 64,
        nStep: 4,
        priorityExponent: 0.6,
        targetInterval: 128,
        learningRate: 2.3e-3,
        learningRateSchedule: 'linear',
        explorationFraction: 0.16,
        explorationFinal: 0.04,
      }),
      policy: withSettings('qNetwork', { hidden: [64, 64], activation: 'tanh' }),
    },
  ],
  state: () => CART_POLE_STATE,
  make: ({ maxEpisodeSteps }) => {
    const infinity = Number.POSITIVE_INFINITY
    const high = [POSITION_BOUND, infinity, ANGLE_BOUND, infinity]
    return {
      observationSpace: box({ low: high.map((bound) => -bound), high }),
      actionSpace: discrete(2),
      maxEpisodeSteps,
      returnThreshold: 475,
      draw: drawPole,
      reset: (lanes, rows, count) => startCartPoles(lanes, lanes.observation, rows, count),
      step({ state, observation, reward, terminated, action, kernels }, from, to) {
        const { position, velocity, angle, angularVelocity } = state
        const pushes = action as Int32Array
        kernels.cartPoleStep(
          position,
          velocity,
          angle,
          angularVelocity,
          observation,
          reward,
          terminated,
          pushes,
          from,
          to,
        )
      },
    }
  },
})

/** Puts the lanes rows[0 … count) into a starting state, and writes its four numbers per lane to `seen`. */
export function startCartPoles(
  { state, lane, episode, random, kernels }: Lanes<State<typeof CART_POLE_STATE>>,
  seen: Float32Array,
  rows: Uint32Array,
  count: number,
): void {
  const { position, velocity, angle, angularVelocity } = state
  const { words, key0, key1 } = random
  kernels.cartPoleReset(position, velocity, angle, angularVelocity, seen, words, lane, episode, rows, key0, key1, count)
}

export function drawPole({ position, angle }: State<typeof CART_POLE_STATE>, n: number): Picture {
  const [x, sway] = [position[n]!, angle[n]!]
  return new Canvas({ low: [-2.6, -0.4], high: [2.6, 1.5] })
    .line(-2.4, -0.15, 2.4, -0.15, 0.06, 3)
    .rectangle(x - 0.3, -0.15, x + 0.3, 0.12, 1)
    .line(x, 0.05, x + Math.sin(sway), 0.05 + Math.cos(sway), 0.1, 2)
}
