/** The learning curve as a picture: mean return of the last 100 episodes against environment steps. */

export interface CurvePoint {
  readonly steps: number
  readonly episodeReturn: number
}

/** An SVG document. The threshold, where there is one, is a dashed line. Plot and its DOM are loaded here. */
export async function learningCurve(
  points: readonly CurvePoint[],
  environment: string,
  threshold: number | null,
): Promise<string> {
  const Plot = await import('@observablehq/plot')
  const { parseHTML } = await import('linkedom')
  const { document } = parseHTML('<html><body></body></html>')
  const marks = [
    Plot.line(points, { x: 'steps', y: 'episodeReturn', stroke: '#2f6f9f', strokeWidth: 2 }),
    ...(threshold === null ? [] : [Plot.ruleY([threshold], { stroke: '#b04a3a', strokeDasharray: '6 4' })]),
  ]
  const figure = Plot.plot({
    document: document as unknown as Document,
    width: 720,
    height: 420,
    marginLeft: 56,
    marginBottom: 44,
    x: { label: `${environment}: environment steps →`, tickFormat: 's' },
    y: { label: '↑ mean return of the last 100 episodes', grid: true },
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
