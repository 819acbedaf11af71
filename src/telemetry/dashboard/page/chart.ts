/**
 * A chart on a canvas: lines, bands, and a cursor for mouse and keyboard. Drag to zoom in. When zoomed, drag with Shift or press Shift
 * and the arrow keys to pan; double-click or press Escape to show all. Linked charts share the visible range and the cursor.
 */
import { drawCurves, type Points, valueAt } from '../../curves.ts'
import { colored, element, save, say, shortNumber } from './elements.ts'
import { apart, type Mark, markButton } from './marks.ts'
import { columns, csvOf, isDrawable, logTicks, moved, onLog, type Range, type Series, ticks } from './series.ts'

/** Margins of the field, in pixels. */
const EDGE = { left: 52, right: 8, top: 8, bottom: 36 }
/** Series that the legend names. */
const MAX_NAMED = 8

/** What charts share: the visible range of x (null: all), the place of the cursor, the title of x, and whether y is on a log scale. */
export class Linked {
  readonly #charts = new Set<Chart>()
  readonly #onRange: () => void
  #range: Range | null = null
  #cursor: number | null = null
  #isLog = false
  xTitle = ''
  /** Whether someone drags the visible range: then charts draw curves beside it too, and only move them. */
  isPanning = false

  /** `onRange` is called when someone has zoomed or panned. */
  constructor(onRange: () => void = () => {}) {
    this.#onRange = onRange
  }

  add(chart: Chart): void {
    this.#charts.add(chart)
  }

  get range(): Range | null {
    return this.#range
  }

  set range(range: Range | null) {
    this.#range = range
    this.#onRange()
    this.#draw()
  }

  get cursor(): number | null {
    return this.#cursor
  }

  set cursor(cursor: number | null) {
    if (cursor === this.#cursor) return
    this.#cursor = cursor
    this.#draw()
  }

  get isLog(): boolean {
    return this.#isLog
  }

  set isLog(isLog: boolean) {
    this.#isLog = isLog
    this.#draw()
  }

  #draw(): void {
    for (const chart of this.#charts) chart.draw()
  }
}

/** Drawn curves, reused in frames in which only they or the cursor move. */
interface Layer {
  readonly canvas: HTMLCanvasElement
  readonly series: readonly Series[]
  /** Its range of x, which may be larger than the visible one. */
  readonly range: Range
  readonly heights: Range
  /** Height of the field in pixels of the canvas, and the width of a pixel in units of x. */
  readonly height: number
  readonly xPerPixel: number
}

export class Chart {
  readonly figure: HTMLElement
  /** Whether it is in sight; otherwise it is not drawn. */
  isInSight = true
  readonly #title: string
  readonly #linked: Linked
  readonly #canvas: HTMLCanvasElement
  readonly #said: HTMLElement
  readonly #legend: HTMLElement
  readonly #marked = element('div', { class: 'marks' })
  /** Marks by the name of their series, with their buttons. */
  #marks: readonly { readonly series: string; readonly mark: Mark; readonly button: HTMLElement }[] = []
  /** The series as given, and as drawn: on a log scale, logarithms. */
  #given: readonly Series[] = []
  #series: readonly Series[] = []
  #isLog = false
  /** While panning: the start position, and the ranges of x and y at the start. */
  #pan: { readonly clientX: number; readonly range: Range; readonly heights: Range } | null = null
  #layer: Layer | null = null
  #dragFrom: number | null = null
  #isDue = false

  constructor(title: string, linked = new Linked()) {
    this.#title = title
    this.#linked = linked
    linked.add(this)
    this.#canvas = element('canvas', {
      ...{ tabindex: '0', role: 'img', 'aria-label': `${title}: arrow keys read values` },
      pointerdown: (event) => this.#onDown(event as PointerEvent),
      pointermove: (event) => this.#onMove(event as PointerEvent),
      pointerup: (event) => this.#onUp(event as PointerEvent),
      pointerleave: () => this.#point(null),
      dblclick: () => this.#show(null),
      keydown: (event) => this.#onKey(event as KeyboardEvent),
      // Only the chart that has the focus speaks; the cursor moves in all.
      focus: () => this.#said.setAttribute('aria-live', 'polite'),
      blur: () => {
        this.#said.removeAttribute('aria-live')
        this.#point(null)
      },
    })
    this.#said = element('p', { class: 'quiet' })
    this.#legend = element('div', { class: 'legend' })
    const saving = element(
      'select',
      { 'aria-label': `save ${title} as`, change: ({ target }) => this.#save(target as HTMLSelectElement) },
      ...['save', 'SVG', 'PNG', 'CSV'].map((words) => element('option', {}, words)),
    )
    const head = element('div', { class: 'head' }, element('h3', {}, title), saving)
    const plot = element('div', { class: 'plot' }, this.#canvas, this.#marked)
    this.figure = element('section', { class: 'chart' }, head, plot, this.#said, this.#legend)
    new ResizeObserver(() => this.draw()).observe(this.#canvas)
  }

  set series(series: readonly Series[]) {
    this.#given = series
    this.#place()
    const named = series.slice(0, MAX_NAMED).map(({ name, color }) => {
      return element('span', {}, colored(element('span', { class: 'swatch' }), color), name)
    })
    const numOthers = series.length - named.length
    this.#legend.replaceChildren(...named, numOthers === 0 ? '' : `and ${numOthers} more`)
    this.draw()
  }

  /** Marks on the curves, by the name of the series; `open` shows what a mark stands for. */
  setMarks(marks: readonly { readonly series: string; readonly mark: Mark }[], open: (mark: Mark) => void): void {
    const key = (all: readonly { readonly series: string; readonly mark: Mark }[]) =>
      JSON.stringify(all.map(({ series, mark }) => [series, mark]))
    if (key(marks) === key(this.#marks)) return
    this.#marks = marks.map((each) => ({ ...each, button: markButton(each.mark, open) }))
    this.draw()
  }

  /** Puts the marks that are in sight, and not too near one another, on their curves. */
  #placeMarks(domain: Range, placeX: (x: number) => number, placeY: (y: number) => number): void {
    const inSight = this.#marks.filter(({ mark }) => mark.moment.x >= domain[0] && mark.moment.x <= domain[1])
    const shown = apart(inSight, ({ mark }) => placeX(mark.moment.x)).reverse()
    for (const { mark, series, button } of shown) {
      const { x } = mark.moment
      const curve = this.#series.find(({ name }) => name === series)
      const end = curve?.x.at(-1)
      const y = curve === undefined || end === undefined ? Number.NaN : valueAt(curve, Math.min(end, x))
      button.style.left = `${placeX(x)}px`
      button.style.top = `${Number.isNaN(y) ? EDGE.top : placeY(y)}px`
    }
    const isSame =
      this.#marked.children.length === shown.length &&
      shown.every(({ button }, i) => this.#marked.children[i] === button)
    if (!isSame) this.#marked.replaceChildren(...shown.map(({ button }) => button))
  }

  #place(): void {
    this.#isLog = this.#linked.isLog
    this.#series = this.#isLog ? this.#given.map(onLog) : this.#given
  }

  /** Schedules a draw at the browser's next paint. */
  draw(): void {
    if (this.#isDue || !this.isInSight) return
    this.#isDue = true
    requestAnimationFrame(() => {
      this.#isDue = false
      this.#paint()
      this.#say()
    })
  }

  #domain(): Range {
    return this.#linked.range ?? this.#all()
  }

  #all(): Range {
    let [least, most] = [Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY]
    for (const { x } of this.#series) {
      if (x.length === 0) continue
      least = Math.min(least, x[0]!)
      most = Math.max(most, x.at(-1)!)
    }
    if (least > most) return [0, 1]
    return least === most ? [least - 0.5, most + 0.5] : [least, most]
  }

  #heights([from, to]: Range): Range {
    if (this.#pan !== null) return this.#pan.heights
    let [least, most] = [Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY]
    for (const { x, y, raw, band } of this.#series) {
      for (let i = 0; i < x.length; i++) {
        if (x[i]! < from || x[i]! > to) continue
        const [low, high] = band === null ? [raw?.[i] ?? y[i]!, y[i]!] : [band.low[i]!, band.high[i]!]
        least = Math.min(least, low, high)
        most = Math.max(most, low, high)
      }
    }
    if (least > most) return [0, 1]
    const room = least === most ? Math.abs(least) / 10 || 0.5 : (most - least) / 20
    return [least - room, most + room]
  }

  #paint(): void {
    const { clientWidth: width, clientHeight: height } = this.#canvas
    if (width === 0) return
    if (this.#isLog !== this.#linked.isLog) this.#place()
    const ratio = window.devicePixelRatio || 1
    this.#canvas.width = Math.round(width * ratio)
    this.#canvas.height = Math.round(height * ratio)
    const pen = this.#canvas.getContext('2d')!
    pen.scale(ratio, ratio)
    const looks = getComputedStyle(this.#canvas)
    const [grid, quiet, ink] = ['--grid', '--quiet', '--ink'].map((name) => looks.getPropertyValue(name).trim())
    const domain = this.#domain()
    const heights = this.#heights(domain)
    const placeX = (x: number) =>
      EDGE.left + ((x - domain[0]) / (domain[1] - domain[0])) * (width - EDGE.left - EDGE.right)
    const placeY = (y: number) =>
      height - EDGE.bottom - ((y - heights[0]) / (heights[1] - heights[0])) * (height - EDGE.top - EDGE.bottom)
    pen.font = '11px system-ui, sans-serif'
    pen.fillStyle = quiet!
    pen.strokeStyle = grid!
    pen.textBaseline = 'middle'
    pen.textAlign = 'right'
    for (const tick of this.#isLog ? logTicks(...heights) : ticks(heights[0], heights[1], 5)) {
      pen.beginPath()
      pen.moveTo(EDGE.left, placeY(tick))
      pen.lineTo(width - EDGE.right, placeY(tick))
      pen.stroke()
      pen.fillText(shortNumber(this.#isLog ? 10 ** tick : tick), EDGE.left - 6, placeY(tick))
    }
    for (const tick of ticks(domain[0], domain[1], width / 90)) {
      const at = placeX(tick)
      pen.textAlign = at > width - EDGE.right - 20 ? 'right' : 'center' // Keeps the label within the canvas.
      pen.fillText(shortNumber(tick), Math.min(at, width - 2), height - EDGE.bottom + 11)
    }
    pen.textAlign = 'right'
    pen.fillText(this.#linked.xTitle, width - EDGE.right, height - 7)
    pen.save()
    pen.beginPath()
    pen.rect(EDGE.left, 0, width - EDGE.left - EDGE.right, height - EDGE.bottom + 2)
    pen.clip()
    const field = { width: width - EDGE.left - EDGE.right, height: height - EDGE.bottom + 2 }
    const layer = this.#drawn(domain, heights, field, ratio)
    const offset = (layer.range[0] - domain[0]) / layer.xPerPixel
    pen.drawImage(layer.canvas, EDGE.left + offset / ratio, 0, layer.canvas.width / ratio, field.height)
    this.#placeMarks(domain, placeX, placeY)
    const { cursor } = this.#linked
    if (cursor !== null) {
      pen.strokeStyle = ink!
      pen.lineWidth = 1
      pen.beginPath()
      pen.moveTo(placeX(cursor), 0)
      pen.lineTo(placeX(cursor), height)
      pen.stroke()
      if (this.#dragFrom !== null) {
        pen.globalAlpha = 0.12
        pen.fillStyle = ink!
        pen.fillRect(placeX(this.#dragFrom), 0, placeX(cursor) - placeX(this.#dragFrom), height)
      }
    }
    pen.restore()
  }

  /** The curves for a range of x, redrawn only if the last layer does not contain it. */
  #drawn(domain: Range, heights: Range, field: { width: number; height: number }, ratio: number): Layer {
    const [columnsShown, height] = [Math.round(field.width * ratio), Math.round(field.height * ratio)]
    const span = domain[1] - domain[0]
    const xPerPixel = span / columnsShown
    const last = this.#layer
    const isThere =
      last !== null &&
      last.series === this.#series &&
      last.height === height &&
      Math.abs(last.xPerPixel / xPerPixel - 1) < 1e-9 &&
      last.heights.every((value, i) => value === heights[i]) &&
      last.range[0] <= domain[0] &&
      last.range[1] >= domain[1]
    if (isThere) return last
    const beside = this.#linked.isPanning ? span : 0
    const range: Range = [domain[0] - beside, domain[1] + beside]
    const canvas = element('canvas')
    canvas.width = Math.round((range[1] - range[0]) / xPerPixel)
    canvas.height = height
    const top = EDGE.top * ratio
    const bottom = height - 2 * ratio
    const place = {
      x: (x: number) => (x - range[0]) / xPerPixel,
      y: (y: number) => bottom - ((y - heights[0]) / (heights[1] - heights[0])) * (bottom - top),
    }
    const pen = canvas.getContext('2d')!
    for (const series of this.#series) drawSeries(pen, series, { range, xPerPixel, ratio, place })
    this.#layer = { canvas, series: this.#series, range, heights, height, xPerPixel }
    return this.#layer
  }

  #xAt({ clientX }: PointerEvent): number {
    const { left, width } = this.#canvas.getBoundingClientRect()
    const [from, to] = this.#domain()
    const part = (clientX - left - EDGE.left) / (width - EDGE.left - EDGE.right)
    return from + Math.min(1, Math.max(0, part)) * (to - from)
  }

  #onDown(event: PointerEvent): void {
    if (event.pointerType === 'touch') return // Touch scrolls the page.
    const { clientX, shiftKey } = event
    const { range } = this.#linked
    if (!shiftKey) this.#dragFrom = this.#xAt(event)
    else if (range !== null) {
      this.#pan = { clientX, range, heights: this.#heights(range) }
      this.#linked.isPanning = true
    }
    this.#canvas.setPointerCapture(event.pointerId)
  }

  #onMove(event: PointerEvent): void {
    if (this.#pan === null) {
      this.#point(this.#xAt(event))
      return
    }
    const { clientX, range } = this.#pan
    const part = (clientX - event.clientX) / (this.#canvas.clientWidth - EDGE.left - EDGE.right)
    this.#show(moved(range, part * (range[1] - range[0]), this.#all()))
  }

  #onUp(event: PointerEvent): void {
    if (this.#pan !== null) {
      this.#pan = null
      this.#linked.isPanning = false
      this.draw()
      return
    }
    const [from, to] = [this.#dragFrom, this.#xAt(event)]
    this.#dragFrom = null
    const [least, most] = this.#domain()
    if (from !== null && Math.abs(to - from) > (most - least) / 50) this.#show([Math.min(from, to), Math.max(from, to)])
    else this.draw()
  }

  #onKey(event: KeyboardEvent): void {
    const [from, to] = this.#domain()
    const step = (to - from) / 50
    const { range, cursor } = this.#linked
    if (event.shiftKey && range !== null && /^Arrow(Left|Right)$/.test(event.key)) {
      this.#show(moved(range, (event.key === 'ArrowLeft' ? -5 : 5) * step, this.#all()))
      event.preventDefault()
      return
    }
    const moves: Readonly<Record<string, number>> = {
      ArrowLeft: -step,
      ArrowRight: step,
      Home: -Infinity,
      End: Infinity,
    }
    if (event.key === 'Escape') this.#show(null)
    else if (event.key === '+') this.#show([from + (to - from) / 4, to - (to - from) / 4])
    else if (Object.hasOwn(moves, event.key)) {
      this.#point(Math.min(to, Math.max(from, (cursor ?? (from + to) / 2) + moves[event.key]!)))
    } else return
    event.preventDefault()
  }

  #show(range: Range | null): void {
    if (range === null || isDrawable(range)) this.#linked.range = range
  }

  #point(x: number | null): void {
    if (x === null) {
      this.#dragFrom = null
      if (this.#pan !== null) this.#linked.isPanning = false
      this.#pan = null
    }
    const isSame = x === this.#linked.cursor
    this.#linked.cursor = x
    if (isSame) this.draw()
  }

  /** Says the values at the cursor, wherever it was put, and what is left out. */
  #say(): void {
    const { cursor } = this.#linked
    const values = this.#given.flatMap((series) => {
      const value = cursor === null ? Number.NaN : valueAt(series, cursor)
      return Number.isNaN(value) ? [] : [`${series.name} ${shortNumber(value)}`]
    })
    const omitted = this.#isLog && this.#given.some(({ y }) => y.some((value) => value <= 0))
    const words = cursor === null ? [] : [`${shortNumber(cursor)}: ${values.slice(0, MAX_NAMED).join(', ')}`]
    if (omitted) words.push('values of 0 and less are not drawn')
    const text = words.join('; ')
    say(this.#said, text)
  }

  #save(choice: HTMLSelectElement): void {
    const { value } = choice
    choice.selectedIndex = 0
    const name = `${this.#title.replaceAll(/[^\w.-]+/g, '-')}.${value.toLowerCase()}`
    if (value === 'CSV') save(name, new Blob([csvOf(this.#given)], { type: 'text/csv' }))
    if (value === 'SVG') {
      const curves = this.#given.map(({ name, x, y, band }) => {
        return { name, points: x.map((at, i) => ({ x: at, y: y[i]! })), ...(band !== null && { band }) }
      })
      const picture = drawCurves(curves, { x: this.#linked.xTitle, y: this.#title })
      save(name, new Blob([picture], { type: 'image/svg+xml' }))
    }
    if (value === 'PNG') {
      const canvas = element('canvas')
      Object.assign(canvas, { width: this.#canvas.width, height: this.#canvas.height })
      const pen = canvas.getContext('2d')!
      pen.fillStyle = getComputedStyle(document.body).backgroundColor
      pen.fillRect(0, 0, canvas.width, canvas.height)
      pen.drawImage(this.#canvas, 0, 0)
      canvas.toBlob((picture) => picture !== null && save(name, picture))
    }
  }
}

/** Geometry of a layer's curves. */
interface Field {
  readonly range: Range
  readonly xPerPixel: number
  readonly ratio: number
  readonly place: { x(x: number): number; y(y: number): number }
}

/** Draws the part of a series within a layer's range. */
function drawSeries(pen: CanvasRenderingContext2D, { x, y, raw, band, color }: Series, field: Field): void {
  const { range, xPerPixel, ratio, place } = field
  // Includes a point on either side, so that lines reach the edge.
  const first = Math.max(0, x.findIndex((value) => value >= range[0]) - 1)
  const beyond = x.findIndex((value) => value > range[1])
  const end = beyond === -1 ? x.length : beyond + 1
  const part = (values: readonly number[]): Points =>
    columns({ x: x.slice(first, end), y: values.slice(first, end) }, xPerPixel)
  const draw = (points: Points, isBackward = false): void => {
    for (let i = 0; i < points.x.length; i++) {
      const at = isBackward ? points.x.length - 1 - i : i
      pen.lineTo(place.x(points.x[at]!), place.y(points.y[at]!))
    }
  }
  pen.lineJoin = 'round'
  pen.strokeStyle = color
  pen.fillStyle = color
  if (band !== null) {
    pen.globalAlpha = 0.2
    pen.beginPath()
    draw(part(band.high))
    draw(part(band.low), true)
    pen.fill()
  }
  for (const [values, alpha, size] of [
    [raw, 0.25, 1],
    [y, 1, 1.6],
  ] as const) {
    if (values === null) continue
    pen.globalAlpha = alpha
    pen.lineWidth = size * ratio
    pen.beginPath()
    draw(part(values))
    pen.stroke()
    if (x.length === 1) pen.fillRect(place.x(x[0]!) - 2 * ratio, place.y(values[0]!) - 2 * ratio, 4 * ratio, 4 * ratio)
  }
}
