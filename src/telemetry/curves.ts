/** Curves: smoothing, merging over seeds, and drawing as standalone SVG. The dashboard page uses this module too. */

/** Points in ascending order of x. */
export interface Points {
  readonly x: readonly number[]
  readonly y: readonly number[]
}

/** A point of a curve, with the values of both axes. */
export interface CurvePoint {
  readonly x: number
  readonly y: number
}
/** Labels of a picture's axes. */
export interface CurveLabels {
  readonly x: string
  readonly y: string
}
/** One of several curves, with a name for the legend; '' for a single curve. */
export interface Curve {
  readonly name: string
  readonly points: readonly CurvePoint[]
  /** Minimum and maximum at each point, over several seeds. */
  readonly band?: { readonly low: readonly number[]; readonly high: readonly number[] }
}

/** Further options of a picture of curves. */
export interface CurveOptions {
  /** Title above the picture. */
  readonly title?: string
  /** Value of a dashed line. */
  readonly threshold?: number | null
}

/** An exponential moving average: each value counts `weight` times as much as the next one. The start is corrected for bias. */
export function smooth(values: readonly number[], weight: number): number[] {
  let [sum, total] = [0, 0]
  return values.map((value) => {
    sum = weight * sum + value
    total = weight * total + 1
    return sum / total
  })
}

/** Value of a curve at x, interpolated between points; NaN outside. */
export function valueAt({ x, y }: Points, at: number): number {
  if (x.length === 0 || at < x[0]! || at > x.at(-1)!) return Number.NaN
  let [low, high] = [0, x.length - 1]
  while (high - low > 1) {
    const middle = (low + high) >> 1
    if (x[middle]! <= at) low = middle
    else high = middle
  }
  if (x[high] === at) return y[high]!
  const part = x[high] === x[low] ? 0 : (at - x[low]!) / (x[high]! - x[low]!)
  return y[low]! + part * (y[high]! - y[low]!)
}

/** Mean, minimum and maximum of several curves, at every x that is a point of one and within the range of all. */
export function together(curves: readonly Points[]) {
  const places = [...new Set(curves.flatMap(({ x }) => x))].sort((a, b) => a - b)
  const found: { x: number[]; y: number[]; low: number[]; high: number[] } = { x: [], y: [], low: [], high: [] }
  for (const place of places) {
    const values = curves.map((curve) => valueAt(curve, place))
    if (values.some(Number.isNaN)) continue
    found.x.push(place)
    found.y.push(values.reduce((sum, value) => sum + value, 0) / values.length)
    found.low.push(Math.min(...values))
    found.high.push(Math.max(...values))
  }
  return found
}

/** Colors of curves in order, distinguishable on white, also with color blindness (Okabe and Ito 2008). */
const colors = ['#2f6f9f', '#d55e00', '#009e73', '#cc79a7', '#e69f00', '#56b4e9', '#000000']

/** Sizes of panels, and margins of the axes' field, in pixels. */
const panel = { width: 720, narrowWidth: 260, height: 420 }
const margin = { left: 56, right: 20, top: 28, bottom: 44 }

/** Data before a curve, with its own axes. */
export interface EarlierCurve {
  readonly points: readonly CurvePoint[]
  readonly labels: CurveLabels
}

/**
 * Draws an SVG document of a curve, and of a second one through evaluations, if there are any. With `smoothing` above 0 the curve is a
 * moving average, with the raw points as a faint line. Data in `before` gets a panel on the left.
 */
export function drawCurve(
  points: readonly CurvePoint[],
  labels: CurveLabels,
  options: CurveOptions & {
    readonly evaluations?: readonly CurvePoint[]
    readonly smoothing?: number
    readonly before?: EarlierCurve | null
  } = {},
): string {
  const { evaluations = [], smoothing = 0, before = null, ...others } = options
  const names = evaluations.length === 0 ? ['', ''] : ['training', 'evaluation']
  const means = smooth(
    points.map(({ y }) => y),
    smoothing,
  )
  const line = { name: names[0]!, points: points.map(({ x }, i) => ({ x, y: means[i]! })) }
  const second = evaluations.length === 0 ? [] : [{ name: names[1]!, points: evaluations }]
  const first = before === null ? [] : [{ curves: [{ name: '', points: before.points }], labels: before.labels }]
  return draw([...first, { curves: [line, ...second], labels, ...others, faint: smoothing === 0 ? [] : points }])
}

/** Draws an SVG document of several curves in different colors. */
export function drawCurves(curves: readonly Curve[], labels: CurveLabels, options: CurveOptions = {}): string {
  return draw([{ curves, labels, ...options }])
}

interface Panel extends CurveOptions {
  readonly curves: readonly Curve[]
  readonly labels: CurveLabels
  readonly faint?: readonly CurvePoint[]
}

/** Draws panels side by side, the last one wide and the others narrow. */
function draw(panels: readonly Panel[]): string {
  const width = panel.width + (panels.length - 1) * panel.narrowWidth
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${panel.height}" ` +
      `viewBox="0 0 ${width} ${panel.height}" font-family="system-ui, sans-serif" font-size="12">`,
    '<rect width="100%" height="100%" fill="white"/>',
    ...panels.flatMap((each, i) => {
      const isLast = i === panels.length - 1
      return drawPanel(each, i * panel.narrowWidth, isLast ? panel.width : panel.narrowWidth)
    }),
    '</svg>',
    '',
  ].join('\n')
}

/** Draws a panel that begins at pixel `from`. */
function drawPanel(
  { curves, labels, title = '', threshold = null, faint = [] }: Panel,
  from: number,
  width: number,
): string[] {
  const field = {
    left: from + margin.left,
    right: from + width - margin.right,
    top: margin.top,
    bottom: panel.height - margin.bottom,
  }
  const points = [...curves.flatMap((curve) => curve.points), ...faint]
  const bands = curves.flatMap(({ band }) => (band === undefined ? [] : [...band.low, ...band.high]))
  const x = createScale(
    points.map((point) => point.x),
    [field.left, field.right],
    Math.ceil(width / 120),
  )
  const y = createScale(
    [...points.map((point) => point.y), ...bands, ...(threshold === null ? [] : [threshold])],
    [field.bottom, field.top],
    6,
  )
  const xTicks = x.ticks.map((tick) => {
    const at = pixels(x.place(tick))
    return `<text x="${at}" y="${field.bottom + 18}" text-anchor="middle">${shortNumber(tick)}</text>`
  })
  const yTicks = y.ticks.map((tick) => {
    const at = pixels(y.place(tick))
    return (
      `<line x1="${field.left}" x2="${field.right}" y1="${at}" y2="${at}" stroke="#e3e3e3"/>` +
      `<text x="${field.left - 8}" y="${at}" dy="0.32em" text-anchor="end">${shortNumber(tick)}</text>`
    )
  })
  const corner = (point: CurvePoint) => `${pixels(x.place(point.x))},${pixels(y.place(point.y))}`
  const behind =
    faint.length < 2
      ? ''
      : `<path fill="none" stroke="${colors[0]}" opacity="0.3" d="M${faint.map(corner).join('L')}"/>`
  const lines = curves.map(({ name, points, band }, i) => {
    const corners = points.map(corner)
    const color = colors[i % colors.length]!
    const group =
      `<g aria-label="line" fill="none" stroke="${color}" stroke-width="2" stroke-linecap="round" ` +
      'stroke-linejoin="round">'
    // A line through one point has no length: its round caps make it visible.
    const path = corners.length === 0 ? '' : `<path d="M${corners.length === 1 ? `${corners}Z` : corners.join('L')}"/>`
    const legend = `<text x="${field.left + 12}" y="${field.top + 12 + 16 * i}" fill="${color}">${escapeText(name)}</text>`
    return `${band === undefined ? '' : bandOf(points, band, color)}${group}${path}</g>${name === '' ? '' : legend}`
  })
  function bandOf(at: readonly CurvePoint[], { low, high }: NonNullable<Curve['band']>, color: string): string {
    const edge = (values: readonly number[]) => at.map((point, i) => corner({ x: point.x, y: values[i]! }))
    const outline = [...edge(high), ...edge(low).reverse()].join('L')
    return `<path aria-label="band" fill="${color}" opacity="0.2" d="M${outline}Z"/>`
  }
  const rule = threshold === null ? '' : pixels(y.place(threshold))
  return [
    `<g aria-label="x-axis">${xTicks.join('')}`,
    `<text x="${field.right}" y="${panel.height - 8}" text-anchor="end">${escapeText(labels.x)} →</text></g>`,
    `<g aria-label="y-axis">${yTicks.join('')}<text x="${from + 8}" y="16">↑ ${escapeText(labels.y)}</text></g>`,
    title === ''
      ? ''
      : `<text x="${field.right}" y="16" text-anchor="end" font-weight="600">${escapeText(title)}</text>`,
    behind,
    ...lines,
    threshold === null
      ? ''
      : `<g aria-label="rule"><line x1="${field.left}" x2="${field.right}" y1="${rule}" y2="${rule}" stroke="#b04a3a" stroke-dasharray="6 4"/>` +
        `<text x="${field.right}" y="${Number(rule) - 4}" text-anchor="end" fill="#b04a3a">${shortNumber(threshold)}</text></g>`,
  ]
}

/**
 * Maps values to pixels, with round axis marks (1, 2 or 5 times a power of ten), about as many as wanted. Without values, or with equal
 * ones, the axis has length 1.
 */
function createScale(values: readonly number[], [from, to]: readonly [number, number], wanted: number) {
  let least = values.reduce((min, value) => Math.min(min, value), Number.POSITIVE_INFINITY)
  let most = values.reduce((max, value) => Math.max(max, value), Number.NEGATIVE_INFINITY)
  if (values.length === 0) [least, most] = [0, 1]
  else if (least === most) [least, most] = [least - 0.5, most + 0.5]
  const rough = (most - least) / wanted
  const power = 10 ** Math.floor(Math.log10(rough))
  const step = [1, 2, 5, 10].map((digit) => digit * power).find((candidate) => candidate >= rough)!
  const first = Math.ceil(least / step)
  const count = Math.floor(most / step) - first + 1
  return {
    place: (value: number) => from + ((value - least) / (most - least)) * (to - from),
    ticks: Array.from({ length: count }, (_, i) => (first + i) * step),
  }
}

/** Formats a number for an axis: 150k, 0.25, −3. */
function shortNumber(value: number): string {
  const format = new Intl.NumberFormat('en-US', { notation: 'compact', maximumSignificantDigits: 4 })
  return format.format(value).replace('K', 'k').replace('-', '−')
}

function pixels(place: number): string {
  return String(Math.round(place * 100) / 100)
}

function escapeText(text: string): string {
  return text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;')
}
