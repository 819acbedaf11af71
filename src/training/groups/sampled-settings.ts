/** The varied values of a sweep: ranges, like `1e-4..1e-2`, and lists of values; each value has a place as a fraction of its range or list. */
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

/** Parses `1e-4..1e-2` for a key whose value is a number; null for other texts. @throws InputError for a wrong range. */
export function rangeOf(key: string, text: string, setting: Setting | undefined): ValueRange | null {
  const ends = /^(.+?)\.\.(.+)$/.exec(text)
  if (setting === undefined || ends === null) return null
  const [from, to] = [Number(ends[1]), Number(ends[2])]
  // A number that is found where none is given, like a learning rate, has the default null.
  const isNumber = typeof setting.default === 'number' || (setting.default === null && setting.accepts(to))
  if (!isNumber) return null
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
