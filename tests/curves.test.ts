import { describe, expect, test } from 'vitest'
import { drawCurve, drawCurves } from '../src/telemetry/curves.ts'
import { parseSvg } from './support/svg.ts'

const labels = { x: 'CartPole-v1: environment steps', y: 'mean return of the last 100 episodes' }
const points = [
  { x: 100, y: 10 },
  { x: 200, y: 30 },
  { x: 400, y: 20 },
]

/** The corners of the line that shows the data, in pixels. */
function corners(svg: string): number[][] {
  const path = parseSvg(svg).querySelector('[aria-label=line] path')
  return [...(path?.getAttribute('d') ?? '').matchAll(/(-?[\d.]+),(-?[\d.]+)/g)].map(([, x, y]) => [+x!, +y!])
}

describe('a curve', () => {
  test('is a line through every point, to scale, with larger returns higher up', () => {
    const [a, b, c] = corners(drawCurve(points, labels))
    expect((b![0]! - a![0]!) * 2).toBeCloseTo(c![0]! - b![0]!, 1)
    expect((a![1]! - b![1]!) / 2).toBeCloseTo(c![1]! - b![1]!, 1)
    // From one edge of the field that the axes enclose to the other.
    expect([a, b, c!.slice(0, 1)]).toEqual([[56, 376], [expect.any(Number), 28], [700]])
    expect(b![1]!).toBeLessThan(a![1]!)
  })

  test('has a dashed line at the threshold, within the picture, and none where there is no threshold', () => {
    const rule = (threshold: number | null) =>
      parseSvg(drawCurve(points, labels, { threshold })).querySelector('[aria-label=rule] line')
    const line = rule(475)!
    expect(Number(line.getAttribute('y1'))).toBeGreaterThanOrEqual(0)
    expect(Number(line.getAttribute('y1'))).toBeLessThan(420)
    expect(rule(null)).toBeNull()
  })

  test('names its axes, and markup in an environment name stays text', () => {
    const svg = drawCurve(points, { ...labels, x: 'A <b>&"B": environment steps' })
    expect(svg).not.toContain('<b>')
    expect(parseSvg(svg).textContent).toContain('A <b>&"B": environment steps')
    expect(parseSvg(svg).textContent).toContain('mean return of the last 100 episodes')
  })

  test.each([
    ['no point', 0],
    ['one point', 1],
  ])('is a whole picture, threshold included, with %s', (_, count) => {
    const svg = drawCurve(points.slice(0, count), labels, { threshold: 475 })
    expect(corners(svg)).toHaveLength(count)
    expect(parseSvg(svg).querySelector('[aria-label=rule] line')).not.toBeNull()
    expect(svg).not.toContain('NaN')
  })

  test('stands alone: its namespace is given and its background is white', () => {
    const svg = drawCurve(points, labels, { threshold: 475 })
    expect(svg).toMatch(/^<svg [^>]*xmlns="http:\/\/www\.w3\.org\/2000\/svg"/)
    expect(parseSvg(svg).querySelector('svg > rect')?.getAttribute('fill')).toBe('white')
  })

  test.each([
    [
      [0, 6],
      [0, 1.2],
      ['0', '1', '2', '3', '4', '5', '6'],
      ['0', '0.2', '0.4', '0.6', '0.8', '1'], // 6 × 0.2 is a little more than 1.2.
    ],
    [
      [0, 150_000],
      [-30, 0],
      ['0', '50k', '100k', '150k'],
      ['−30', '−25', '−20', '−15', '−10', '−5', '0'],
    ],
    [
      [1_000_000, 13_000_000],
      [0.5, 0.5],
      ['2M', '4M', '6M', '8M', '10M', '12M'],
      ['0', '0.2', '0.4', '0.6', '0.8', '1'],
    ],
  ])('has ticks at round numbers, about six, where those numbers are: %j by %j', (x, y, expectedX, expectedY) => {
    const svg = drawCurve(
      [0, 1].map((i) => ({ x: x[i]!, y: y[i]! })),
      labels,
    )
    const ticks = (axis: string) =>
      [...parseSvg(svg).querySelectorAll(`[aria-label=${axis}-axis] text`)].map((tick) => tick.textContent).slice(0, -1)
    expect(ticks('x')).toEqual(expectedX)
    expect(ticks('y')).toEqual(expectedY)
  })
})

describe('a curve with more', () => {
  test('has a title, and the value of its threshold', () => {
    const svg = drawCurve(points, labels, { title: 'by <ppo>, seed 7', threshold: 475 })
    expect(parseSvg(svg).textContent).toContain('by <ppo>, seed 7')
    expect(parseSvg(svg).querySelector('[aria-label=rule] text')!.textContent).toBe('475')
  })

  test('is smoothed where told, with its points behind it', () => {
    const path = (smoothing: number) => parseSvg(drawCurve(points, labels, { smoothing })).querySelectorAll('path')
    expect(path(0)).toHaveLength(1)
    const [faint, line] = path(0.5)
    expect(faint!.getAttribute('d')).toBe(path(0)[0]!.getAttribute('d'))
    expect(corners(drawCurve(points, labels, { smoothing: 0.5 }))[1]![1]).toBeGreaterThan(28) // 30 is drawn towards 10.
    expect(line!.getAttribute('d')).not.toBe(faint!.getAttribute('d'))
  })

  test('has what came before at its left, on axes of its own', () => {
    const before = { points: [0, 1, 2].map((x) => ({ x, y: 5 - x })), labels: { x: 'supervised', y: 'loss' } }
    const svg = parseSvg(drawCurve(points, labels, { before, title: 'all' }))
    const paths = [...svg.querySelectorAll('[aria-label=line] path')].map((path) => path.getAttribute('d'))
    expect(paths[0]).toBe('M56,28L148,202L240,376')
    // The same line as without it, further to the right.
    const alone = corners(drawCurve(points, labels, { title: 'all' }))
    expect(paths[1]).toBe(`M${alone.map(([x, y]) => `${+(x! + 260).toFixed(2)},${y}`).join('L')}`)
    for (const text of ['supervised', 'loss', 'all', labels.x]) expect(svg.textContent).toContain(text)
    expect(svg.getAttribute('viewBox')).toBe('0 0 980 420')
  })

  test('has evaluations beside it, each with its name', () => {
    const svg = parseSvg(drawCurve(points, labels, { evaluations: [{ x: 200, y: 15 }] }))
    expect(svg.querySelectorAll('[aria-label=line]')).toHaveLength(2)
    for (const name of ['training', 'evaluation']) expect(svg.textContent).toContain(name)
  })

  test('has a band from the least to the greatest, which is within the picture', () => {
    const band = { low: [0, 20, 10], high: [20, 60, 30] }
    const path = parseSvg(drawCurves([{ name: 'ppo', points, band }], labels)).querySelector('[aria-label=band]')!
    const found = [...path.getAttribute('d')!.matchAll(/([\d.]+),([\d.]+)/g)].map(([, x, y]) => [+x!, +y!])
    expect(found).toHaveLength(6)
    expect(found[1]![1]).toBe(28) // 60 is the greatest of all,
    expect(found[5]).toEqual([56, 376]) // and 0, at the first point, the least.
  })
})

describe('several curves', () => {
  const curves = [
    { name: 'maxStaleness 0', points },
    { name: 'a <b>', points: points.map(({ x, y }) => ({ x, y: y / 2 })) },
  ]

  test('share their axes, and each has a color and a name of its own', () => {
    const svg = drawCurves(curves, labels)
    const groups = [...parseSvg(svg).querySelectorAll('[aria-label=line]')]
    expect(groups).toHaveLength(2)
    expect(new Set(groups.map((group) => group.getAttribute('stroke'))).size).toBe(2)
    const heights = groups.map((group) =>
      Number(
        group
          .querySelector('path')!
          .getAttribute('d')!
          .match(/,([\d.]+)L/)![1],
      ),
    )
    expect(heights[1]!).toBeGreaterThan(heights[0]!) // Half as much is lower down.
    expect(parseSvg(svg).textContent).toContain('maxStaleness 0')
    expect(svg).not.toContain('<b>')
  })
})
