import { describe, expect, test } from 'vitest'
import { findByteBeyond } from '../../src/kernels/rollout/bytes.ts'
import {
  clipRows,
  findBeyond,
  findMiswritten,
  findNonFinite,
  findOutside,
  gatherRows,
  listValid,
  shuffleRows,
} from '../../src/kernels/rollout/rows.ts'
import * as fc from '../support/properties.ts'

test('listValid lists the rows whose flag is not 0, rising', () => {
  fc.assert(
    fc.property(fc.uint8Array({ max: 2, maxLength: 60, size: 'max' }), fc.nat(60), (valid, limit) => {
      const numRows = Math.min(limit, valid.length)
      const rows = new Uint32Array(valid.length + 1).fill(999)
      const count = listValid(rows, valid, numRows)
      const expected = [...valid.keys()].filter((row) => row < numRows && valid[row] !== 0)
      expect([...rows.subarray(0, count)]).toEqual(expected)
      expect(rows.subarray(count).every((row) => row === 999)).toBe(true)
    }),
  )
})

describe('shuffleRows', () => {
  function shuffle(rows: ArrayLike<number>, update: number, epoch: number, key0 = 1, key1 = 2): number[] {
    const shuffled = Uint32Array.from(rows)
    shuffleRows(shuffled, new Uint32Array(4), shuffled.length, update, epoch, key0, key1)
    return [...shuffled]
  }
  const range = (length: number) => Array.from({ length }, (_, i) => i)
  const word = fc.integer({ min: 0, max: 0xffffffff })

  test('keeps every row once', () => {
    fc.assert(
      fc.property(
        fc.array(word, { maxLength: 80, size: 'max' }),
        word,
        word,
        word,
        word,
        (rows, update, epoch, key0, key1) => {
          const sorted = (x: number[]) => x.toSorted((a, b) => a - b)
          expect(sorted(shuffle(rows, update, epoch, key0, key1))).toEqual(sorted(rows))
        },
      ),
    )
  })

  test('gives the same order for the same key, and another for another seed, update or epoch', () => {
    const rows = range(64)
    const orders = [
      shuffle(rows, 0, 0),
      shuffle(rows, 1, 0),
      shuffle(rows, 0, 1),
      shuffle(rows, 0, 0, 2, 2),
      shuffle(rows, 0, 0, 1, 3),
    ]
    expect(new Set(orders.map(String)).size).toBe(5)
    expect(shuffle(rows, 0, 0)).toEqual(orders[0])
    expect(orders).not.toContainEqual(rows)
  })

  test('shuffles the first `count` rows and no more', () => {
    const rows = Uint32Array.from(range(20))
    shuffleRows(rows, new Uint32Array(4), 10, 3, 1, 5, 0)
    expect([...rows.subarray(10)]).toEqual(range(20).slice(10))
    expect([...rows.subarray(0, 10)]).not.toEqual(range(10))
  })

  test('brings each of the orders of four rows about as often as the others', () => {
    const counts = new Map<string, number>()
    const n = 24_000
    for (let update = 0; update < n; update++) {
      const order = String(shuffle([0, 1, 2, 3], update, update % 7))
      counts.set(order, (counts.get(order) ?? 0) + 1)
    }
    expect(counts.size).toBe(24)
    const chiSquare = [...counts.values()].reduce((sum, count) => sum + (count - n / 24) ** 2 / (n / 24), 0)
    expect(chiSquare).toBeLessThan(49.7) // 23 degrees of freedom: passed by one right shuffle in a thousand.
  })

  test('brings each row of a long list to each place about as often', () => {
    const size = 40
    const n = 8000
    const counts = new Float64Array(size * size)
    for (let update = 0; update < n; update++) {
      for (const [place, row] of shuffle(range(size), update, 0, 9, 9).entries()) counts[size * place + row]!++
    }
    const chiSquare = counts.reduce((sum, count) => sum + (count - n / size) ** 2 / (n / size), 0)
    // 39² degrees of freedom, mean 1521 and deviation 55: five deviations.
    expect(Math.abs(chiSquare - 39 ** 2)).toBeLessThan(5 * Math.sqrt(2 * 39 ** 2))
  })
})

test.each([Float32Array, Int32Array])('gatherRows copies the listed rows of a %o', (ColumnArray) => {
  const cases = fc.record({
    width: fc.integer({ min: 1, max: 5 }),
    rows: fc.array(fc.nat(11), { maxLength: 20, size: 'max' }),
    first: fc.nat(20),
    extra: fc.nat(3),
  })
  fc.assert(
    fc.property(cases, ({ width, rows, first, extra }) => {
      const start = Math.min(first, rows.length)
      const count = Math.max(0, rows.length - start - extra)
      const source = new ColumnArray(Array.from({ length: 12 * width }, (_, i) => i + 1))
      const gathered = new ColumnArray(rows.length * width + width)
      gatherRows(gathered, source, Uint32Array.from(rows), start, count, width)
      const expected = rows
        .slice(start, start + count)
        .flatMap((row) => [...source.subarray(row * width, (row + 1) * width)])
      expect([...gathered.subarray(0, count * width)]).toEqual(expected)
      expect(gathered.subarray(count * width).every((value) => value === 0)).toBe(true)
    }),
  )
})

test('findByteBeyond finds the first byte of its lanes that is outside the bounds of its dimension', () => {
  const cases = fc.record({ width: fc.integer({ min: 1, max: 5 }), from: fc.nat(6), lanes: fc.nat(6), at: fc.nat(40) })
  fc.assert(
    fc.property(cases, fc.constantFrom(-1, 0, 1), ({ width, from, lanes, at }, by) => {
      const high = Uint8Array.from({ length: width }, (_, k) => 9 + k)
      const low = Uint8Array.from({ length: width }, (_, k) => 1 + k)
      const x = Uint8Array.from({ length: 13 * width }, (_, i) => (by < 0 ? low : high)[i % width]!)
      const place = at % x.length
      x[place]! += by
      const isIn = place >= from * width && place < (from + lanes) * width
      expect(findByteBeyond(x, low, high, width, from, from + lanes)).toBe(isIn && by !== 0 ? place : -1)
    }),
  )
})

test('findBeyond finds the first element of its lanes that is outside the bounds of its dimension, or is NaN', () => {
  const cases = fc.record({
    width: fc.integer({ min: 1, max: 5 }),
    from: fc.nat(6),
    lanes: fc.nat(6),
    at: fc.nat(40),
    by: fc.constantFrom(Number.NaN, Number.POSITIVE_INFINITY, 1e-3, -1e-3, 0),
  })
  fc.assert(
    fc.property(cases, ({ width, from, lanes, at, by }) => {
      const high = Float32Array.from({ length: width }, (_, k) => k + 1)
      const low = Float32Array.from({ length: width }, (_, k) => -2 * k)
      const x = Float32Array.from({ length: 13 * width }, (_, i) => (by < 0 ? low : high)[i % width]!)
      const place = at % x.length
      x[place]! += by
      const isIn = place >= from * width && place < (from + lanes) * width
      expect(findBeyond(x, low, high, width, from, from + lanes)).toBe(isIn && by !== 0 ? place : -1)
    }),
  )
})

test('findMiswritten finds the first lane with a reward beyond the largest or a flag that is neither 0 nor 1', () => {
  const [terminated, truncated] = [Uint8Array.of(0, 1, 0, 2, 0, 1, 0, 0), Uint8Array.of(1, 1, 0, 0, 255, 3, 0, 0)]
  const reward = Float32Array.of(9, -9, 0, 0, 0, 0, -9.5, Number.NaN)
  const find = (from: number, to = 8) => findMiswritten(reward, terminated, truncated, 9, from, to)
  expect([0, 3, 4, 5, 6, 7, 8].map((from) => find(from))).toEqual([3, 3, 4, 5, 6, 7, -1])
  expect(find(0, 3)).toBe(-1)
})

test('findNonFinite finds the first NaN or infinity of its range', () => {
  const value = fc.oneof(
    { weight: 9, arbitrary: fc.float({ noNaN: true, noDefaultInfinity: true }) },
    fc.constantFrom(Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY),
  )
  fc.assert(
    fc.property(fc.array(value, { maxLength: 30, size: 'max' }), fc.nat(30), fc.nat(30), (values, a, b) => {
      const [from, to] = [Math.min(a, values.length), Math.min(b, values.length)]
      const expected = values.findIndex((x, i) => i >= from && i < to && !Number.isFinite(x))
      expect(findNonFinite(Float32Array.from(values), from, to)).toBe(expected)
    }),
    { numRuns: 500 },
  )
  expect(findNonFinite(Float32Array.of(3.4e38, -3.4e38, 1e-45), 0, 3)).toBe(-1)
})

test('findOutside finds the first element of its lanes that is no choice of its dimension', () => {
  const cases = fc.array(fc.integer({ min: 1, max: 4 }), { minLength: 1, maxLength: 3 }).chain((sizes) =>
    fc.record({
      sizes: fc.constant(sizes),
      lanes: fc.array(fc.tuple(...sizes.map((size) => fc.integer({ min: -1, max: size }))), { maxLength: 8 }),
      from: fc.nat(8),
      to: fc.nat(8),
    }),
  )
  fc.assert(
    fc.property(cases, ({ sizes, lanes, from, to }) => {
      const end = Math.min(to, lanes.length)
      const flat = lanes.flat()
      const width = sizes.length
      const expected = flat.findIndex((x, i) => {
        const lane = Math.floor(i / width)
        return lane >= from && lane < end && !(x >= 0 && x < sizes[i % width]!)
      })
      expect(findOutside(Int32Array.from(flat), Int32Array.from(sizes), width, from, end)).toBe(expected)
    }),
    { numRuns: 500 },
  )
})

describe('clipRows', () => {
  test('takes each number to the nearest within the bounds of its dimension, in its lanes only', () => {
    const bound = fc.oneof(
      fc.float({ noNaN: true }),
      fc.constantFrom(Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY),
    )
    const cases = fc.integer({ min: 1, max: 4 }).chain((width) =>
      fc.record({
        bounds: fc.array(fc.tuple(bound, bound), { minLength: width, maxLength: width }),
        x: fc.array(fc.float({ noNaN: true }), { minLength: 6 * width, maxLength: 6 * width }),
        from: fc.nat(6),
        to: fc.nat(6),
      }),
    )
    fc.assert(
      fc.property(cases, ({ bounds, x, from, to }) => {
        const width = bounds.length
        const low = Float32Array.from(bounds, ([a, b]) => Math.min(a, b))
        const high = Float32Array.from(bounds, ([a, b]) => Math.max(a, b))
        const clipped = new Float32Array(x.length).fill(-7)
        clipRows(clipped, Float32Array.from(x), low, high, width, from, to)
        for (const [i, value] of x.entries()) {
          const lane = Math.floor(i / width)
          const [least, most] = [low[i % width]!, high[i % width]!]
          const nearest = value < least ? least : Math.min(value, most)
          // + 0: where a bound is 0 the sign of a 0 is open.
          expect(clipped[i]! + 0).toBe(lane >= from && lane < to ? nearest + 0 : -7)
        }
      }),
    )
  })

  test('keeps NaN, so that it is found and not hidden', () => {
    const clipped = new Float32Array(1)
    clipRows(clipped, Float32Array.of(Number.NaN), Float32Array.of(-1), Float32Array.of(1), 1, 0, 1)
    expect(clipped[0]).toBeNaN()
  })
})
