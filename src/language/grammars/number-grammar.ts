/** Grammars of JSON numbers between two bounds. */
import { InputError, show } from '../../base/errors.ts'
import { either } from './rules.ts'

/** A bound of a number. */
export interface Bound {
  readonly value: number
  readonly isExclusive: boolean
}

/** A decimal number ≥ 0, by its digits. */
interface Decimal {
  readonly whole: string
  readonly fraction: string
  readonly isExclusive: boolean
}

/** The most digits before and after the point: integers of this length are exact. */
const [WHOLE_MAX, FRACTION_MAX] = [15, 15]
const DIGITS = `[0-9]{0,${FRACTION_MAX}}`

/** Any integer, or any number. */
export const ANY_INTEGER = `"-"? ("0" | [1-9] [0-9]{0,${WHOLE_MAX - 1}})`
export const ANY_NUMBER = `${ANY_INTEGER} ("." [0-9]{1,${FRACTION_MAX}})? ([eE] [-+]? [0-9]{1,2})?`

/**
 * The grammar of the numbers from `lower` to `upper`, without exponents; null is no bound.
 * @throws InputError if a bound has more than 15 digits before or after the point, or no number lies between the
 * bounds.
 */
export function numberGrammar(isInteger: boolean, lower: Bound | null, upper: Bound | null, path: string): string {
  const alternatives = [
    ...above(isInteger, lower, upper, path),
    ...above(isInteger, negated(upper), negated(lower), path).map((each) => `"-" ${each}`),
  ]
  if (alternatives.length > 0) return either(alternatives)
  throw new InputError(path, `no number from ${lower?.value} to ${upper?.value}`, 'bounds with a number between them')
}

function negated(bound: Bound | null): Bound | null {
  return bound === null ? null : { ...bound, value: -bound.value }
}

/** Alternatives for the numbers between two bounds ≥ 0. */
function above(isInteger: boolean, lower: Bound | null, upper: Bound | null, path: string): string[] {
  if (upper !== null && (upper.value < 0 || (upper.value === 0 && upper.isExclusive))) return []
  const low = decimal(lower === null || lower.value < 0 ? { value: 0, isExclusive: false } : lower, path)
  const high = upper === null ? null : decimal(upper, path)
  const top = high?.whole ?? '9'.repeat(WHOLE_MAX)
  const order = compare(low.whole, top)
  if (order > 0) return []
  const fractions = (least: Decimal | null, most: Decimal | null): string[] => {
    if (!isInteger) return fractionsBetween(least, most)
    const isAbove = least === null || (Number(least.fraction) === 0 && !least.isExclusive)
    const isBelow = most === null || Number(most.fraction) > 0 || !most.isExclusive
    return isAbove && isBelow ? [''] : []
  }
  const with_ = (whole: string, tails: readonly string[]): string[] => {
    if (tails.length === 0) return []
    const tail = tails.length === 1 && tails[0] === '' ? '' : ` ${either(tails.map((each) => each || '""'))}`
    return [`${whole}${tail}`]
  }
  if (order === 0) return with_(`"${top}"`, fractions(low, high))
  const between = wholesBetween(next(low.whole), high === null ? top : previous(top))
  return [
    ...with_(`"${low.whole}"`, fractions(low, null)),
    ...between.flatMap((whole) => with_(whole, fractions(null, null))),
    ...(high === null ? [] : with_(`"${top}"`, fractions(null, high))),
  ]
}

function decimal({ value, isExclusive }: Bound, path: string): Decimal {
  const [, whole, fraction = ''] = /^(\d+)(?:\.(\d+))?$/.exec(String(Math.abs(value))) ?? []
  if (whole !== undefined && whole.length <= WHOLE_MAX && fraction.length <= FRACTION_MAX) {
    return { whole, fraction, isExclusive }
  }
  throw new InputError(path, show(value), `a bound of at most ${WHOLE_MAX} digits before the point, and after it`)
}

/** The possible fractions after the whole part, from `least` to `most`, including none; null is no bound. */
function fractionsBetween(least: Decimal | null, most: Decimal | null): string[] {
  if (least !== null && most !== null) return fractionsWithin(least, most)
  if (least !== null) return fractionsFrom(least.fraction, least.isExclusive).map(dotted)
  if (most !== null) return fractionsTo(most.fraction, most.isExclusive).map(dotted)
  return ['', `"." [0-9]{1,${FRACTION_MAX}}`]
}

/** Puts the point before a fraction that is not empty. */
function dotted(fraction: string): string {
  return fraction === '' ? '' : `"." ${fraction}`
}

/** Fractions of at least 0.`digits`. */
function fractionsFrom(digits: string, isExclusive: boolean): string[] {
  const trimmed = digits.replace(/0+$/, '')
  const alternatives = greater(trimmed)
  const prefix = trimmed === '' ? '' : `"${trimmed}" `
  alternatives.push(`${prefix}"0"{0,${FRACTION_MAX}} [1-9] ${DIGITS}`)
  if (!isExclusive) alternatives.push(trimmed === '' ? `"0"{1,${FRACTION_MAX}}` : `${prefix}"0"{0,${FRACTION_MAX}}`)
  if (!isExclusive && trimmed === '') alternatives.push('')
  return alternatives
}

/** Fractions of at most 0.`digits`. */
function fractionsTo(digits: string, isExclusive: boolean): string[] {
  const trimmed = digits.replace(/0+$/, '')
  if (trimmed === '') return isExclusive ? [] : ['', `"0"{1,${FRACTION_MAX}}`]
  const alternatives = ['', ...less(trimmed)]
  for (let i = 1; i < trimmed.length; i++) alternatives.push(`"${trimmed.slice(0, i)}"`)
  if (!isExclusive) alternatives.push(`"${trimmed}" "0"{0,${FRACTION_MAX}}`)
  return alternatives
}

/** Fractions that first differ from `digits` by a greater digit. */
function greater(digits: string): string[] {
  return differing(digits, (digit) => (digit < 9 ? `[${digit + 1}-9]` : null))
}

function less(digits: string): string[] {
  return differing(digits, (digit) => (digit > 0 ? `[0-${digit - 1}]` : null))
}

function differing(digits: string, classOf: (digit: number) => string | null): string[] {
  return Array.from(digits).flatMap((digit, i) => {
    const other = classOf(Number(digit))
    return other === null ? [] : [`${i === 0 ? '' : `"${digits.slice(0, i)}" `}${other} ${DIGITS}`]
  })
}

/** Fractions between two bounds that have the same whole part. */
function fractionsWithin(least: Decimal, most: Decimal): string[] {
  const length = Math.max(least.fraction.length, most.fraction.length)
  const [low, high] = [least.fraction.padEnd(length, '0'), most.fraction.padEnd(length, '0')]
  if (low > high || (low === high && (least.isExclusive || most.isExclusive))) return []
  let same = 0
  while (same < length && low[same] === high[same]) same++
  const prefix = low.slice(0, same)
  const begin = prefix === '' ? '' : `"${prefix}" `
  // The lower bound itself, with any number of zeros after it.
  const digits = low.replace(/0+$/, '')
  const bound = digits === '' ? ['', `"." "0"{1,${FRACTION_MAX}}`] : [`"." "${digits}" "0"{0,${FRACTION_MAX}}`]
  if (same === length) return bound
  const [a, b] = [Number(low[same]), Number(high[same])]
  const alternatives: string[] = []
  for (const rest of fractionsFrom(low.slice(same + 1), least.isExclusive))
    alternatives.push(`${begin}"${a}" ${rest || '""'}`)
  if (b - a > 1) alternatives.push(`${begin}[${a + 1}-${b - 1}] ${DIGITS}`)
  for (const rest of fractionsTo(high.slice(same + 1), most.isExclusive))
    alternatives.push(`${begin}"${b}" ${rest || '""'}`)
  const isLow = /^0*$/.test(low.slice(same)) && !least.isExclusive
  return [...alternatives.map(dotted), ...(isLow ? bound : [])]
}

/** Patterns for the whole numbers from `from` to `to`. */
function wholesBetween(from: string, to: string): string[] {
  if (compare(from, to) > 0) return []
  if (from.length < to.length) {
    const nines = '9'.repeat(from.length)
    return [...sameLength(from, nines), ...wholesBetween(next(nines), to)]
  }
  return sameLength(from, to)
}

/** The same for two numbers with equally many digits. */
function sameLength(from: string, to: string): string[] {
  if (from === to) return [`"${from}"`]
  const { length } = from
  if (length === 1) return [`[${from}-${to}]`]
  const tail = (count: number) => (count === 1 ? '[0-9]' : `[0-9]{${count},${count}}`)
  if (/^[0-9]0*$/.test(from) && /^[0-9]9*$/.test(to)) return [`[${from[0]}-${to[0]}] ${tail(length - 1)}`]
  const [a, b] = [from[0]!, to[0]!]
  const below = (first: string, list: string[]) => list.map((each) => `"${first}" ${each}`)
  if (a === b) return below(a, sameLength(from.slice(1), to.slice(1)))
  const middle = Number(b) - Number(a) > 1 ? [`[${Number(a) + 1}-${Number(b) - 1}] ${tail(length - 1)}`] : []
  return [
    ...below(a, sameLength(from.slice(1), '9'.repeat(length - 1))),
    ...middle,
    ...below(b, sameLength('0'.repeat(length - 1), to.slice(1))),
  ]
}

function compare(a: string, b: string): number {
  return a.length - b.length || (a < b ? -1 : a > b ? 1 : 0)
}

function next(whole: string): string {
  return String(BigInt(whole) + 1n)
}

function previous(whole: string): string {
  return String(BigInt(whole) - 1n)
}
