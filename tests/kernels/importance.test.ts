import { describe, expect, test } from 'vitest'
import { createKernels, ImportanceSum } from '../../src/kernels/bind.ts'
import * as fc from '../support/properties.ts'

const kernels = createKernels({ buffer: new ArrayBuffer(0) }, 'plain')
const rows = fc.array(
  fc.record({
    logprob: fc.double({ min: -9, max: 0, noNaN: true }),
    old: fc.double({ min: -9, max: 0, noNaN: true }),
    isValid: fc.boolean(),
    advantage: fc.double({ min: -9, max: 9, noNaN: true }),
  }),
  { maxLength: 9 },
)

describe('importance weights', () => {
  test('are the ratios of probabilities, truncated; rows that are not valid have none', () => {
    const property = fc.property(rows, fc.double({ min: 0.1, max: 4, noNaN: true }), (given, weightMax) => {
      const logprob = Float32Array.from(given, (row) => row.logprob)
      const old = Float32Array.from(given, (row) => row.old)
      const valid = Uint8Array.from(given, (row) => Number(row.isValid))
      const [weight, sums] = [new Float32Array(given.length + 1).fill(7), new Float64Array(4).fill(7)]
      kernels.importanceWeights(weight, sums, logprob, old, valid, weightMax, given.length)
      const counted = given.flatMap(({ isValid }, i) => (isValid ? [Math.E ** (logprob[i]! - old[i]!)] : []))
      const expected = [0, 0, 0, 0]
      expected[ImportanceSum.ratio] = counted.reduce((sum, ratio) => sum + ratio, 0)
      expected[ImportanceSum.weight] = counted.reduce((sum, ratio) => sum + (ratio > weightMax ? weightMax : ratio), 0)
      expected[ImportanceSum.largest] = counted.toSorted((a, b) => b - a)[0] ?? 0
      expected[ImportanceSum.rows] = counted.length
      for (const [i, sum] of expected.entries()) expect(sums[i]).toBeCloseTo(sum, 6)
      const found = Array.from(weight.subarray(0, given.length)).filter((_, i) => given[i]!.isValid)
      for (const [i, ratio] of counted.entries()) expect(found[i]! / Math.min(ratio, weightMax)).toBeCloseTo(1, 5)
      expect(Array.from(weight).filter((each, i) => i < given.length && each !== 0)).toHaveLength(counted.length)
      expect(weight.at(-1)).toBe(7)

      const advantage = Float32Array.from([...given, { advantage: 5 }], (row) => row.advantage)
      const before = advantage.slice()
      kernels.weighAdvantages(advantage, weight, given.length)
      const products = Array.from(before, (each, i) => (i < given.length ? Math.fround(each * weight[i]!) : each))
      expect(Array.from(advantage, (each) => each + 0)).toEqual(products.map((each) => each + 0))
    })
    fc.assert(property)
  })
})
