import { expect } from 'vitest'
import type { Settings } from '../../src/base/settings.ts'

/** A setting's accepted values at the ends of its range, and refused values beyond. */
export type Bounds = readonly [accepted: readonly unknown[], refused: readonly unknown[]]

/** Common bounds. */
export const above0: Bounds = [
  [1e-9, 1e9],
  [0, -1],
]
export const from0: Bounds = [[0, 1e9], [-1e-9]]
export const from0to1: Bounds = [
  [0, 1],
  [-1e-9, 1 + 1e-9],
]
export const count: Bounds = [
  [1, 1e9],
  [0, 1.5],
]
export const countOrNone: Bounds = [
  [0, 1e9],
  [-1, 0.5],
]
/** The same, or null. */
export const orNull = ([accepted, refused]: Bounds): Bounds => [[...accepted, null], refused]

/** Tests the bounds of all numeric settings; `bounds` must name exactly these. */
export function expectBounds(settings: Settings, bounds: Readonly<Record<string, Bounds>>): void {
  const numbers = Object.keys(settings).filter((key) => settings[key]!.expected.includes('number'))
  const isText = (key: string) => typeof settings[key]!.default === 'string' // A choice may also be a word.
  expect(Object.keys(bounds).toSorted()).toEqual(
    numbers.filter((key) => !Array.isArray(settings[key]!.default) && !isText(key)).toSorted(),
  )
  for (const [key, [accepted, refused]] of Object.entries(bounds)) {
    for (const value of accepted) expect(settings[key]!.accepts(value), `${key} = ${value}`).toBe(true)
    for (const value of [...refused, Number.NaN, Infinity, '1']) {
      expect(settings[key]!.accepts(value), `${key} = ${value}`).toBe(false)
    }
    expect(settings[key]!.accepts(null), `${key} = null`).toBe(accepted.includes(null))
  }
}
