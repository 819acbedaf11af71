/** Curves as pictures: SVG that stands alone. */

/** A point of a curve, and what both axes show. */
export interface CurvePoint {
  readonly x: number
  readonly y: number
}
/** What the axes of a picture show. */
export interface CurveLabels {
  readonly x: string
  readonly y: string
}
/** One of several curves, with the name that stands at its end. */
export interface Curve {
  readonly name: string
  readonly points: readonly CurvePoint[]
}

/** Colors that are told apart on white, also by those who see fewer (Okabe and Ito 2008), in the order in which curves take them. */
const colors = ['#2f6f9f', '#d55e00', '#009e73', '#cc79a7', '#e69f00', '#56b4e9', '#000000']

/** The picture and, within it, the field that the axes enclose, in pixels. */
const picture = { width: 720, height: 420 }
const field = { left: 56, right: 700, top: 28, bottom: 376 }

/**
 * An SVG document of a line through the points, and of a second one through those of evaluations, if there are any. The threshold, where
 * there is one, is a dashed line.
 */
export function drawCurve(
  points: readonly CurvePoint[],
  labels: CurveLabels,
  threshold: number | null,
  evaluations: readonly CurvePoint[] = [],
): string {
  if (evaluations.length === 0) return draw([{ name: '', points }], labels, threshold)
  const curves = [
    { name: 'training', points },
    { name: 'evaluation', points: evaluations },
  ]
  return draw(curves, labels, threshold)
}

/** An SVG document of several lines, each in a color of its own. */
export function drawCurves(curves: readonly Curve[], labels: CurveLabels): string {
  return draw(curves, labels, null)
}

function draw(curves: readonly Curve[], labels: CurveLabels, threshold: number | null): string {
  const points = curves.flatMap((curve) => curve.points)
  const x = createScale(
    points.map((point) => point.x),
    [field.left, field.right],
  )
  const y = createScale(
    [...points.map((point) => point.y), ...(threshold === null ? [] : [threshold])],
    [field.bottom, field.top],
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
  const lines = curves.map(({ name, points }, i) => {
    const corners = points.map((point) => `${pixels(x.place(point.x))},${pixels(y.place(point.y))}`)
    const color = colors[i % colors.length]!
    const group =
      `<g aria-label="line" fill="none" stroke="${color}" stroke-width="2" stroke-linecap="round" ` +
      'stroke-linejoin="round">'
    // A line of one point has no length: its round caps show it.
    const path = corners.length === 0 ? '' : `<path d="M${corners.length === 1 ? `${corners}Z` : corners.join('L')}"/>`
    const legend = `<text x="${field.left + 12}" y="${field.top + 12 + 16 * i}" fill="${color}">${escapeText(name)}</text>`
    return `${group}${path}</g>${name === '' ? '' : legend}`
  })
  const rule = threshold === null ? '' : pixels(y.place(threshold))
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" width="${picture.width}" height="${picture.height}" ` +
      `viewBox="0 0 ${picture.width} ${picture.height}" font-family="system-ui, sans-serif" font-size="12">`,
    '<rect width="100%" height="100%" fill="white"/>',
    `<g aria-label="x-axis">${xTicks.join('')}`,
    `<text x="${field.right}" y="${picture.height - 8}" text-anchor="end">${escapeText(labels.x)} →</text></g>`,
    `<g aria-label="y-axis">${yTicks.join('')}<text x="8" y="16">↑ ${escapeText(labels.y)}</text></g>`,
    ...lines,
    threshold === null
      ? ''
      : `<g aria-label="rule"><line x1="${field.left}" x2="${field.right}" y1="${rule}" y2="${rule}" stroke="#b04a3a" stroke-dasharray="6 4"/></g>`,
    '</svg>',
    '',
  ].join('\n')
}

/**
 * Where a value stands between two pixels, and the round values (1, 2 or 5 times a power of ten) that mark the axis, about
 * six of them. Values that are all equal, or none, get an axis of length 1 around them.
 */
function createScale(values: readonly number[], [from, to]: readonly [number, number]) {
  let least = values.reduce((min, value) => Math.min(min, value), Number.POSITIVE_INFINITY)
  let most = values.reduce((max, value) => Math.max(max, value), Number.NEGATIVE_INFINITY)
  if (values.length === 0) [least, most] = [0, 1]
  else if (least === most) [least, most] = [least - 0.5, most + 0.5]
  const rough = (most - least) / 6
  const power = 10 ** Math.floor(Math.log10(rough))
  const step = [1, 2, 5, 10].map((digit) => digit * power).find((candidate) => candidate >= rough)!
  const first = Math.ceil(least / step)
  const count = Math.floor(most / step) - first + 1
  return {
    place: (value: number) => from + ((value - least) / (most - least)) * (to - from),
    ticks: Array.from({ length: count }, (_, i) => (first + i) * step),
  }
}

/** A number as an axis shows it: 150k, 0.25, −3. */
function shortNumber(value: number): string {
  const format = new Intl.NumberFormat('en-US', { notation: 'compact', maximumSignificantDigits: 4 })
  return format.format(value).replace('K', 'k').replace('-', '−')
}

function pixels(place: number): string {
  return String(Math.round(place * 100) / 100)
}

/** Markup in a name stays text. */
function escapeText(text: string): string {
  return text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;')
}
