/** Systems that change the rewards for the learner. Episode returns are computed before them from the environment's rewards. */
import { InputError } from '../base/errors.ts'
import { fraction, number } from '../base/settings.ts'
import { defineSystem, type SystemRollout } from '../world/system.ts'

/**
 * Divides rewards by the running deviation of the discounted return, so that returns have a size of about 1 (as in Stable-Baselines3's
 * VecNormalize). A lane's return is R ← γ R + reward and starts at 0 in each episode. The deviation covers all rows so far, the current
 * rollout included, and is saved in checkpoints. Rewards are not centered, so their sign stays, and they are clipped to ±clip.
 *
 * Recorded: `discounted`, the lane's R after the row.
 * @example await createWorld({ environment: pendulum(), policy: mlp(), numLanes: 16, systems: [normalizeRewards({ gamma: 0.9 })] })
 */
export const normalizeRewards = defineSystem({
  id: 'normalizeRewards',
  module: import.meta.url,
  settings: {
    gamma: fraction(0.99, "discount factor of the return, usually the algorithm's"),
    clip: number(10, 'bound of the absolute reward that the learner sees', { above: 0 }),
    epsilon: number(1e-8, 'added to the variance', { above: 0 }),
  },
  state: () => ({ discounted: 'f32' }),
  shared: () => ({ mean: 'f64', squares: 'f64', count: 'f64', center: 'f32', deviation: 'f32' }),
  recorded: () => ({ discounted: 'f32' }),
  make: ({ gamma, clip, epsilon }) => ({
    after: 'step',
    run({ own, recorded, reward, step, valid }, from, to) {
      for (let n = from; n < to; n++) {
        if (valid[n] === 0) continue
        // Step 0 follows every kind of episode end, including a restart.
        own.discounted[n] = (step[n] === 0 ? 0 : gamma * own.discounted[n]!) + reward[n]!
        recorded.discounted[n] = own.discounted[n]!
      }
    },
    afterRollout({ rollout: { reward, valid }, shared, recorded, kernels }) {
      const { mean, squares, count, center, deviation } = shared
      kernels.updateRunning(mean, squares, count, recorded.discounted, valid, valid.length, 1)
      kernels.readRunning(center, deviation, mean, squares, count, epsilon, 1)
      for (let row = 0; row < reward.length; row++) {
        reward[row] = within(reward[row]! / deviation[0]!, -clip, clip)
      }
    },
  }),
})

/**
 * Clips the rewards for the learner to `low` and `high`.
 * @throws InputError if low is not below high.
 * @example clipRewards({ low: -1, high: 1 })
 */
export const clipRewards = defineSystem({
  id: 'clipRewards',
  module: import.meta.url,
  settings: {
    low: number(-1, 'minimum reward that the learner sees'),
    high: number(1, 'greatest'),
  },
  make({ low, high }) {
    if (low >= high) throw new InputError('clipRewards', `low ${low} and high ${high}`, 'low below high')
    return {
      afterRollout({ rollout: { reward } }: SystemRollout) {
        for (let row = 0; row < reward.length; row++) reward[row] = within(reward[row]!, low, high)
      },
    }
  },
})

function within(value: number, low: number, high: number): number {
  return Math.min(Math.max(value, low), high)
}
