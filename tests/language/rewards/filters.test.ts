import { describe, expect, test } from 'vitest'
import { InputError } from '../../../src/base/errors.ts'
import {
  admitGroup,
  checkAnySuccess,
  checkMinReward,
  checkQualityAndDiversity,
  checkReasonableLength,
  checkResponseDiversity,
  checkRewardNonzeroStd,
  FilterCounts,
  type GroupSample,
  makeLengthFilter,
  makeThresholdFilter,
} from '../../../src/language/rewards/filters.ts'
import { startSample } from '../../../src/tables/trajectories/sample.ts'
import * as fc from '../../support/properties.ts'

function groupOf(...rewards: (number | null)[]): GroupSample[] {
  return rewards.map((reward, i) => ({ reward, response: `answer ${i}`, responseLength: 20 }))
}
const kept = { keep: true }
const dropped = (reason: string) => ({ keep: false, reason })

describe('filters', () => {
  test('by deviation drop equal rewards, also those that differ by rounding only', () => {
    expect(checkRewardNonzeroStd(groupOf(0, 1))).toEqual(kept)
    expect(checkRewardNonzeroStd(groupOf(1, 1, 1))).toEqual(dropped('zero_std'))
    expect(checkRewardNonzeroStd(groupOf(0.1 + 0.2, 0.3))).toEqual(dropped('zero_std'))
    expect(checkRewardNonzeroStd(groupOf(1e10, 1e10 + 1))).toEqual(dropped('zero_std'))
    expect(checkRewardNonzeroStd(groupOf(0, 1e-8))).toEqual(kept)
    expect(checkRewardNonzeroStd(groupOf(0, null, 1))).toEqual(kept)
  })

  test('never take an unknown reward for 0', () => {
    expect(checkRewardNonzeroStd(groupOf(1, 1, null))).toEqual(dropped('zero_std'))
    expect(checkRewardNonzeroStd(groupOf(1, null))).toEqual(dropped('unknown_reward'))
    expect(checkMinReward(groupOf(0.6, null, null))).toEqual(kept)
    expect(checkMinReward(groupOf(null))).toEqual(dropped('unknown_reward'))
    expect(checkAnySuccess(groupOf(null, -1))).toEqual(dropped('no_success'))
    expect(checkAnySuccess(groupOf(null))).toEqual(dropped('unknown_reward'))
  })

  test('by reward, success, diversity and length', () => {
    expect(checkMinReward(groupOf(0, 1))).toEqual(kept)
    expect(checkMinReward(groupOf(0, 0.9))).toEqual(dropped('low_reward'))
    expect(checkAnySuccess(groupOf(0, 0.1))).toEqual(kept)
    const same = groupOf(0, 0, 1, 1).map((sample) => ({ ...sample, response: 'same' }))
    expect(checkResponseDiversity(same)).toEqual(dropped('low_diversity'))
    expect(checkResponseDiversity(same, 0.25)).toEqual(kept)
    expect(checkQualityAndDiversity(same)).toEqual(dropped('low_diversity'))
    expect(checkQualityAndDiversity(groupOf(0, 0))).toEqual(dropped('zero_std'))
    expect(checkQualityAndDiversity(groupOf(-1, 0))).toEqual(dropped('no_success'))
    expect(checkQualityAndDiversity(groupOf(0, 1))).toEqual(kept)
    expect(checkReasonableLength(groupOf(0))).toEqual(kept)
    expect(checkReasonableLength(groupOf(0), 21)).toEqual(dropped('too_short'))
    expect(checkReasonableLength(groupOf(0), 1, 19)).toEqual(dropped('too_long'))
    const uneven = groupOf(0, 1).map((sample, i) => ({ ...sample, responseLength: 20 + i }))
    expect(makeLengthFilter(20, 20)(uneven)).toEqual(dropped('too_long'))
    expect(makeLengthFilter(21, 21)(uneven)).toEqual(dropped('too_short'))
    expect(makeLengthFilter(20, 20)(groupOf(0))).toEqual(kept)
    expect(makeThresholdFilter(0.9)(groupOf(0.8))).toEqual(dropped('low_reward'))
    expect(() => makeLengthFilter(3, 2)).toThrow(InputError)
    expect(() => makeThresholdFilter(Number.NaN)).toThrow(InputError)
    expect(() => checkMinReward([])).toThrow(InputError)
    expect(() => checkResponseDiversity([])).toThrow(InputError)
  })

  test('do not run before the reward', () => {
    const early = [{ response: 'x', responseLength: 20 } as unknown as GroupSample]
    for (const filter of [checkRewardNonzeroStd, checkMinReward, checkAnySuccess, checkQualityAndDiversity]) {
      expect(() => filter(early)).toThrow(/filters run after the reward/)
    }
    expect(() => admitGroup(early, [checkReasonableLength], new FilterCounts())).toThrow(InputError)
    expect(() => admitGroup(groupOf(Number.NaN), [], new FilterCounts())).toThrow(InputError)
  })
})

describe('admission', () => {
  test('takes the samples of tables, once they are judged', () => {
    const start = { epoch: 0, promptId: 0, group: 0, example: { prompt: '1+1=' }, tokens: [1] }
    const started = [0, 1].map((member) => startSample({ ...start, member }))
    const filters = [checkQualityAndDiversity, makeLengthFilter(1, 1)]
    expect(() => admitGroup(started, filters, new FilterCounts())).toThrow(/none yet/)
    const judged = started.map((sample, reward) => ({
      ...sample,
      response: String(reward),
      responseLength: 1,
      reward,
      status: 'completed',
    }))
    expect(admitGroup(judged, filters, new FilterCounts())).toEqual(kept)
  })

  test('counts every group once, and drops by the reason of the first filter that drops it', () => {
    const counts = new FilterCounts()
    const filters = [checkRewardNonzeroStd, makeThresholdFilter(0.5), (group: readonly unknown[]) => group.length < 4]
    expect(admitGroup(groupOf(0, 1), filters, counts)).toEqual(kept)
    expect(admitGroup(groupOf(0, 0), filters, counts)).toEqual(dropped('zero_std'))
    expect(admitGroup(groupOf(0, 0.5), filters, counts)).toEqual(dropped('low_reward'))
    expect(admitGroup(groupOf(0, 1, 1, 1), filters, counts)).toEqual(dropped('dropped'))
    expect(counts).toMatchObject({ kept: 1, dropped: 3, reasons: { zero_std: 1, low_reward: 1, dropped: 1 } })
  })

  test('adds up, whatever the groups', () => {
    const reward = fc.option(fc.double({ min: -1, max: 1, noNaN: true }))
    fc.assert(
      fc.property(fc.array(fc.array(reward, { minLength: 1 })), (groups) => {
        const counts = new FilterCounts()
        const decisions = groups.map((group) => admitGroup(groupOf(...group), [checkQualityAndDiversity], counts))
        expect(counts.kept).toBe(decisions.filter(({ keep }) => keep).length)
        expect(counts.kept + counts.dropped).toBe(groups.length)
        expect(Object.values(counts.reasons).reduce((sum, count) => sum + count, 0)).toBe(counts.dropped)
      }),
    )
  })
})
