/** A point that drifts: choices, choices with masks, or numbers within bounds away from 0; rewards differ by row. */
import { choice } from '../../src/entries/settings.ts'
import { box, defineEnvironment, discrete, Stream } from '../../src/index.ts'

/** Whether a choice is legal, with masks. */
export const isLegal = (seen: ArrayLike<number>, choice: number) => choice !== 2 || seen[1]! <= 0.2

export const BOUNDS = { low: [-1, -3], high: [2, 0.5] }

export const drift = defineEnvironment({
  id: 'Drift-v0',
  settings: { kind: choice('choices', ['choices', 'masks', 'numbers'], 'actions') },
  state: () => ({ at: ['f32', 2] }),
  make: ({ kind }) => {
    const mask = (observation: Float32Array, actionMask: Uint8Array, n: number) => {
      if (kind !== 'masks') return
      for (let a = 0; a < 3; a++) actionMask[3 * n + a] = isLegal(observation.subarray(3 * n), a) ? 1 : 0
    }
    return {
      observationSpace: box({ low: -4, high: 4, shape: [3] }),
      actionSpace: kind === 'numbers' ? box(BOUNDS) : discrete(3),
      actionMask: kind === 'masks',
      maxEpisodeSteps: 7,
      returnThreshold: null,
      reset({ state, observation, actionMask, lane, episode, random }, rows, count) {
        for (const n of rows.subarray(0, count)) {
          random.draw(Stream.reset, lane[n]!, episode[n]!, 0)
          for (let k = 0; k < 3; k++) observation[3 * n + k] = random.uniform(k, -0.8, 0.8)
          state.at.set(observation.subarray(3 * n, 3 * n + 2), 2 * n)
          mask(observation, actionMask, n)
        }
      },
      step({ state, observation, actionMask, action, reward, terminated, lane, episode, step, random }, from, to) {
        for (let n = from; n < to; n++) {
          random.draw(Stream.step, lane[n]!, episode[n]!, step[n]!)
          const [x, y] = kind === 'numbers' ? [action[2 * n]!, action[2 * n + 1]!] : [action[n]! - 1, 0.5 * action[n]!]
          const seen = observation.subarray(3 * n, 3 * n + 3)
          seen[0] = state.at[2 * n]! + 0.4 * x + random.uniform(0, -0.3, 0.3)
          seen[1] = 0.7 * state.at[2 * n + 1]! + 0.2 * y + random.uniform(1, -0.3, 0.3)
          seen[2] = random.uniform(2, -0.6, 1)
          state.at.set(seen.subarray(0, 2), 2 * n)
          reward[n] = Math.sin(3 * seen[0]!) + 0.5 * seen[1]! - 0.3 * x
          terminated[n] = Math.abs(seen[0]!) > 1.3 ? 1 : 0
          mask(observation, actionMask, n)
        }
      },
    }
  },
})
