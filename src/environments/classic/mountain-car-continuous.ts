import { integer, number } from '../../base/settings.ts'
import { box } from '../../base/space.ts'
import { defineEnvironment, STEPS_MAX, withSettings } from '../environment.ts'
import { drawCar, MOUNTAIN_CAR_BOUNDS, resetCars, VELOCITY_MAX } from './mountain-car.ts'

const GRAVITY = 0.0025
// Gymnasium computes in f32 with NumPy, so each result is rounded.
const { fround } = Math
const POWER = fround(0.0015)
const GOAL = fround(0.45)
const [POSITION_LOW, VELOCITY_LOW] = MOUNTAIN_CAR_BOUNDS.low as [number, number]
const [POSITION_HIGH, VELOCITY_HIGH] = MOUNTAIN_CAR_BOUNDS.high as [number, number]

/**
 * MountainCarContinuous-v0 with Gymnasium's dynamics, limits and starting states: a car in a valley must swing to reach the top of the
 * right hill, with a throttled engine.
 *
 * - **Action space**: Box of 1: the force on the car, in [−1, 1]. Larger forces are clipped and cost what the bound costs; in Gymnasium
 *   they cost the unclipped force.
 * - **Observation space**: Box of 2: position (m, within [−1.2, 0.6]), velocity (m per step, within ±0.07). At the left end the car
 *   stops.
 * - **Rewards**: −0.1 · force² for every step, and 100 for the goal. Solved at a mean return of 90.
 * - **Starting state**: Position uniform in [−0.6, −0.4), velocity 0.
 * - **Episode end**: Terminated at position 0.45 or beyond with a velocity of at least `goalVelocity`. Truncated after `maxEpisodeSteps`
 *   (999) steps.
 * - **Arguments**: `goalVelocity` (0 m per step).
 */
export const mountainCarContinuous = defineEnvironment({
  id: 'MountainCarContinuous-v0',
  module: import.meta.url,
  settings: {
    maxEpisodeSteps: integer(999, 'steps after which an episode is truncated', { min: 1, max: STEPS_MAX }),
    goalVelocity: number(0, 'minimum velocity at the goal in m per step', { min: -VELOCITY_MAX, max: VELOCITY_MAX }),
  },
  presets: [
    {
      run: { numLanes: 64, totalSteps: 500_000 },
      algorithm: withSettings('ppo', {
        numSteps: 128,
        numMinibatches: 16,
        updateEpochs: 4,
        learningRate: 2e-3, // With 3e-3 one of three seeds left the goal again.
        gamma: 0.99,
        gaeLambda: 0.9,
        // Few early episodes reach the goal. Normalized advantages of the others would teach the car to stay at rest first.
        normalizeAdvantage: false,
        valueCoef: 0.1,
        maxGradNorm: 5,
      }),
      policy: withSettings('mlp', { activation: 'relu', logStd: 0.7 }),
    },
  ],
  state: () => ({ position: 'f32', velocity: 'f32' }),
  make: ({ maxEpisodeSteps, goalVelocity }) => ({
    observationSpace: box(MOUNTAIN_CAR_BOUNDS),
    actionSpace: box({ low: -1, high: 1, shape: [1] }),
    maxEpisodeSteps,
    returnThreshold: 90,
    draw: ({ position }, n) => drawCar(position[n]!, GOAL),
    reset: resetCars,
    step({ state, observation, reward, terminated, action }, from, to) {
      const { position, velocity } = state
      for (let n = from; n < to; n++) {
        const force = Math.min(Math.max(action[n]!, -1), 1)
        const slope = fround(GRAVITY * Math.cos(fround(3 * position[n]!)))
        const pushed = fround(velocity[n]! + fround(fround(force * POWER) - slope))
        const speed = Math.min(Math.max(pushed, VELOCITY_LOW), VELOCITY_HIGH)
        const place = Math.min(Math.max(fround(position[n]! + speed), POSITION_LOW), POSITION_HIGH)
        position[n] = place
        velocity[n] = speed
        if (place === POSITION_LOW && speed < 0) velocity[n] = 0
        const isThere = place >= GOAL && velocity[n]! >= goalVelocity
        observation[2 * n] = place
        observation[2 * n + 1] = velocity[n]!
        reward[n] = (isThere ? 100 : 0) - 0.1 * force * force
        terminated[n] = isThere ? 1 : 0
      }
    },
  }),
})
