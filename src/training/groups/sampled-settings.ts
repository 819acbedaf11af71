/** Settings drawn for a sweep (`samples=N`) from ranges, like `1e-4..1e-2`, and from lists of values. */
import { InputError, show } from '../../base/errors.ts'
import type { Setting } from '../../base/settings.ts'

/** A range of a number: on a logarithmic scale if it starts above 0 and ends at ten times its start or more. */
export interface ValueRange {
  readonly from: number
  readonly to: number
  readonly isWhole: boolean
}

/** The values of a key that a sweep tries. */
export type Values = readonly string[] | ValueRange

/** Significant digits of a drawn number. */
const DIGITS = 4

/** Draws for each sample, before the search for different settings gives up. */
export const DRAWS = 50

/** Parses `1e-4..1e-2` for a key whose value is a number; null for other texts. @throws InputError for a wrong range. */
export function rangeOf(key: string, text: string, setting: Setting | undefined): ValueRange | null {
  const ends = typeof setting?.default === 'number' ? /^(.+?)\.\.(.+)$/.exec(text) : null
  if (setting === undefined || ends === null) return null
  const [from, to] = [Number(ends[1]), Number(ends[2])]
  if (!(Number.isFinite(from) && from < to)) {
    throw new InputError(key, show(text), 'a range like 1e-4..1e-2, its start below its end')
  }
  if (!setting.accepts(from) || !setting.accepts(to)) {
    throw new InputError(key, show(text), `a range of ${setting.expected}`)
  }
  // A setting of whole numbers accepts no halves.
  const isWhole = !setting.accepts(Math.floor(from) + 0.5) && !setting.accepts(Math.ceil(to) - 0.5)
  return { from, to, isWhole }
}

export function isRange(values: Values): values is ValueRange {
  return 'from' in values
}

/** Whether a sweep can give the key several values. */
export function isSeveral(values: Values): boolean {
  return isRange(values) || values.length > 1
}

/**
 * Draws different settings: point n of an additive quasi-random sequence (Roberts 2018, R_d) has a coordinate for each key with several
 * values. The first settings of a longer draw are those of a shorter one.
 * @throws InputError if there are fewer different settings.
 */
export function sampleSettings(values: ReadonlyMap<string, Values>, count: number): Record<string, string>[] {
  const keys = [...values.keys()]
  const several = keys.filter((key) => isSeveral(values.get(key)!))
  const steps = stepsOf(several.length)
  const found = new Map<string, Record<string, string>>()
  for (let n = 1; found.size < count && n <= DRAWS * count; n++) {
    const setting = Object.fromEntries(
      keys.map((key) => {
        const i = several.indexOf(key)
        return [key, valueAt(values.get(key)!, i < 0 ? 0 : (0.5 + n * steps[i]!) % 1)]
      }),
    )
    found.set(JSON.stringify(setting), setting)
  }
  if (found.size === count) return [...found.values()]
  throw new InputError('samples', String(count), `at most the ${found.size} different settings of these values`)
}

/** The steps of R_d: powers of 1/φ, where φ^(d+1) = φ + 1. */
function stepsOf(dimensions: number): number[] {
  let phi = 2
  for (let i = 0; i < 60; i++) phi = (1 + phi) ** (1 / (dimensions + 1))
  return Array.from({ length: dimensions }, (_, i) => phi ** -(i + 1))
}

/** The value at a fraction in [0, 1) of the values. */
export function valueAt(values: Values, at: number): string {
  if (!isRange(values)) return values[Math.floor(at * values.length)]!
  const { from, to, isWhole } = values
  if (isWhole && !isLogarithmic(values)) return String(from + Math.floor(at * (to - from + 1)))
  const drawn = isLogarithmic(values) ? from * (to / from) ** at : from + at * (to - from)
  const rounded = isWhole ? Math.round(drawn) : Number(drawn.toPrecision(DIGITS))
  return String(Math.min(Math.max(rounded, from), to))
}

function isLogarithmic({ from, to }: ValueRange): boolean {
  return from > 0 && to >= 10 * from
}

/** The fraction at which `valueAt` gives this value: of a list or whole numbers the middle of its part. */
export function fractionOf(values: Values, value: string): number {
  if (!isRange(values)) return (values.indexOf(value) + 0.5) / values.length
  const { from, to, isWhole } = values
  if (isWhole && !isLogarithmic(values)) return (Number(value) - from + 0.5) / (to - from + 1)
  if (isLogarithmic(values)) return Math.log(Number(value) / from) / Math.log(to / from)
  return (Number(value) - from) / (to - from)
}
