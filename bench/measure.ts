/** Measuring: runs in turns, told as a median with its spread, and as ratios of runs that were neighbors in time. */

/** Median, smallest and largest of repeated runs. */
export interface Spread {
  readonly median: number
  readonly min: number
  readonly max: number
  readonly repeats: number
}

/** What the project asks of a figure: at least `atLeast`, at most `atMost`. */
export interface Wanted {
  readonly atLeast?: number
  readonly atMost?: number
}

/** How many times as fast as another, run by run. */
export interface Ratio extends Spread {
  readonly to: string
  readonly wanted?: Wanted
}

/** One line of a bench. */
export interface Figure extends Spread {
  readonly name: string
  readonly unit: string
  readonly wanted?: Wanted
  readonly ratios?: readonly Ratio[]
}

export function spread(values: readonly number[]): Spread {
  const sorted = values.toSorted((a, b) => a - b)
  const middle = Math.floor(sorted.length / 2)
  const median = sorted.length % 2 === 1 ? sorted[middle]! : (sorted[middle - 1]! + sorted[middle]!) / 2
  return { median: round(median), min: round(sorted[0]!), max: round(sorted.at(-1)!), repeats: sorted.length }
}

function round(value: number): number {
  return Number(value.toPrecision(5))
}

/** A figure of repeated runs. */
export function figure(name: string, unit: string, values: readonly number[], wanted?: Wanted): Figure {
  return { name, unit, ...spread(values), ...(wanted && { wanted }) }
}

/** How much faster `ours` was than `theirs`, both in seconds, run by run: neighbors share what the machine was doing. */
export function ratio(to: string, theirs: readonly number[], ours: readonly number[], wanted?: Wanted): Ratio {
  return { to, ...spread(ours.map((seconds, i) => theirs[i]! / seconds)), ...(wanted && { wanted }) }
}

/** `count` things in each of `seconds`. */
export function rates(count: number, seconds: readonly number[]): number[] {
  return seconds.map((value) => count / value)
}

/** Seconds of `work`. */
export function secondsOf(work: () => void): number {
  const start = performance.now()
  work()
  return (performance.now() - start) / 1000
}

/** One competitor: runs once and says how many seconds it took. */
export type Runner = () => number | Promise<number>

/** Runs the competitors in turns (A B A B …), after `warmups` rounds that do not count. Seconds of each. */
export async function interleave<Name extends string>(
  runners: Readonly<Record<Name, Runner>>,
  { repeats = 7, warmups = 1 } = {},
): Promise<Record<Name, number[]>> {
  const entries = Object.entries(runners) as [Name, Runner][]
  const seconds = Object.fromEntries(entries.map(([name]) => [name, []])) as unknown as Record<Name, number[]>
  for (let round = -warmups; round < repeats; round++) {
    for (const [name, run] of entries) {
      const taken = await run()
      if (round >= 0) seconds[name].push(taken)
    }
  }
  return seconds
}

/** Throws unless `condition` holds: a bench is right before it is fast. */
export function check(condition: boolean, message: string): void {
  if (!condition) throw new Error(`the bench's check failed: ${message}`)
}

/** Throws unless the two numbers are close, in parts of the larger of 1 and the second. */
export function checkClose(got: number, wanted: number, tolerance: number, what: string): void {
  check(Math.abs(got - wanted) <= tolerance * Math.max(1, Math.abs(wanted)), `${what} is ${got}, not ${wanted}`)
}
