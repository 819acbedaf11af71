/** What a chart draws of curves, and where. */
import type { Points } from '../../curves.ts'

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
