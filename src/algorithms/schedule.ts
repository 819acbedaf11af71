/**
 * Schedules: how a number changes over a training. A schedule is a factor of an update's number alone, so a resumed run
 * finds it again.
 */

/** What a number does after its warm-up: stays, or falls to 0 in a straight line or along half a cosine. */
export const schedules = ['constant', 'linear', 'cosine'] as const

/** One of `schedules`. */
export type Schedule = (typeof schedules)[number]

/**
 * The factor of update `update` of `numUpdates`, counted from 0. With p = update / numUpdates and f = `warmupFraction`:
 *
 *     p < f      min(1, (update + 1) / (f numUpdates)), so that no update is wasted on a factor of 0
 *     constant   1
 *     linear     1 − q                       q = (p − f) / (1 − f)
 *     cosine     ½ (1 + cos(π q))
 *
 * The warm-up is that of Goyal et al. 2017 (§ 2.2) beginning at one step of its rise; linear decay as in openai/baselines'
 * PPO; half a cosine as in Loshchilov and Hutter 2017 (SGDR, equation 5, without restarts, η_min = 0).
 */
export function scheduleFactor(schedule: Schedule, warmupFraction: number, update: number, numUpdates: number): number {
  const progress = update / numUpdates
  if (progress < warmupFraction) return Math.min(1, (update + 1) / (warmupFraction * numUpdates))
  if (schedule === 'constant') return 1
  const decayed = (progress - warmupFraction) / (1 - warmupFraction)
  return schedule === 'linear' ? 1 - decayed : 0.5 * (1 + Math.cos(Math.PI * decayed))
}
