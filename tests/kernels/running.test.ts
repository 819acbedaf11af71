import { describe, expect, test } from 'vitest'
import { normalizeRows, readRunning, updateRunning } from '../../src/kernels/statistics/running.ts'
import * as fc from '../support/properties.ts'

/** Running moments of rows of one width. */
class Running {
  readonly width: number
  readonly mean: Float64Array
  readonly squares: Float64Array
  readonly count = new Float64Array(1)

  constructor(width: number) {
    this.width = width
    this.mean = new Float64Array(width)
    this.squares = new Float64Array(width)
  }

  add(x: Float32Array, valid = new Uint8Array(x.length / this.width).fill(1)): this {
    updateRunning(this.mean, this.squares, this.count, x, valid, valid.length, this.width)
    return this
  }

  read(epsilon: number): { center: Float32Array; deviation: Float32Array } {
    const [center, deviation] = [new Float32Array(this.width), new Float32Array(this.width)]
    readRunning(center, deviation, this.mean, this.squares, this.count, epsilon, this.width)
    return { center, deviation }
  }

  normalize(x: Float32Array, epsilon: number, clip: number): Float32Array {
    const { center, deviation } = this.read(epsilon)
    const y = new Float32Array(x.length).fill(Number.NaN)
    normalizeRows(y, x, center, deviation, clip, x.length / this.width, this.width, 0)
    return y
  }
}

/** Mean and sum of squared distances of one dimension over all differences of pairs: no mean is needed. */
function momentsTwin(x: number[]): { mean: number; squares: number } {
  let pairs = 0
  for (let i = 0; i < x.length; i++) for (let j = 0; j < i; j++) pairs += (x[i]! - x[j]!) ** 2
  return { mean: x.reduce((sum, value) => sum + value / x.length, 0), squares: pairs / x.length }
}

const batches = fc.record({
  width: fc.integer({ min: 1, max: 5 }),
  numRows: fc.array(fc.integer({ min: 0, max: 20 }), { minLength: 1, maxLength: 5 }),
  offset: fc.constantFrom(0, 1000),
  values: fc.float32Array({ min: -100, max: 100, noNaN: true, minLength: 500, maxLength: 500 }),
  dead: fc.uint8Array({ max: 3, minLength: 100, maxLength: 100 }),
})

/** Rows of two dimensions; in numpy, x = np.array([[1.5, -2], [0.25, 8], [3, -1], [-4, 0.5], [2, 2]]) */
const SAMPLE = Float32Array.of(1.5, -2, 0.25, 8, 3, -1, -4, 0.5, 2, 2)

describe('updateRunning', () => {
  test('gives the figures that numpy gives, in one batch and in three', () => {
    const whole = new Running(2).add(SAMPLE)
    const parts = new Running(2).add(SAMPLE.slice(0, 2)).add(SAMPLE.slice(2, 6)).add(SAMPLE.slice(6))
    for (const { mean, squares, count } of [whole, parts]) {
      // x.mean(0), 5 * x.var(0)
      expect(mean[0]).toBeCloseTo(0.55, 13)
      expect(mean[1]).toBeCloseTo(1.5, 13)
      expect(squares[0]).toBeCloseTo(29.8, 13)
      expect(squares[1]).toBeCloseTo(62, 13)
      expect(count[0]).toBe(5)
    }
  })

  test('equals the moments of all valid rows, however they come in batches', () => {
    fc.assert(
      fc.property(batches, ({ width, numRows, offset, values, dead }) => {
        const x = values.map((value) => value + offset)
        const valid = dead.map((draw) => (draw === 0 ? 0 : 1))
        const total = numRows.reduce((sum, rows) => sum + rows, 0)
        const whole = new Running(width).add(x.slice(0, total * width), valid.slice(0, total))
        const parts = new Running(width)
        let first = 0
        for (const rows of numRows) {
          parts.add(x.slice(first * width, (first + rows) * width), valid.slice(first, first + rows))
          first += rows
        }
        expect(parts.count).toEqual(whole.count)
        for (let k = 0; k < width; k++) {
          const column: number[] = []
          for (let row = 0; row < total; row++) if (valid[row]) column.push(x[row * width + k]!)
          expect(whole.count[0]).toBe(column.length)
          if (column.length === 0) continue
          const { mean, squares } = momentsTwin(column)
          // Rounding is as if each value were off by 1e-14 of the largest.
          const size = 1e-14 * Math.max(...column.map(Math.abs))
          const off = Math.sqrt(column.length) * size
          for (const running of [whole, parts]) {
            expect(Math.abs(running.mean[k]! - mean)).toBeLessThanOrEqual(size)
            const difference = Math.abs(running.squares[k]! - squares)
            expect(difference).toBeLessThanOrEqual(off * off + 2 * off * Math.sqrt(squares) + 1e-14 * squares)
          }
        }
      }),
      { numRuns: 200 },
    )
  })

  test('in a hundred parts is as in one, within 1e-12', () => {
    const x = Float32Array.from({ length: 3000 }, (_, i) => 5 + Math.sin(i * i))
    const whole = new Running(3).add(x)
    const parts = new Running(3)
    for (let i = 0; i < 100; i++) parts.add(x.slice(30 * i, 30 * (i + 1)))
    for (let k = 0; k < 3; k++) {
      expect(Math.abs(parts.mean[k]! / whole.mean[k]! - 1)).toBeLessThan(1e-12)
      expect(Math.abs(parts.squares[k]! / whole.squares[k]! - 1)).toBeLessThan(1e-12)
    }
  })

  test('keeps the small deviation of large numbers', () => {
    const x = Float32Array.from({ length: 1000 }, (_, i) => 1e6 + (i % 2))
    const parts = new Running(1).add(x.slice(0, 300)).add(x.slice(300))
    expect(parts.mean[0]).toBeCloseTo(1e6 + 0.5, 8)
    expect(parts.squares[0]).toBeCloseTo(250, 6)
  })

  test('is left as it is by a batch without a valid row', () => {
    const running = new Running(2).add(new Float32Array(0)).add(SAMPLE, new Uint8Array(5))
    expect([...running.mean, ...running.squares, ...running.count]).toEqual([0, 0, 0, 0, 0])
    const before = running.add(SAMPLE).mean.slice()
    expect(running.add(new Float32Array(4).fill(Number.NaN), new Uint8Array(2)).mean).toEqual(before)
  })
})

describe('readRunning', () => {
  test('gives the mean and the root of the variance and epsilon', () => {
    const { center, deviation } = new Running(2).add(SAMPLE).read(0.01)
    // x.mean(0), np.sqrt(x.var(0) + 0.01)
    expect(center).toEqual(Float32Array.of(0.55, 1.5))
    expect(deviation).toEqual(Float32Array.of(2.443358344574123, 3.5227829907617076))
  })

  test('has center 0 and deviation 1 before the first batch, so that rows stay as they are', () => {
    expect(new Running(2).normalize(SAMPLE, 1e-8, Infinity)).toEqual(SAMPLE)
  })
})

describe('normalizeRows', () => {
  test('gives the figures that numpy gives', () => {
    const y = new Running(2).add(SAMPLE).normalize(SAMPLE, 0.01, 1.5)
    // np.clip((x - x.mean(0)) / np.sqrt(x.var(0) + 0.01), -1.5, 1.5)
    const expected = [
      [0.3888091168082776, -0.9935326726564041],
      [-0.12278182636050874, 1.5],
      [1.0027182486108213, -0.7096661947545744],
      [-1.5, -0.28386647790182973],
      [0.5934454940757922, 0.14193323895091486],
    ]
    expected.flat().forEach((value, i) => void expect(y[i]).toBeCloseTo(value, 6))
  })

  test('puts rows at mean 0 and deviation 1', () => {
    const x = Float32Array.from({ length: 3000 }, (_, i) => 5 * (i % 3) + (1 + (i % 3)) * Math.sin(i * i))
    const again = new Running(3).add(new Running(3).add(x).normalize(x, 0, Infinity))
    for (let k = 0; k < 3; k++) {
      expect(again.mean[k]).toBeCloseTo(0, 6)
      expect(again.squares[k]! / 1000).toBeCloseTo(1, 6)
    }
  })

  test('gives 0 in a dimension that never varied, and what leaves it is clipped', () => {
    const running = new Running(1).add(Float32Array.of(3, 3)).add(Float32Array.of(3, 3, 3))
    expect(running.normalize(Float32Array.of(3, 4, 2), 1e-8, 10)).toEqual(Float32Array.of(0, 10, -10))
  })

  test('leaves NaN, clips what is infinite', () => {
    const y = new Running(1).normalize(Float32Array.of(Number.NaN, Infinity, -Infinity), 1e-8, 5)
    expect(y).toEqual(Float32Array.of(Number.NaN, 5, -5))
  })

  test('reads from row `from` on, and may work in place', () => {
    const [center, deviation] = [Float32Array.of(1, 2), Float32Array.of(2, 4)]
    const y = new Float32Array(4)
    normalizeRows(y, Float32Array.of(9, 9, 3, 2, 5, 10), center, deviation, 10, 2, 2, 1)
    expect(y).toEqual(Float32Array.of(1, 0, 2, 2))
    normalizeRows(y, y, center, deviation, 10, 2, 2, 0)
    expect(y).toEqual(Float32Array.of(0, -0.5, 0.5, 0))
  })
})
