import { readFileSync } from 'node:fs'
import { describe, expect, test } from 'vitest'
import { InputError } from '../../../src/base/errors.ts'
import { pairedTTest, type TTest, welchTTest } from '../../../src/language/rewards/statistics.ts'

type Recorded = Pick<TTest, 'statistic' | 'degreesOfFreedom' | 'pValue' | 'interval'>
const { cases } = JSON.parse(readFileSync(new URL('../../golden/scipy-t-tests.json', import.meta.url), 'utf8')) as {
  cases: { before: number[]; after: number[]; paired: Recorded; welch: Recorded }[]
}

function expectClose(found: number, expected: number): void {
  expect(Math.abs(found - expected)).toBeLessThanOrEqual(1e-9 * Math.max(Math.abs(expected), 1e-300))
}

describe('t-tests', () => {
  test.each(cases)('are those of SciPy, case %#', ({ before, after, ...recorded }) => {
    for (const [name, test] of [
      ['paired', pairedTTest],
      ['welch', welchTTest],
    ] as const) {
      const found = test(before, after)
      const wanted = recorded[name]
      if (wanted.statistic === 0) expect(found.statistic).toBe(0)
      else expectClose(found.statistic, wanted.statistic)
      expectClose(found.degreesOfFreedom, wanted.degreesOfFreedom)
      expectClose(found.pValue, wanted.pValue)
      for (const end of [0, 1] as const) expectClose(found.interval[end], wanted.interval[end])
    }
  })

  test("give Student's sleep data an effect size of 1.28 paired and 0.83 unpaired", () => {
    // Differences: mean 1.58, deviation 1.2300; samples: deviations 1.7890 and 2.0022.
    const { before, after } = cases[0]!
    expect(pairedTTest(before, after).effectSize).toBeCloseTo(1.58 / 1.22995, 4)
    expect(welchTTest(before, after).effectSize).toBeCloseTo(1.58 / Math.sqrt((1.78901 ** 2 + 2.002249 ** 2) / 2), 4)
  })

  test('of samples without any deviation', () => {
    expect(pairedTTest([1, 2, 3], [1, 2, 3])).toMatchObject({
      statistic: 0,
      pValue: 1,
      interval: [0, 0],
      effectSize: 0,
    })
    expect(pairedTTest([0, 0], [1, 1])).toMatchObject({
      statistic: Number.POSITIVE_INFINITY,
      pValue: 0,
      interval: [1, 1],
    })
    expect(welchTTest([1, 1], [1, 1])).toMatchObject({ statistic: 0, pValue: 1 })
    expect(welchTTest([1, 1], [0, 0])).toMatchObject({ statistic: Number.NEGATIVE_INFINITY, pValue: 0 })
  })

  test("have Welch's degrees of freedom where the means are equally uncertain, and the samples differ in size", () => {
    // Variances 2 and 4 over 2 and 4 values: (1 + 1)² / (1²/1 + 1²/3).
    expect(welchTTest([0, 2], [-3, 1, 1, 1]).degreesOfFreedom).toBeCloseTo(3, 12)
  })

  test('need two values', () => {
    expect(() => pairedTTest([1], [2])).toThrow(InputError)
    expect(() => pairedTTest([1, 2], [2])).toThrow(InputError)
    expect(() => welchTTest([1, 2], [2])).toThrow(InputError)
  })
})
