/** Series of a chart, and their reduction to pixels. */
import type { Points } from '../../curves.ts'

export type Range = readonly [number, number]

/** A curve in one color. */
export interface Series extends Points {
  readonly name: string
  readonly color: string
  /** The values before smoothing; null without smoothing. */
  readonly raw: readonly number[] | null
  /** Minimum and maximum at each x, over several runs; null for a single run. */
  readonly band: { readonly low: readonly number[]; readonly high: readonly number[] } | null
}

/**
 * Reduces a curve to the minimum and maximum of each column of pixels, in order; a column is `width` wide in x. Columns lie at multiples
 * of the width, so that they do not change while panning.
 */
export function columns({ x, y }: Points, width: number): Points {
  const seen: { x: number[]; y: number[] } = { x: [], y: [] }
  for (let i = 0, end = 0; i < x.length; i = end) {
    const column = Math.floor(x[i]! / width)
    let [least, most] = [i, i]
    for (end = i + 1; end < x.length && Math.floor(x[end]! / width) === column; end++) {
      if (y[end]! < y[least]!) least = end
      if (y[end]! > y[most]!) most = end
    }
    for (const at of new Set([Math.min(least, most), Math.max(least, most)])) {
      seen.x.push(x[at]!)
      seen.y.push(y[at]!)
    }
  }
  return seen
}

/** Whether a range of x is wide enough for pixels at different numbers, and not too wide for its width to be one. */
export function isDrawable([from, to]: Range): boolean {
  const width = to - from
  return width > 1e-300 && width > 1e-9 * Math.max(Math.abs(from), Math.abs(to)) && Number.isFinite(width)
}

/** Moves a range within limits. */
export function moved([from, to]: Range, by: number, [least, most]: Range): Range {
  const way = Math.min(Math.max(by, least - from), most - to)
  return [from + way, to + way]
}

/** Axis marks: 1, 2 or 5 times a power of ten, about `count` of them. */
export function ticks(least: number, most: number, count: number): number[] {
  const rough = (most - least) / Math.max(1, count)
  if (!(rough > 0)) return [least]
  const power = 10 ** Math.floor(Math.log10(rough))
  const step = [1, 2, 5, 10].map((digit) => digit * power).find((each) => each >= rough)!
  const first = Math.ceil(least / step)
  return Array.from({ length: Math.floor(most / step) - first + 1 }, (_, i) => (first + i) * step)
}

/** A series for a log scale: logarithms of its values to base 10. Points of which one is not above 0 are left out. */
export function onLog({ x, y, raw, band, ...others }: Series): Series {
  const places = [...x.keys()].filter((i) => y[i]! > 0 && (band === null || band.low[i]! > 0))
  const logs = (values: readonly number[]) => places.map((i) => Math.log10(Math.max(values[i]!, Number.MIN_VALUE)))
  return {
    ...others,
    x: places.map((i) => x[i]!),
    y: logs(y),
    raw: raw === null ? null : places.map((i) => Math.log10(raw[i]! > 0 ? raw[i]! : y[i]!)),
    band: band === null ? null : { low: logs(band.low), high: logs(band.high) },
  }
}

/** Marks of a log scale between two logarithms: powers of ten, with 2 and 5 times those where they are few, and others in a narrow range. */
export function logTicks(least: number, most: number): number[] {
  const digits = most - least > 3 ? [1] : [1, 2, 5]
  const step = Math.max(1, Math.ceil((most - least) / 8))
  const found: number[] = []
  for (let power = Math.floor(least); power <= most; power += step) {
    for (const digit of digits) {
      const tick = power + Math.log10(digit)
      if (tick >= least && tick <= most) found.push(tick)
    }
  }
  return found.length > 1 ? found : ticks(10 ** least, 10 ** most, 5).map(Math.log10)
}

/** The points of series as CSV: a line for each, with the band's edges where there is one. */
export function csvOf(series: readonly Series[]): string {
  const cell = (text: string) => (/[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text)
  const lines = series.flatMap(({ name, x, y, band }) =>
    x.map((at, i) => [cell(name), at, y[i], band?.low[i] ?? '', band?.high[i] ?? ''].join(',')),
  )
  return `${['series,x,y,low,high', ...lines].join('\n')}\n`
}
