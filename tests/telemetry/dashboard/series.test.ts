import { describe, expect, test } from 'vitest'
import { smooth, together, valueAt } from '../../../src/telemetry/curves.ts'
import { shortNumber } from '../../../src/telemetry/dashboard/page/elements.ts'
import { columns, csvOf, logTicks, moved, onLog, ticks } from '../../../src/telemetry/dashboard/page/series.ts'

describe('curves of the page', () => {
  test('are smoothed without being drawn to 0 at their beginning', () => {
    expect(smooth([4, 4, 4], 0.9).map((value) => Math.round(1e9 * value) / 1e9)).toEqual([4, 4, 4])
    expect(smooth([3, 0], 0.5)).toEqual([3, 1])
    expect(smooth([1, 5, 2], 0)).toEqual([1, 5, 2])
  })

  test('keep the least and the greatest of each column of pixels, wherever what is shown begins', () => {
    const curve = { x: [0, 1, 2, 3, 4, 5, 6, 11], y: [5, 9, 1, 4, 2, 2, 2, 7] }
    expect(columns(curve, 4)).toEqual({ x: [1, 2, 4, 11], y: [9, 1, 2, 7] })
    const later = { x: curve.x.slice(1), y: curve.y.slice(1) }
    expect(columns(later, 4)).toEqual(columns(curve, 4))
    expect(columns(curve, 0.5)).toEqual(curve)
    expect(columns({ x: [], y: [] }, 4)).toEqual({ x: [], y: [] })
  })

  test('can be moved along, but not beyond their ends', () => {
    expect(moved([2, 4], 1.5, [0, 10])).toEqual([3.5, 5.5])
    expect(moved([2, 4], -5, [0, 10])).toEqual([0, 2])
    expect(moved([2, 4], 50, [0, 10])).toEqual([8, 10])
  })

  test('have a value between two points, and none beside them', () => {
    const points = { x: [1, 3, 3, 7], y: [10, 20, 30, 50] }
    expect([1, 2, 5, 7].map((x) => valueAt(points, x))).toEqual([10, 15, 40, 50])
    expect([0.5, 7.5].map((x) => valueAt(points, x))).toEqual([Number.NaN, Number.NaN])
    expect(valueAt({ x: [], y: [] }, 0)).toBeNaN()
  })

  test('of several seeds are a mean and a band where all of them are', () => {
    const curves = [
      { x: [0, 2, 4], y: [0, 20, 40] },
      { x: [1, 2, 3], y: [30, 40, 80] },
    ]
    expect(together(curves)).toEqual({ x: [1, 2, 3], y: [20, 30, 55], low: [10, 20, 30], high: [30, 40, 80] })
  })

  test('have round marks', () => {
    expect(ticks(0, 500, 5)).toEqual([0, 100, 200, 300, 400, 500])
    expect(ticks(-0.013, 0.022, 4).map((tick) => Number(tick.toFixed(9)))).toEqual([-0.01, 0, 0.01, 0.02])
    expect(ticks(3, 3, 4)).toEqual([3])
  })
})

describe('a log scale', () => {
  const plain = { name: 'a', color: 'red', raw: null, band: null }

  test('has logarithms, and leaves out what has none', () => {
    const series = { ...plain, x: [1, 2, 3, 4], y: [10, 0, 1000, -3], raw: [100, 1, -1, 1] }
    expect(onLog(series)).toEqual({ ...plain, x: [1, 3], y: [1, 3], raw: [2, 3] })
    const band = { low: [1, 0, 10, 1], high: [100, 5, 10, 1] }
    expect(onLog({ ...plain, x: [1, 2, 3, 4], y: [10, 2, 10, 1], band })).toEqual({
      ...{ ...plain, x: [1, 3, 4], y: [1, 1, 0] },
      band: { low: [0, 1, 0], high: [2, 1, 0] },
    })
  })

  test('is marked at powers of ten, with 2 and 5 between few of them', () => {
    const values = (least: number, most: number) =>
      logTicks(Math.log10(least), Math.log10(most)).map((tick) => Number((10 ** tick).toPrecision(9)))
    expect(values(0.4, 30)).toEqual([0.5, 1, 2, 5, 10, 20])
    expect(values(0.5, 20_000)).toEqual([1, 10, 100, 1000, 10_000])
    expect(values(1e-20, 1)).toHaveLength(7)
    expect(values(240, 460)).toEqual([250, 300, 350, 400, 450])
  })
})

test('series are CSV with quoted names', () => {
  const band = { low: [1, 2], high: [3, 4] }
  const series = [
    { name: 'a, "b"', color: 'red', x: [1, 2], y: [2, 3], raw: null, band },
    { name: 'c', color: 'red', x: [5], y: [0.1], raw: [0.3], band: null },
  ]
  expect(csvOf(series).split('\n')).toEqual([
    ...['series,x,y,low,high', '"a, ""b""",1,2,1,3', '"a, ""b""",2,3,2,4', 'c,5,0.1,,', ''],
  ])
})

test('numbers are short', () => {
  const numbers = [0, 12.34567, -0.000012, 614_400, 2.5e12, Number.POSITIVE_INFINITY]
  expect(numbers.map(shortNumber)).toEqual(['0', '12.35', '-1.20e-5', '614.4k', '2.50e+12', 'Infinity'])
})
