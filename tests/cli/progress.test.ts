import { afterEach, describe, expect, test, vi } from 'vitest'
import { progressLine } from '../../src/cli/progress.ts'
import { Sparkline } from '../../src/cli/sparkline.ts'

function curveOf(values: readonly number[]): string {
  const curve = new Sparkline()
  for (const value of values) curve.add(value)
  return String(curve)
}

describe('a curve in a line of text', () => {
  test('goes from the least to the greatest, and leaves out what is no number', () => {
    expect(curveOf([])).toBe('')
    expect(curveOf([5])).toBe('▁')
    expect(curveOf([0, Number.NaN, 7, 3])).toBe('▁█▄')
    expect(curveOf([-1, Number.POSITIVE_INFINITY, -2])).toBe('█▁')
  })

  test('puts more values to a column where there are more than fit', () => {
    expect(curveOf(Array.from({ length: 14 }, (_, i) => i))).toBe('▁▂▂▃▃▄▄▅▅▆▆▇▇█')
    // 28 values in pairs: the same means but for half a step.
    expect(curveOf(Array.from({ length: 28 }, (_, i) => i))).toBe('▁▂▂▃▃▄▄▅▅▆▆▇▇█')
    // Two to a column from the fifteenth on: 0 … 13 in seven columns, then 100.
    expect(curveOf([...Array.from({ length: 14 }, (_, i) => i), 100])).toBe('▁▁▁▁▂▂▂█')
    expect(curveOf(Array.from({ length: 1000 }, (_, i) => i)).length).toBeLessThanOrEqual(14)
  })
})

/** What a terminal of so many columns gets, update by update. */
function written(columns: readonly number[], figures: readonly string[]): string[] {
  const said: string[] = []
  vi.spyOn(process.stderr, 'write').mockImplementation((text) => {
    said.push(String(text))
    return true
  })
  let now = 0
  vi.spyOn(performance, 'now').mockImplementation(() => (now += 1000))
  const [isTTY, before] = [process.stderr.isTTY, process.stderr.columns]
  try {
    Object.assign(process.stderr, { isTTY: true, columns: columns[0] })
    const progress = progressLine(1000, 'steps', false)
    for (const [i, width] of columns.entries()) {
      process.stderr.columns = width
      progress.update(100 * i, figures, i)
    }
  } finally {
    Object.assign(process.stderr, { isTTY, columns: before })
  }
  return said
}

describe('progress on a terminal', () => {
  afterEach(() => void vi.restoreAllMocks())

  test('is one line with the curve at its end', () => {
    const lines = written([80, 80, 80], ['return 20.0'])
    expect(lines[0]).toBe('\r\u001b[J0/1,000 steps  return 20.0  ▁')
    expect(lines[2]!.slice(4)).toMatch(/^200\/1,000 steps {2}return 20\.0 {2}\d+ s left {2}▁▅█$/)
  })

  test('is cut where the terminal ends, and takes away what a narrower one has wrapped', () => {
    const lines = written([80, 21, 21], ['return 20.0', 'x'.repeat(80)])
    const text = (line: string) => line.slice(line.indexOf('J') + 1)
    expect(lines.map((line) => text(line).length)).toEqual([79, 20, 20])
    // 79 characters are four lines of 21.
    expect(lines.map((line) => line.slice(0, line.indexOf('J') + 1))).toEqual([
      '\r\u001b[J',
      '\u001b[3A\r\u001b[J',
      '\r\u001b[J',
    ])
  })
})
