import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { shellWord } from '../../src/base/shell.ts'
import { progressLine } from '../../src/cli/show/progress.ts'
import { Sparkline } from '../../src/cli/show/sparkline.ts'
import { hasColors } from '../../src/cli/show/terminal.ts'

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

/** What a terminal (or a file) of so many columns gets, update by update. */
function written(columns: readonly number[], figures: readonly string[], isTTY = true): string[] {
  const said: string[] = []
  vi.spyOn(process.stderr, 'write').mockImplementation((text) => {
    said.push(String(text))
    return true
  })
  let now = 0
  vi.spyOn(performance, 'now').mockImplementation(() => (now += 1000))
  const [wasTTY, before] = [process.stderr.isTTY, process.stderr.columns]
  try {
    Object.assign(process.stderr, { isTTY, columns: columns[0], hasColors: () => false })
    const progress = progressLine(1000, 'steps', false)
    for (const [i, width] of columns.entries()) {
      process.stderr.columns = width
      progress.update(100 * i, figures, i, { value: i === 0 ? 1000 : 2000, unit: 'steps/s' })
    }
    progress.end()
  } finally {
    Object.assign(process.stderr, { isTTY: wasTTY, columns: before })
  }
  return said
}

/** What stands in the terminal after a line was written, without codes. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is left out
const text = (line: string) => line.replaceAll(/\u001b\[\d*[a-zA-Z]|\r/g, '')

describe('progress on a terminal', () => {
  beforeEach(() => {
    vi.stubEnv('FORCE_COLOR', '')
    vi.stubEnv('NO_COLOR', '')
    vi.stubEnv('TERM', 'xterm')
  })
  afterEach(() => {
    vi.restoreAllMocks()
    vi.unstubAllEnvs()
  })

  test('is one line: percent, bar, the time that is left, figures, a smoothed rate and the curve', () => {
    const lines = written([100, 100, 100], ['return 20.0', 'stale 0: 100 %'])
    expect(text(lines[0]!)).toBe(`  0 % ${'░'.repeat(30)}  ETA …  return 20.0  1,000 steps/s  stale 0: 100 %  ▁`)
    const last = text(lines[2]!)
    expect(last).toMatch(/^ 20 % █{6}░{22,24} {2}ETA \d+ s +return 20\.0 {2}1,\d{3} steps\/s {2}stale 0: 100 % {2}▁▅█$/)
    expect(last).not.toContain('1,000 steps/s')
    expect(lines.at(-1)).toBe('\n')
  })

  test('fits the terminal: the curve goes first, then the last figures', () => {
    for (const columns of [120, 80, 60, 40, 20]) {
      const lines = written(Array(5).fill(columns), ['return 20.0', 'entropy 0.51', 'stale 0: 100 %'])
        .slice(0, -1)
        .map(text)
      vi.restoreAllMocks()
      for (const line of lines) expect(line.length, `${columns}: ${line}`).toBeLessThan(columns)
      expect(lines.every((line) => /^ +\d+ % [█░]{10,30}/.test(line))).toBe(columns >= 20)
    }
    expect(text(written([44, 44], ['return 20.0', 'x'.repeat(80)])[1]!)).toMatch(/ETA \d+ s +return 20\.0$/)
  })

  test('takes away what a terminal that became narrower has wrapped', () => {
    const lines = written([100, 30, 30], ['return 20.0'])
    const length = text(lines[0]!).length
    const up = Math.ceil(length / 30) - 1
    expect(lines[1]!.startsWith(`\u001b[${up}A\r\u001b[J`)).toBe(true)
    expect(lines[2]!.startsWith('\r\u001b[J')).toBe(true)
  })

  test('has colors as the environment says, and a terminal that can do nothing gets plain lines', () => {
    const isColored = (variables: Record<string, string>, isTTY = true) => {
      for (const [name, value] of Object.entries(variables)) vi.stubEnv(name, value)
      const stream = { isTTY, hasColors: () => true } as typeof process.stderr
      const answer = hasColors(stream)
      vi.stubEnv('FORCE_COLOR', '')
      vi.stubEnv('NO_COLOR', '')
      return answer
    }
    expect([isColored({}), isColored({}, false)]).toEqual([true, false])
    expect(isColored({ NO_COLOR: '1' })).toBe(false)
    expect(isColored({ FORCE_COLOR: '1' }, false)).toBe(true)
    expect(isColored({ FORCE_COLOR: '0' })).toBe(false)
    vi.stubEnv('TERM', 'dumb')
    expect(written([80, 80], ['return 20.0'])).toEqual([
      '0 %  0/1,000 steps  return 20.0  1,000 steps/s\n',
      expect.stringMatching(/^10 % {2}100\/1,000 steps {2}return 20\.0 {2}1,\d+ steps\/s {2}ETA \d+ s\n$/),
    ])
  })

  test('is a plain line now and then elsewhere', () => {
    const lines = written([80, 80, 80, 80], ['return 20.0'], false)
    expect(lines.every((line) => /^\d+ % {2}\d+\/1,000 steps {2}return 20\.0 .*\n$/.test(line))).toBe(true)
    expect(lines.length).toBeLessThanOrEqual(4)
  })
})

test('a word of a command line is quoted where a shell would take it for something else', () => {
  expect(['runs/a-1', 'my runs/a', "it's"].map(shellWord)).toEqual(['runs/a-1', "'my runs/a'", "'it'\\''s'"])
})
