/** Steps a second as a picture: both axes logarithmic, a line for each kind of work. */
import { writeFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import type { Figure } from '../measure.ts'

export interface Point {
  /** Lanes, or units of a hidden layer. */
  readonly at: number
  readonly what: string
  readonly figure: Figure
}

/** One color for one kind of work in all pictures. */
const KINDS = ['environment only', 'rollout', 'training, 1 thread', 'training, 2 threads']

/** Writes `docs/<file>`. Plot and its DOM are loaded here. */
export async function writePlot(file: string, points: readonly Point[], label: string, ticks: number[]): Promise<void> {
  const Plot = await import('@observablehq/plot')
  const { parseHTML } = await import('linkedom')
  const { document } = parseHTML('<html><body></body></html>')
  const data = points.map(({ at, what, figure: { median, min, max } }) => ({ at, what, median, min, max }))
  const names = (threads: boolean) =>
    Plot.text(
      data.filter(({ what }) => what.endsWith('threads') === threads),
      Plot.selectLast({
        ...{ x: 'at', y: 'median', z: 'what', text: 'what', fill: 'what' },
        ...{ textAnchor: 'start', dx: 8, dy: threads ? -7 : 4 },
      }),
    )
  const drawn = Plot.plot({
    document: document as unknown as Document,
    width: 720,
    height: 420,
    marginLeft: 64,
    marginRight: 130,
    marginBottom: 44,
    x: { type: 'log', label, axis: null },
    y: { type: 'log', label: '↑ steps a second (median; bars: min–max)', grid: true, tickFormat: 's' },
    color: { scheme: 'Dark2', domain: KINDS },
    marks: [
      Plot.axisX(ticks, { label, text: ticks.map((value) => value.toLocaleString('en')) }),
      Plot.line(data, { x: 'at', y: 'median', stroke: 'what', strokeWidth: 2 }),
      Plot.link(data, { x: 'at', y1: 'min', y2: 'max', stroke: 'what' }),
      Plot.dot(data, { x: 'at', y: 'median', fill: 'what', r: 3 }),
      names(false),
      names(true),
    ],
  })
  drawn.setAttribute('xmlns', 'http://www.w3.org/2000/svg')
  const background = document.createElement('rect')
  for (const [name, value] of Object.entries({ width: '100%', height: '100%', fill: 'white' })) {
    background.setAttribute(name, value)
  }
  drawn.insertBefore(background as unknown as Node, drawn.firstChild)
  const title = document.createElement('title')
  title.textContent = `Steps a second. ${label.replace(' →', '')}`
  drawn.insertBefore(title as unknown as Node, drawn.firstChild)
  const inDist = import.meta.url.includes('/dist/bench/')
  const path = fileURLToPath(new URL(`${inDist ? '../../../' : '../../'}docs/${file}`, import.meta.url))
  // Plot's style names a height twice, for browsers that know `intrinsic`.
  writeFileSync(path, `${drawn.outerHTML.replace('  height: intrinsic;\n', '')}\n`)
  console.log(`wrote ${path}`)
}
