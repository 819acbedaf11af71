/** Curves of runs: smoothed, and put together where they differ in nothing but their seed. */

/** Points in the order of x. */
export interface Points {
  readonly x: readonly number[]
  readonly y: readonly number[]
}

/** From one x to another. */
export type Range = readonly [number, number]

/** What a chart draws in one color. */
export interface Series extends Points {
  readonly name: string
  readonly color: string
  /** As it was before it was smoothed; null where it was not. */
  readonly raw: readonly number[] | null
  /** Least and greatest at each x, of several runs; null of one. */
  readonly band: { readonly low: readonly number[]; readonly high: readonly number[] } | null
}

/** A moving mean: each value counts `weight` times as much as the one after it. The first values are not drawn to 0. */
export function smooth(values: readonly number[], weight: number): number[] {
  let [sum, total] = [0, 0]
  return values.map((value) => {
    sum = weight * sum + value
    total = weight * total + 1
    return sum / total
  })
}

/**
 * What of a curve is seen where all points within `width` of x are one column of pixels: the least and the greatest of each column, in
 * their order. The columns lie at multiples of the width, so that they stay where they are when what is shown moves.
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

/** Where a curve is at an x between two of its points; NaN beside it. */
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

/** Mean, least and greatest of several curves, at the places where one of them has a point and all of them are. */
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

/** A range that is moved, and stays within what there is. */
export function moved([from, to]: Range, by: number, [least, most]: Range): Range {
  const way = Math.min(Math.max(by, least - from), most - to)
  return [from + way, to + way]
}

/** Values that mark an axis: 1, 2 or 5 times a power of ten, about `count` of them. */
export function ticks(least: number, most: number, count: number): number[] {
  const rough = (most - least) / Math.max(1, count)
  if (!(rough > 0)) return [least]
  const power = 10 ** Math.floor(Math.log10(rough))
  const step = [1, 2, 5, 10].map((digit) => digit * power).find((each) => each >= rough)!
  const first = Math.ceil(least / step)
  return Array.from({ length: Math.floor(most / step) - first + 1 }, (_, i) => (first + i) * step)
}
