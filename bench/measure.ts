/** Timing for benches: warmed, repeated, told as a median with its spread. */

export interface Timing {
  /** Seconds. */
  readonly median: number
  readonly min: number
  readonly max: number
  readonly repeats: number
}

/** Seconds of `work`, over `repeats` runs after `warmups`. */
export function time(work: () => void, { repeats = 7, warmups = 2 } = {}): Timing {
  for (let i = 0; i < warmups; i++) work()
  const seconds: number[] = []
  for (let i = 0; i < repeats; i++) {
    const start = performance.now()
    work()
    seconds.push((performance.now() - start) / 1000)
  }
  return summary(seconds)
}

export function summary(seconds: readonly number[]): Timing {
  const sorted = seconds.toSorted((a, b) => a - b)
  const middle = Math.floor(sorted.length / 2)
  const median = sorted.length % 2 === 1 ? sorted[middle]! : (sorted[middle - 1]! + sorted[middle]!) / 2
  return { median, min: sorted[0]!, max: sorted.at(-1)!, repeats: sorted.length }
}

/** One line of a bench: how many things happened in each timed run. */
export interface Line {
  readonly name: string
  readonly unit: string
  readonly perSecond: { readonly median: number; readonly min: number; readonly max: number }
  readonly milliseconds: { readonly median: number; readonly min: number; readonly max: number }
}

/** `count` things in `timing` seconds. */
export function line(name: string, unit: string, count: number, { median, min, max }: Timing): Line {
  const round = (value: number) => Number(value.toPrecision(5))
  return {
    name,
    unit,
    perSecond: { median: round(count / median), min: round(count / max), max: round(count / min) },
    milliseconds: { median: round(1000 * median), min: round(1000 * min), max: round(1000 * max) },
  }
}

/** Lines for people. */
export function printTable(lines: readonly Line[]): void {
  const width = Math.max(...lines.map(({ name }) => name.length))
  for (const { name, unit, perSecond, milliseconds } of lines) {
    const { median, min, max } = perSecond
    const rate = `${figure(median)} ${unit}/s (${figure(min)}–${figure(max)})`
    console.log(`${name.padEnd(width)}  ${rate.padEnd(40)} ${milliseconds.median} ms a run`)
  }
}

function figure(value: number): string {
  if (value >= 1e6) return `${(value / 1e6).toPrecision(3)}M`
  return value >= 1e3 ? `${(value / 1e3).toPrecision(3)}k` : value.toPrecision(3)
}

/** Throws unless `condition` holds: a bench is right before it is fast. */
export function check(condition: boolean, message: string): void {
  if (!condition) throw new Error(`the bench's check failed: ${message}`)
}
