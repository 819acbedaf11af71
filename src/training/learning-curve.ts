/** Learning curves as pictures. */

/** A point of a curve, and what both axes show. */
export interface CurvePoint {
  readonly x: number
  readonly y: number
}
export interface CurveLabels {
  readonly x: string
  readonly y: string
}

/** An SVG document of a line through the points. The threshold, where there is one, is a dashed line. Plot and its DOM are loaded here. */
export async function learningCurve(
  points: readonly CurvePoint[],
  labels: CurveLabels,
  threshold: number | null,
): Promise<string> {
  const Plot = await import('@observablehq/plot')
  const { parseHTML } = await import('linkedom')
  const { document } = parseHTML('<html><body></body></html>')
  const marks = [
    Plot.line(points, { x: 'x', y: 'y', stroke: '#2f6f9f', strokeWidth: 2 }),
    ...(threshold === null ? [] : [Plot.ruleY([threshold], { stroke: '#b04a3a', strokeDasharray: '6 4' })]),
  ]
  const figure = Plot.plot({
    document: document as unknown as Document,
    width: 720,
    height: 420,
    marginLeft: 56,
    marginBottom: 44,
    x: { label: `${labels.x} →`, tickFormat: 's' },
    y: { label: `↑ ${labels.y}`, grid: true },
    marks,
  })
  figure.setAttribute('xmlns', 'http://www.w3.org/2000/svg')
  const background = document.createElement('rect')
  for (const [name, value] of Object.entries({ width: '100%', height: '100%', fill: 'white' })) {
    background.setAttribute(name, value)
  }
  figure.insertBefore(background as unknown as Node, figure.firstChild)
  return `${figure.outerHTML}\n`
}
