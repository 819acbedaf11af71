import { describe, expect, test } from 'vitest'
import {
  isSame,
  MAX_BITS,
  over,
  parseDecimal,
  plus,
  rational,
  spend,
  type TooLarge,
  times,
  withWork,
} from '../../../src/language/rewards/maths/rational.ts'
import * as fc from '../../support/properties.ts'

describe('exact numbers', () => {
  test('are in lowest terms, with the sign above and 0 over 1', () => {
    expect(rational(6n, 4n)).toEqual({ numerator: 3n, denominator: 2n })
    expect(rational(6n, -4n)).toEqual({ numerator: -3n, denominator: 2n })
    expect(rational(-6n, -4n)).toEqual({ numerator: 3n, denominator: 2n })
    expect(rational(0n, -5n)).toEqual({ numerator: 0n, denominator: 1n })
    expect(rational(1n, 0n)).toBeNull()
    expect(over(rational(1n, 2n)!, rational(0n)!)).toBeNull()
  })

  test('are added, multiplied and divided as fractions are', () => {
    const part = fc.tuple(fc.integer({ min: -99, max: 99 }), fc.integer({ min: 1, max: 99 }))
    fc.assert(
      fc.property(part, part, ([a, b], [c, d]) => {
        const [p, q] = [rational(BigInt(a), BigInt(b))!, rational(BigInt(c), BigInt(d))!]
        expect(isSame(plus(p, q), rational(BigInt(a * d + b * c), BigInt(b * d))!)).toBe(true)
        expect(isSame(times(p, q), rational(BigInt(a * c), BigInt(b * d))!)).toBe(true)
        if (c !== 0) expect(isSame(times(over(p, q)!, q), p)).toBe(true)
        expect(isSame(p, q)).toBe(a * d === b * c)
      }),
    )
  })

  test('have as many bits as they may, above and below, and no more', () => {
    const most = 2n ** BigInt(MAX_BITS - 1)
    for (const make of [(large: bigint) => rational(large), (large: bigint) => rational(1n, large)]) {
      expect(() => make(most)).not.toThrow()
      expect(() => make(most * 2n)).toThrow(`more than ${MAX_BITS} bits`)
    }
  })

  test('are read from decimals', () => {
    expect(parseDecimal('-.5e-2')).toEqual(rational(-1n, 200n))
    expect(parseDecimal('2.50e3')).toEqual(rational(2500n))
    expect(['', '-', '.', '1e', '1e12345', ' 1'].map(parseDecimal)).toEqual(Array(6).fill(null))
  })
})

describe('work', () => {
  test('is counted within its budget, and that of what is around it goes on where it was', () => {
    const kindOf = (work: () => void): string => {
      try {
        work()
        return 'done'
      } catch (error) {
        return (error as TooLarge).kind
      }
    }
    expect(kindOf(() => withWork(10, () => spend(10)))).toBe('done')
    expect(kindOf(() => withWork(10, () => spend(11)))).toBe('work')
    const within = (left: number) => () =>
      withWork(10, () => {
        spend(4)
        withWork(1000, () => spend(900))
        spend(left)
      })
    expect([kindOf(within(6)), kindOf(within(7))]).toEqual(['done', 'work'])
    expect(kindOf(() => spend(1e12))).toBe('done')
  })
})
