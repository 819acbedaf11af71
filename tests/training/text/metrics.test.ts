import { describe, expect, test } from 'vitest'
import { allRows, Trajectories } from '../../../src/tables/trajectories.ts'
import type { Trajectory } from '../../../src/tables/trajectory.ts'
import { rewardMetrics } from '../../../src/training/text/metrics.ts'
import { trajectory } from '../../support/trajectories.ts'

function metricsOf(...rows: Partial<Trajectory>[]) {
  const data = new Trajectories()
  for (const row of rows) data.append(trajectory(row))
  return rewardMetrics(allRows(data.columns()), { numUnknown: 7 } as never)
}

describe('what the rewards of an update come to', () => {
  test('is by conversation, and not by row; unknown ones are left out', () => {
    const metrics = metricsOf(
      { member: 0, reward: 1, components: { right: 1, short: 0.5 } },
      { member: 1, reward: 4, stopReason: 'length', components: { right: 0, short: null }, cutTurns: 2 },
      { member: 1, reward: 4, segment: 1, stopReason: 'stop', components: { right: 0, short: null } },
      { group: 1, member: 0, reward: null, error: 'no judge', stopReason: 'context', unheard: 1 },
      { group: 1, member: 1, reward: 3 },
      { group: 2, member: 0, reward: 2 },
      { group: 2, member: 1, reward: 2 },
    )
    expect(metrics).toEqual({
      reward: 12 / 5,
      rewardStd: Math.sqrt([1, 4, 3, 2, 2].reduce((sum, value) => sum + (value - 2.4) ** 2, 0) / 5),
      components: { right: 0.5, short: 0.5 },
      numUnknown: 7,
      firstError: 'no judge',
      groupRewards: [2.5, 3, 2],
      fracRewardZeroStd: 2 / 3,
      clippedRatio: 1 / 6,
      cutTurns: 2,
      unheard: 1,
      rewrites: 1,
    })
  })

  test('is null where none is known', () => {
    const none = {
      reward: null,
      rewardStd: null,
      groupRewards: [],
      fracRewardZeroStd: 0,
      components: {},
      firstError: null,
    }
    expect(metricsOf({ reward: null })).toMatchObject(none)
  })
})
