/** Settings drawn from ranges and lists. */
import { describe, expect, test } from 'vitest'
import { fraction, integer, number, optionalNumber, text } from '../../src/base/settings.ts'
import { rangeOf, type Values } from '../../src/training/groups/sampled-settings.ts'
import { propose } from '../../src/training/groups/search.ts'

const sampleSettings = (values: ReadonlyMap<string, Values>, samples: number) =>
  propose(values, [], samples, { samples })
const rate = number(1e-3, 'a rate', { above: 0 })

describe('a range', () => {
  test('is read where a key takes a number, and nothing else is', () => {
    expect(rangeOf('rate', '1e-4..1e-2', rate)).toEqual({ from: 1e-4, to: 1e-2, isWhole: false })
    expect(rangeOf('rate', '.5...75', rate)).toEqual({ from: 0.5, to: 0.75, isWhole: false })
    expect(rangeOf('count', '-2..5', integer(1, 'a count'))).toEqual({ from: -2, to: 5, isWhole: true })
    const open = optionalNumber(null, 'a rate', { above: 0 })
    expect(rangeOf('rate', '1e-4..1e-2', open)).toEqual({ from: 1e-4, to: 1e-2, isWhole: false })
    expect(() => rangeOf('rate', '0..1', open)).toThrow('rate: got "0..1", expected a range of')
    expect(rangeOf('rate', '0.1,0.2', rate)).toBe(null)
    expect(rangeOf('rate', '0.1', rate)).toBe(null)
    expect(rangeOf('file', '../own..mjs', text('a', 'a file'))).toBe(null)
    expect(rangeOf('file', '1..2', undefined)).toBe(null)
  })

  test.each([
    ['2..1', rate, 'rate: got "2..1", expected a range like 1e-4..1e-2, its start below its end'],
    ['1..1', rate, 'its start below its end'],
    ['0..1', rate, 'rate: got "0..1", expected a range of a number > 0'],
    ['0.5..1.5', fraction(0.5, 'a part'), 'rate: got "0.5..1.5", expected a range of a number ≥ 0 and ≤ 1'],
    ['0.5..8', integer(1, 'a count'), 'expected a range of a whole number'],
    ['1..x', rate, 'a range like 1e-4..1e-2'],
  ])('%s is refused', (range, setting, message) => {
    expect(() => rangeOf('rate', range, setting)).toThrow(message)
  })
})

describe('settings that are drawn', () => {
  test('lie evenly in their ranges, on a logarithmic scale where these are wide', () => {
    const ranges = new Map<string, Values>([
      ['wide', { from: 1e-5, to: 1e-1, isWhole: false }],
      ['narrow', { from: 0.5, to: 1, isWhole: false }],
      ['whole', { from: 1, to: 4, isWhole: true }],
      ['large', { from: 8, to: 512, isWhole: true }],
    ])
    const drawn = sampleSettings(new Map([...ranges, ['list', ['a', 'b']], ['one', ['x']]]), 400)
    const sorted = (key: string) => drawn.map((setting) => Number(setting[key])).sort((a, b) => a - b)
    // A quarter of the settings lies in each quarter of a scale.
    const quarters = (key: string) => [100, 200, 300].map((i) => sorted(key)[i]!)
    for (const [i, exponent] of [-4, -3, -2].entries()) {
      expect(Math.log10(quarters('wide')[i]!)).toBeCloseTo(exponent, 1)
    }
    for (const [i, value] of [0.625, 0.75, 0.875].entries()) expect(quarters('narrow')[i]!).toBeCloseTo(value, 1)
    for (const whole of [1, 2, 3, 4]) {
      const count = sorted('whole').filter((each) => each === whole).length
      expect(Math.abs(count - 100), String(whole)).toBeLessThan(10)
    }
    expect(sorted('large').every((value) => Number.isInteger(value) && value >= 8 && value <= 512)).toBe(true)
    expect(Math.abs(sorted('large').filter((value) => value < 64).length - 200)).toBeLessThan(20)
    expect(Math.abs(drawn.filter(({ list }) => list === 'a').length - 200)).toBeLessThan(10)
    expect(drawn.every(({ one }) => one === 'x')).toBe(true)
    // Keys do not go together: of each quarter of one, every half of another has its share.
    const both = drawn.filter(({ wide, narrow }) => Number(wide) < 1e-3 && Number(narrow) < 0.75)
    expect(Math.abs(both.length - 100)).toBeLessThan(15)
  })

  test('are all different, and a longer draw begins as a shorter one', () => {
    const values = new Map<string, Values>([
      ['a', { from: 1, to: 3, isWhole: true }],
      ['b', ['x', 'y']],
    ])
    const all = sampleSettings(values, 6)
    expect(new Set(all.map(({ a, b }) => `${a} ${b}`)).size).toBe(6)
    expect(sampleSettings(values, 4)).toEqual(all.slice(0, 4))
    expect(() => sampleSettings(values, 7)).toThrow('samples: got 7, expected at most the 6 different settings')
  })
})
