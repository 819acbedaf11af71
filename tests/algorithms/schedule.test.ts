import { describe, expect, test } from 'vitest'
import { type Schedule, scheduleFactor, schedules } from '../../src/algorithms/schedule.ts'
import * as fc from '../support/properties.ts'

function factors(schedule: Schedule, warmupFraction: number, numUpdates: number): number[] {
  return Array.from({ length: numUpdates }, (_, update) => scheduleFactor(schedule, warmupFraction, update, numUpdates))
}

describe('scheduleFactor', () => {
  // torch 2.15, L = torch.optim.lr_scheduler, lr = 1, the rate before each of the steps:
  test.each<[string, Schedule, number, number[]]>([
    ['LinearLR(o, 1, 0, 8)', 'linear', 0, [1, 0.875, 0.75, 0.625, 0.5, 0.375, 0.25, 0.125]],
    [
      'CosineAnnealingLR(o, 8)',
      'cosine',
      0,
      [1, 0.961939766256, 0.853553390593, 0.691341716183, 0.5, 0.308658283817, 0.146446609407, 0.0380602337444],
    ],
    [
      'SequentialLR(o, [LinearLR(o, 0.25, 1, 3), LinearLR(o, 1, 0, 6)], [4])', // The second of them begins at step 4.
      'linear',
      0.4,
      [0.25, 0.5, 0.75, 1, 1, 0.833333333333, 0.666666666667, 0.5, 0.333333333333, 0.166666666667],
    ],
    [
      'SequentialLR(o, [LinearLR(o, 0.25, 1, 3), CosineAnnealingLR(o, 12)], [4])',
      'cosine',
      0.25,
      [
        ...[0.25, 0.5, 0.75, 1, 1, 0.982962913145, 0.933012701892, 0.853553390593, 0.75, 0.629409522551, 0.5],
        ...[0.370590477449, 0.25, 0.146446609407, 0.0669872981078, 0.0170370868555],
      ],
    ],
  ])('is that of torch: %s', (_, schedule, warmupFraction, wanted) => {
    const got = factors(schedule, warmupFraction, wanted.length)
    got.forEach((factor, update) => void expect(factor).toBeCloseTo(wanted[update]!, 11))
  })

  test('is 1 for ever where it is constant and does not warm up', () => {
    expect(factors('constant', 0, 9)).toEqual(new Array(9).fill(1))
  })

  test('of a linear schedule without warm-up is 1 − update / numUpdates to the bit', () => {
    for (const numUpdates of [1, 3, 7, 98, 1000]) {
      expect(factors('linear', 0, numUpdates)).toEqual(
        Array.from({ length: numUpdates }, (_, update) => 1 - update / numUpdates),
      )
    }
  })

  test('is above 0 and at most 1, rises through the warm-up, and never after it', () => {
    const fraction = fc.double({ min: 0, max: 1, noNaN: true })
    fc.assert(
      fc.property(fc.constantFrom(...schedules), fraction, fc.integer({ min: 1, max: 300 }), (schedule, part, n) => {
        const all = factors(schedule, part, n)
        for (const [update, factor] of all.entries()) {
          expect(factor).toBeGreaterThan(0)
          expect(factor).toBeLessThanOrEqual(1)
          if (update === 0) continue
          if (update / n < part) expect(factor).toBeGreaterThanOrEqual(all[update - 1]!)
          else if ((update - 1) / n >= part) expect(factor).toBeLessThanOrEqual(all[update - 1]!)
        }
      }),
    )
  })
})
