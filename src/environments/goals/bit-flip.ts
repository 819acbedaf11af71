import { Stream } from '../../base/random.ts'
import { integer } from '../../base/settings.ts'
import { box, discrete } from '../../base/space.ts'
import { isGoalReached } from '../../kernels/bind.ts'
import { defineEnvironment, withSettings } from '../environment.ts'

/**
 * BitFlip (Andrychowicz et al. 2017, "Hindsight Experience Replay", § 3.1): flip bits one by one until they are those of the goal. With
 * 15 bits an agent that never reached a goal sees one reward in thousands of episodes; it learns from the goals that it did reach (HER).
 *
 * - **Action space**: Discrete(bits): the bit to flip.
 * - **Observation space**: Box of 2 · bits, each 0 or 1: the bits, then the goal.
 * - **Rewards**: −1 for every step, but 0 for the one that reaches the goal. Solved at a mean return of −bits / 2.
 * - **Starting state**: Uniform bits and a uniform goal that differs from them.
 * - **Episode end**: Terminated when the goal is reached. Truncated after `bits` steps.
 */
export const bitFlip = defineEnvironment({
  id: 'BitFlip-v0',
  module: import.meta.url,
  settings: { bits: integer(15, 'number of bits', { min: 1, max: 512 }) },
  presets: [
    {
      run: { numLanes: 16, totalSteps: 150_000 },
      algorithm: withSettings('dqn', {
        numSteps: 16,
        gradientSteps: 64,
        learningStarts: 2000,
        learningRate: 1e-3,
        gamma: 0.98,
        targetRate: 0.05,
        targetInterval: 1,
        explorationFraction: 0.3,
      }),
      policy: withSettings('qNetwork', { hidden: [256] }),
    },
  ],
  state: ({ bits }) => ({ bit: ['u8', bits], goal: ['u8', bits] }),
  make: ({ bits }) => {
    const goal = { achieved: 0, desired: bits, width: bits, tolerance: 0, ends: true }
    return {
      observationSpace: box({ low: 0, high: 1, shape: [2 * bits] }),
      actionSpace: discrete(bits),
      maxEpisodeSteps: bits,
      returnThreshold: -bits / 2,
      goal,
      draw({ bit, goal }, n) {
        const fields = Uint8Array.from(
          { length: 2 * bits },
          (_, i) => 2 + (i < bits ? bit[n * bits + i]! : goal[n * bits + i - bits]!),
        )
        return { rows: 2, columns: bits, fields }
      },
      reset({ state, observation, lane, episode, random }, rows, count) {
        for (let i = 0; i < count; i++) {
          const n = rows[i]!
          for (let k = 0; k < bits; k++) {
            if (k % 2 === 0) random.draw(Stream.reset, lane[n]!, episode[n]!, k / 2)
            state.bit[n * bits + k] = random.uniform(k % 2) < 0.5 ? 0 : 1
            state.goal[n * bits + k] = random.uniform(2 + (k % 2)) < 0.5 ? 0 : 1
          }
          if (isSame(state, n * bits, bits)) state.goal[n * bits] = 1 - state.goal[n * bits]!
          observe(observation, state, n, bits)
        }
      },
      step({ state, observation, reward, terminated, action }, from, to) {
        for (let n = from; n < to; n++) {
          const flipped = n * bits + action[n]!
          state.bit[flipped] = 1 - state.bit[flipped]!
          observe(observation, state, n, bits)
          const isReached = isGoalReached(observation, n * 2 * bits, goal)
          reward[n] = isReached ? 0 : -1
          terminated[n] = isReached ? 1 : 0
        }
      },
    }
  },
})

interface Bits {
  readonly bit: Uint8Array
  readonly goal: Uint8Array
}

function isSame({ bit, goal }: Bits, from: number, bits: number): boolean {
  for (let k = from; k < from + bits; k++) if (bit[k] !== goal[k]) return false
  return true
}

function observe(observation: Float32Array, { bit, goal }: Bits, n: number, bits: number): void {
  for (let k = 0; k < bits; k++) {
    observation[n * 2 * bits + k] = bit[n * bits + k]!
    observation[n * 2 * bits + bits + k] = goal[n * bits + k]!
  }
}
