import { describe, expect, test } from 'vitest'
import { shortNumber } from '../../src/dashboard/page/elements.ts'
import { smooth, ticks, together, valueAt } from '../../src/dashboard/page/series.ts'
import { differences } from '../../src/dashboard/page/tables.ts'
import type { ShownRun } from '../../src/dashboard/runs.ts'

describe('curves of the page', () => {
  test('are smoothed without being drawn to 0 at their beginning', () => {
    expect(smooth([4, 4, 4], 0.9).map((value) => Math.round(1e9 * value) / 1e9)).toEqual([4, 4, 4])
    expect(smooth([3, 0], 0.5)).toEqual([3, 1])
    expect(smooth([1, 5, 2], 0)).toEqual([1, 5, 2])
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

test('numbers are short', () => {
  const numbers = [0, 12.34567, -0.000012, 614_400, 2.5e12, Number.POSITIVE_INFINITY]
  expect(numbers.map(shortNumber)).toEqual(['0', '12.35', '-1.20e-5', '614.4k', '2.50e+12', 'Infinity'])
})

test('settings that differ are those in which the runs are not all alike', () => {
  const run = (settings: object) => ({ settings }) as unknown as ShownRun
  expect(differences([run({ seed: 1, gamma: 0.9, new: true }), run({ seed: 2, gamma: 0.9 })])).toEqual([
    { key: 'new', values: ['true', '–'] },
    { key: 'seed', values: ['1', '2'] },
  ])
})
