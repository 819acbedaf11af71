import { describe, expect, test } from 'vitest'
import { explainedVariance, meanAndDeviation } from '../../src/kernels/statistics/moments.ts'
import * as fc from '../support/properties.ts'

const columns = (minLength: number) =>
  fc.float32Array({ min: -1000, max: 1000, noNaN: true, minLength, maxLength: 60, size: 'max' })

function moments(x: Float32Array, numRows = x.length): [number, number] {
  const out = new Float64Array(2).fill(Number.NaN)
  meanAndDeviation(out, x, numRows)
  return [out[0]!, out[1]!]
}

describe('meanAndDeviation', () => {
  test('gives the figures that numpy gives', () => {
    const [mean, deviation] = moments(Float32Array.of(1.5, -2, 0.25, 8, 3))
    // x = np.array([1.5, -2, 0.25, 8, 3]); x.mean(), x.std(ddof=1)
    expect(mean).toBeCloseTo(2.15, 14)
    expect(deviation).toBeCloseTo(3.7483329627982624, 14)
  })

  test('equals the mean, and half the mean square of all differences', () => {
    fc.assert(
      fc.property(columns(2), (x) => {
        const [mean, deviation] = moments(x)
        const n = x.length
        // Var = Σ_{i<j} (x_i − x_j)² / (n (n − 1)): no mean is needed.
        let pairs = 0
        for (let i = 0; i < n; i++) for (let j = 0; j < i; j++) pairs += (x[i]! - x[j]!) ** 2
        const expected = Math.sqrt(pairs / n / (n - 1))
        expect(Math.abs(mean - x.reduce((sum, value) => sum + value / n, 0))).toBeLessThan(1e-10)
        expect(Math.abs(deviation - expected)).toBeLessThan(1e-9)
      }),
    )
  })

  test('keeps the small deviation of large numbers', () => {
    const x = Float32Array.from({ length: 1000 }, (_, i) => 1e6 + (i % 2))
    const [mean, deviation] = moments(x)
    expect(mean).toBe(1e6 + 0.5)
    expect(deviation).toBeCloseTo(Math.sqrt(1000 / 999) / 2, 12)
  })

  test('is 0 for a single row, and reads `numRows` rows and no more', () => {
    expect(moments(Float32Array.of(7))).toEqual([7, 0])
    expect(moments(Float32Array.of(1, 3, Number.NaN), 2)).toEqual([2, Math.SQRT2])
  })
})

describe('explainedVariance', () => {
  const all = (x: ArrayLike<number>) => new Uint8Array(x.length).fill(1)

  test('gives the figure that numpy gives', () => {
    const value = Float32Array.of(1, 0.5, -1, 2)
    const returns = Float32Array.of(1.25, 0, -2, 2.5)
    // 1 - np.var(returns - value) / np.var(returns)
    expect(explainedVariance(value, returns, all(value), 4)).toBeCloseTo(0.8712871287128713, 14)
  })

  test('counts valid rows only', () => {
    fc.assert(
      fc.property(columns(3), fc.nat(), (returns, seed) => {
        const value = returns.map((x, i) => 0.5 * x + ((i * 7 + seed) % 5))
        const valid = Uint8Array.from(returns, (_, i) => ((i + seed) % 3 === 0 ? 0 : 1))
        const kept = (x: Float32Array) => x.filter((_, i) => valid[i] === 1)
        const expected = explainedVariance(kept(value), kept(returns), all(kept(value)), kept(value).length)
        expect(explainedVariance(value, returns, valid, returns.length)).toBe(expected)
      }),
    )
  })

  test('is 1 for a critic that is right up to a constant, 0 for a constant one, below 0 for one that is worse', () => {
    const returns = Float32Array.of(1, 2, 5, -3)
    const of = (value: number[]) => explainedVariance(Float32Array.from(value), returns, all(value), 4)
    expect(of([1, 2, 5, -3])).toBe(1)
    expect(of([11, 12, 15, 7])).toBe(1)
    expect(of([4, 4, 4, 4])).toBe(0)
    expect(of([-1, -2, -5, 3])).toBe(-3)
  })

  test('is NaN where the returns do not vary, or no row is valid', () => {
    const value = Float32Array.of(1, 2)
    expect(explainedVariance(value, Float32Array.of(3, 3), all(value), 2)).toBeNaN()
    expect(explainedVariance(value, value, new Uint8Array(2), 2)).toBeNaN()
  })
})
