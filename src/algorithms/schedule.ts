/** Schedules of a number over a training. A schedule depends only on the update's index, so a resumed run continues it. */

/** The course after the warm-up: constant, or a fall to 0 along a line or half a cosine. */
export const schedules = ['constant', 'linear', 'cosine'] as const

export type Schedule = (typeof schedules)[number]

/**
 * The factor for update `update` of `numUpdates`, counted from 0. With p = update / numUpdates and f = `warmupFraction`:
 *
 *     p < f      min(1, (update + 1) / (f numUpdates)), so that no update has a factor of 0
 *     constant   1
 *     linear     1 − q                       q = (p − f) / (1 − f)
 *     cosine     ½ (1 + cos(π q))
 *
 * The warm-up is that of Goyal et al. 2017 (§ 2.2), starting one step above 0; linear decay as in openai/baselines' PPO; half a cosine as
 * in Loshchilov and Hutter 2017 (SGDR, equation 5, without restarts, η_min = 0).
 */
export function scheduleFactor(schedule: Schedule, warmupFraction: number, update: number, numUpdates: number): number {
  const progress = update / numUpdates
  if (progress < warmupFraction) return Math.min(1, (update + 1) / (warmupFraction * numUpdates))
  if (schedule === 'constant') return 1
  const decayed = (progress - warmupFraction) / (1 - warmupFraction)
  return schedule === 'linear' ? 1 - decayed : 0.5 * (1 + Math.cos(Math.PI * decayed))
}
