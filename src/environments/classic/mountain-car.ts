import { Stream } from '../../base/random.ts'
import { integer, number } from '../../base/settings.ts'
import { box, discrete } from '../../base/space.ts'
import { Canvas } from '../canvas.ts'
import { defineEnvironment, type Lanes, STEPS_MAX, withSettings } from '../environment.ts'
import type { Picture } from '../picture.ts'

// Positions in m, velocities in m per step.
const POSITION_MIN = -1.2
const POSITION_MAX = 0.6
export const VELOCITY_MAX = 0.07
/** Observation bounds of both mountain cars, in f32: position, velocity. */
export const MOUNTAIN_CAR_BOUNDS = {
  low: [Math.fround(POSITION_MIN), Math.fround(-VELOCITY_MAX)],
  high: [Math.fround(POSITION_MAX), Math.fround(VELOCITY_MAX)],
}
const START_MIN = -0.6
const START_MAX = -0.4
const GOAL = 0.5
const FORCE = 0.001
const GRAVITY = 0.0025

/** Puts cars of either kind at the bottom of the valley, at rest. */
export function resetCars(
  {
    state,
    observation,
    lane,
    episode,
    random,
  }: Lanes<{ position: Float32Array | Float64Array; velocity: Float32Array | Float64Array }>,
  rows: Uint32Array,
  count: number,
): void {
  for (let i = 0; i < count; i++) {
    const n = rows[i]!
    random.draw(Stream.reset, lane[n]!, episode[n]!, 0)
    state.position[n] = random.uniform(0, START_MIN, START_MAX)
    state.velocity[n] = 0
    observation[2 * n] = state.position[n]!
    observation[2 * n + 1] = 0
  }
}

/**
 * MountainCar-v0 with Gymnasium's dynamics, limits and starting states, in f64 as in Gymnasium. A car in a valley must reach the top of the
 * right hill; its engine is too weak to climb it directly, so the car must swing (Moore, "Efficient Memory-Based Learning for Robot
 * Control", 1990).
 *
 * - **Action space**: Discrete(3): 0 accelerates to the left, 1 not at all, 2 to the right.
 * - **Observation space**: Box of 2: position (m, within [−1.2, 0.6]), velocity (m per step, within ±0.07). At the left end the car
 *   stops.
 * - **Rewards**: −1 for every step. Solved at a mean return of −110.
 * - **Starting state**: Position uniform in [−0.6, −0.4), velocity 0.
 * - **Episode end**: Terminated at position 0.5 or beyond with a velocity of at least `goalVelocity`. Truncated after `maxEpisodeSteps`
 *   (200) steps.
 * - **Arguments**: `goalVelocity` (0 m per step).
 */
export const mountainCar = defineEnvironment({
  id: 'MountainCar-v0',
  module: import.meta.url,
  settings: {
    maxEpisodeSteps: integer(200, 'steps after which an episode is truncated', { min: 1, max: STEPS_MAX }),
    goalVelocity: number(0, 'minimum velocity at the goal in m per step', { min: -VELOCITY_MAX, max: VELOCITY_MAX }),
  },
  presets: [
    {
      run: { numLanes: 8, totalSteps: 149_760 },
      // Values start at 0, above all possible ones, so untried actions are tried. Returns of four steps spread the goal's reward, and
      // prioritized replay favors rows with large errors, like the few at the goal.
      algorithm: withSettings('dqn', {
        numSteps: 16,
        gradientSteps: 64,
        batchSize: 64,
        nStep: 4,
        priorityExponent: 0.6,
        targetInterval: 128,
        learningRate: 4e-3,
        learningRateSchedule: 'linear',
        gamma: 0.98,
        explorationFraction: 0.2,
        explorationFinal: 0.07,
      }),
      policy: withSettings('qNetwork', { hidden: [64, 64], activation: 'tanh' }),
    },
  ],
  state: () => ({ position: 'f64', velocity: 'f64' }),
  make: ({ maxEpisodeSteps, goalVelocity }) => ({
    observationSpace: box(MOUNTAIN_CAR_BOUNDS),
    actionSpace: discrete(3),
    maxEpisodeSteps,
    returnThreshold: -110,
    draw: ({ position }, n) => drawCar(position[n]!, 0.5),
    reset: resetCars,
    step({ state, observation, reward, terminated, action }, from, to) {
      const { position, velocity } = state
      for (let n = from; n < to; n++) {
        const pushed = velocity[n]! + ((action[n]! - 1) * FORCE + Math.cos(3 * position[n]!) * -GRAVITY)
        const speed = Math.min(Math.max(pushed, -VELOCITY_MAX), VELOCITY_MAX)
        const place = Math.min(Math.max(position[n]! + speed, POSITION_MIN), POSITION_MAX)
        position[n] = place
        velocity[n] = speed
        if (place === POSITION_MIN && speed < 0) velocity[n] = 0
        observation[2 * n] = place
        observation[2 * n + 1] = velocity[n]!
        reward[n] = -1
        terminated[n] = place >= GOAL && velocity[n]! >= goalVelocity ? 1 : 0
      }
    },
  }),
})

/** Draws a car in the valley, with the height of Gymnasium's picture, and the flag at the goal. */
export function drawCar(position: number, goal: number): Picture {
  const height = (x: number) => 0.45 * Math.sin(3 * x) + 0.55
  const flag = height(goal)
  return new Canvas({ low: [-1.2, -0.05], high: [0.65, 1.25] })
    .below(height, 3)
    .line(goal, flag, goal, flag + 0.16, 0.02, 9)
    .rectangle(goal, flag + 0.1, goal + 0.08, flag + 0.17, 6)
    .disc(position, height(position) + 0.05, 0.05, 2)
}
