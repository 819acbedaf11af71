/** A chart on a canvas: lines, bands, and a cursor for mouse and keyboard. Drag to look closer; twice clicked, or Escape, shows all. */
import { element, shortNumber } from './elements.ts'
import { type Series, ticks, valueAt } from './series.ts'

/** Room around the field, in pixels. */
const EDGE = { left: 52, right: 8, top: 8, bottom: 22 }

/** A chart of one figure. */
export class Chart {
  readonly figure: HTMLElement
  readonly #canvas: HTMLCanvasElement
  readonly #said: HTMLElement
  #series: readonly Series[] = []
  /** What of x is shown; null: all. */
  #range: readonly [number, number] | null = null
  #cursor: number | null = null
  #dragFrom: number | null = null
  #isDue = false

  constructor(title: string) {
    this.#canvas = element('canvas', {
      ...{ tabindex: '0', role: 'img', 'aria-label': `${title}: arrow keys read values` },
      pointerdown: (event) => this.#onDown(event as PointerEvent),
      pointermove: (event) => this.#onMove(event as PointerEvent),
      pointerup: (event) => this.#onUp(event as PointerEvent),
      pointerleave: () => this.#point(null),
      dblclick: () => this.#show(null),
      keydown: (event) => this.#onKey(event as KeyboardEvent),
      blur: () => this.#point(null),
    })
    this.#said = element('p', { class: 'quiet', 'aria-live': 'polite' })
    this.figure = element('section', { class: 'chart' }, element('h3', {}, title), this.#canvas, this.#said)
    new ResizeObserver(() => this.draw()).observe(this.#canvas)
  }

  set series(series: readonly Series[]) {
    this.#series = series
    this.draw()
  }

  /** Draws when the browser next paints. */
  draw(): void {
    if (this.#isDue) return
    this.#isDue = true
    requestAnimationFrame(() => {
      this.#isDue = false
      this.#paint()
    })
  }

  #domain(): readonly [number, number] {
    if (this.#range !== null) return this.#range
    let [least, most] = [Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY]
    for (const { x } of this.#series) {
      if (x.length === 0) continue
      least = Math.min(least, x[0]!)
      most = Math.max(most, x.at(-1)!)
    }
    if (least > most) return [0, 1]
    return least === most ? [least - 0.5, most + 0.5] : [least, most]
  }

  #heights([from, to]: readonly [number, number]): readonly [number, number] {
    let [least, most] = [Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY]
    for (const { x, y, band } of this.#series) {
      for (let i = 0; i < x.length; i++) {
        if (x[i]! < from || x[i]! > to) continue
        least = Math.min(least, band?.low[i] ?? y[i]!)
        most = Math.max(most, band?.high[i] ?? y[i]!)
      }
    }
    if (least > most) return [0, 1]
    const room = least === most ? Math.abs(least) / 10 || 0.5 : (most - least) / 20
    return [least - room, most + room]
  }

  #paint(): void {
    const { clientWidth: width, clientHeight: height } = this.#canvas
    if (width === 0) return
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
    for (const tick of ticks(heights[0], heights[1], 5)) {
      pen.beginPath()
      pen.moveTo(EDGE.left, placeY(tick))
      pen.lineTo(width - EDGE.right, placeY(tick))
      pen.stroke()
      pen.fillText(shortNumber(tick), EDGE.left - 6, placeY(tick))
    }
    for (const tick of ticks(domain[0], domain[1], width / 90)) {
      const at = placeX(tick)
      pen.textAlign = at > width - EDGE.right - 20 ? 'right' : 'center' // Nothing is cut off at the edge.
      pen.fillText(shortNumber(tick), Math.min(at, width - 2), height - EDGE.bottom / 2)
    }
    pen.save()
    pen.beginPath()
    pen.rect(EDGE.left, 0, width - EDGE.left - EDGE.right, height - EDGE.bottom + 2)
    pen.clip()
    pen.lineJoin = 'round'
    for (const { x, y, raw, band, color } of this.#series) {
      if (band !== null) {
        pen.globalAlpha = 0.2
        pen.fillStyle = color
        pen.beginPath()
        for (let i = 0; i < x.length; i++) pen.lineTo(placeX(x[i]!), placeY(band.high[i]!))
        for (let i = x.length - 1; i >= 0; i--) pen.lineTo(placeX(x[i]!), placeY(band.low[i]!))
        pen.fill()
      }
      for (const [values, alpha, size] of [
        [raw, 0.25, 1],
        [y, 1, 1.6],
      ] as const) {
        if (values === null) continue
        pen.globalAlpha = alpha
        pen.strokeStyle = color
        pen.fillStyle = color
        pen.lineWidth = size
        pen.beginPath()
        for (let i = 0; i < x.length; i++) pen.lineTo(placeX(x[i]!), placeY(values[i]!))
        pen.stroke()
        if (x.length === 1) pen.fillRect(placeX(x[0]!) - 2, placeY(values[0]!) - 2, 4, 4)
      }
    }
    pen.globalAlpha = 1
    if (this.#cursor !== null) {
      pen.strokeStyle = ink!
      pen.lineWidth = 1
      pen.beginPath()
      pen.moveTo(placeX(this.#cursor), 0)
      pen.lineTo(placeX(this.#cursor), height)
      pen.stroke()
      if (this.#dragFrom !== null) {
        pen.globalAlpha = 0.12
        pen.fillStyle = ink!
        pen.fillRect(placeX(this.#dragFrom), 0, placeX(this.#cursor) - placeX(this.#dragFrom), height)
      }
    }
    pen.restore()
  }

  /** The x below the pointer. */
  #xAt({ clientX }: PointerEvent): number {
    const { left, width } = this.#canvas.getBoundingClientRect()
    const [from, to] = this.#domain()
    const part = (clientX - left - EDGE.left) / (width - EDGE.left - EDGE.right)
    return from + Math.min(1, Math.max(0, part)) * (to - from)
  }

  #onDown(event: PointerEvent): void {
    if (event.pointerType === 'touch') return // That scrolls.
    this.#dragFrom = this.#xAt(event)
    this.#canvas.setPointerCapture(event.pointerId)
  }

  #onMove(event: PointerEvent): void {
    this.#point(this.#xAt(event))
  }

  #onUp(event: PointerEvent): void {
    const [from, to] = [this.#dragFrom, this.#xAt(event)]
    this.#dragFrom = null
    const [least, most] = this.#domain()
    if (from !== null && Math.abs(to - from) > (most - least) / 50) this.#show([Math.min(from, to), Math.max(from, to)])
    else this.draw()
  }

  #onKey(event: KeyboardEvent): void {
    const [from, to] = this.#domain()
    const step = (to - from) / 50
    const moves: Readonly<Record<string, number>> = {
      ArrowLeft: -step,
      ArrowRight: step,
      Home: -Infinity,
      End: Infinity,
    }
    if (event.key === 'Escape') this.#show(null)
    else if (event.key === '+') this.#show([from + (to - from) / 4, to - (to - from) / 4])
    else if (Object.hasOwn(moves, event.key)) {
      this.#point(Math.min(to, Math.max(from, (this.#cursor ?? (from + to) / 2) + moves[event.key]!)))
    } else return
    event.preventDefault()
  }

  #show(range: readonly [number, number] | null): void {
    this.#range = range
    this.draw()
  }

  #point(x: number | null): void {
    this.#cursor = x
    if (x === null) this.#dragFrom = null
    const values = this.#series.flatMap((series) => {
      const value = x === null ? Number.NaN : valueAt(series, x)
      return Number.isNaN(value) ? [] : [`${series.name} ${shortNumber(value)}`]
    })
    this.#said.textContent = x === null ? '' : `${shortNumber(x)}: ${values.slice(0, 6).join(', ')}`
    this.draw()
  }
}
