/**
 * Decides whether two parsed expressions are equal. First exactly: as rationals, or with variables as rationals at
 * several rational points; two different rational functions agree at all of them with negligible probability (Schwartz
 * 1980, Zippel 1979). Roots, powers and functions are compared in complex arithmetic, to 12 digits, or 9 with
 * variables. A point at which an expression has no real value counts only if there are no better ones.
 */
import {
  bitsOf,
  isSame,
  MAX_BITS,
  over,
  parseDecimal,
  plus,
  type Rational,
  rational,
  spend,
  TooLarge,
  times,
} from './rational.ts'

/** Numbers, symbols, and functions of them: `['Add', { num: '1.5' }, 'x']`. */
export type Expression = number | string | { readonly num: string } | readonly [string, ...Expression[]]

/** Thrown for an expression without a known meaning. */
export class Unreadable extends Error {}

const MAX_FACTORIAL = 5000

type Point = ReadonlyMap<string, Rational>

/** The head and arguments of a function; undefined for numbers and symbols. */
function applied(expression: Expression): { head: string; args: readonly Expression[] } | undefined {
  if (!Array.isArray(expression)) return undefined
  return { head: expression[0] as string, args: expression.slice(1) as Expression[] }
}

function symbolOf(expression: Expression): string | undefined {
  return typeof expression === 'string' ? expression : undefined
}

function literalOf(expression: Expression): Rational | null {
  if (typeof expression === 'number') return parseDecimal(String(expression))
  return typeof expression === 'object' && 'num' in expression ? parseDecimal(expression.num) : null
}

const CONSTANTS: Readonly<Record<string, readonly [number, number]>> = {
  Pi: [Math.PI, 0],
  e: [Math.E, 0],
  i: [0, 1],
  PositiveInfinity: [Number.POSITIVE_INFINITY, 0],
}

function variablesOf(expression: Expression, found = new Set<string>()): Set<string> {
  const symbol = symbolOf(expression)
  if (symbol !== undefined) {
    if (!Object.hasOwn(CONSTANTS, symbol)) found.add(symbol)
  } else for (const argument of applied(expression)?.args ?? []) variablesOf(argument, found)
  return found
}

/** `1\frac{1}{2}` is parsed as a product of 1 and 1/2, but means their sum. */
function isMixedNumber(args: readonly Expression[]): boolean {
  if (args.length !== 2 || applied(args[1]!)?.head !== 'Divide') return false
  const parts = [args[0]!, ...applied(args[1]!)!.args].map(literalOf)
  return parts.every((part) => part !== null && part.denominator === 1n)
}

function wholeOf(value: Rational | null | undefined): bigint | null {
  return value?.denominator === 1n ? value.numerator : null
}

function power(base: Rational, exponent: Rational): Rational | null {
  const whole = wholeOf(exponent)
  if (whole === null) return root(base, exponent.denominator, exponent.numerator)
  const size = whole < 0n ? -whole : whole
  if (isSame(base, { numerator: 1n, denominator: 1n })) return base
  if (base.numerator === 0n) return whole > 0n ? base : whole === 0n ? rational(1n) : null
  if (base.denominator === 1n && base.numerator === -1n) return rational(size % 2n === 0n ? 1n : -1n)
  const bits = BigInt(Math.max(bitsOf(base.numerator), bitsOf(base.denominator)))
  if (size * bits > MAX_BITS) throw new TooLarge('number', 'a power is too large to be computed')
  const [top, bottom] = [base.numerator ** size, base.denominator ** size]
  return whole < 0n ? rational(bottom, top) : rational(top, bottom)
}

/** base^(numerator / index), if the root is rational and positive. */
function root(base: Rational, index: bigint, numerator = 1n): Rational | null {
  if (base.numerator < 0n || index <= 0n || index > 64n) return null
  const [top, bottom] = [wholeRoot(base.numerator, index), wholeRoot(base.denominator, index)]
  return top === null || bottom === null ? null : power({ numerator: top, denominator: bottom }, rational(numerator)!)
}

/** The root of an integer ≥ 0 if it is an integer, by Newton's method from above. */
function wholeRoot(value: bigint, index: bigint): bigint | null {
  const bits = bitsOf(value)
  spend(bits + Number(index)) // Some 50 steps, with products of this many bits.
  let root = 1n << (BigInt(bits) / index + 1n)
  for (;;) {
    const next = ((index - 1n) * root + value / root ** (index - 1n)) / index
    if (next >= root) return root ** index === value ? root : null
    root = next
  }
}

function factorial(value: bigint | null): bigint | null {
  if (value === null || value < 0n) return null
  if (value > MAX_FACTORIAL) throw new TooLarge('number', 'a factorial is too large to be computed')
  spend(Number(value))
  let product = 1n
  for (let k = 2n; k <= value; k++) product *= k
  return product
}

function binomial(n: bigint | null, k: bigint | null): Rational | null {
  if (n === null || k === null || n < 0n) return null
  if (k < 0n || k > n) return rational(0n)
  const [all, left, right] = [factorial(n)!, factorial(k)!, factorial(n - k)!]
  return rational(all, left * right)
}

/** The exact value at a point; null if there is none or it cannot be computed. */
function exactValue(expression: Expression, point: Point): Rational | null {
  spend(1)
  const literal = literalOf(expression)
  if (literal !== null) return literal
  const symbol = symbolOf(expression)
  if (symbol !== undefined) return point.get(symbol) ?? null
  const { head, args } = applied(expression) ?? { head: '', args: [] }
  const values: Rational[] = []
  for (const argument of args) {
    const value = exactValue(argument, point)
    if (value === null) return null
    values.push(value)
  }
  return Object.hasOwn(EXACT, head) ? EXACT[head]!(values as [Rational, Rational], args) : null
}

const MINUS_ONE = rational(-1n)!
const minus = (value: Rational): Rational => times(value, MINUS_ONE)

/** Functions whose values are exact, of exact values; `args` are the expressions that have these. */
const EXACT: Readonly<
  Record<string, (values: readonly [Rational, Rational], args: readonly Expression[]) => Rational | null>
> = {
  Delimiter: ([a]) => a,
  Add: (values) => values.reduce(plus),
  Subtract: ([a, b]) => plus(a, minus(b)),
  Negate: ([a]) => minus(a),
  InvisibleOperator: (values, args) => {
    const [a, b] = values
    return isMixedNumber(args) ? plus(a, a.numerator < 0n ? minus(b) : b) : values.reduce(times)
  },
  Multiply: (values) => values.reduce(times),
  Divide: ([a, b]) => over(a, b),
  Rational: ([a, b]) => over(a, b),
  Power: ([a, b]) => power(a, b),
  Sqrt: ([a]) => root(a, 2n),
  Root: ([a, b]) => (wholeOf(b) === null ? null : root(a, wholeOf(b)!)),
  Abs: ([a]) => (a.numerator < 0n ? minus(a) : a),
  Factorial: ([a]) => {
    const product = factorial(wholeOf(a))
    return product === null ? null : rational(product)
  },
  Binomial: ([n, k]) => binomial(wholeOf(n), wholeOf(k)),
  Floor: ([a]) => rational(floor(a)),
  Ceil: ([a]) => rational(-floor(minus(a))),
}

function floor({ numerator, denominator }: Rational): bigint {
  const quotient = numerator / denominator
  return numerator % denominator < 0n ? quotient - 1n : quotient
}

type Complex = readonly [number, number]

function multiply([a, b]: Complex, [c, d]: Complex): Complex {
  return b === 0 && d === 0 ? [a * c, 0] : [a * c - b * d, a * d + b * c]
}

function divide([a, b]: Complex, [c, d]: Complex): Complex {
  if (b === 0 && d === 0) return [a / c, 0]
  const size = c * c + d * d
  return [(a * c + b * d) / size, (b * c - a * d) / size]
}

function exponential([a, b]: Complex): Complex {
  const size = Math.exp(a)
  return b === 0 ? [size, 0] : [size * Math.cos(b), size * Math.sin(b)]
}

/** The principal logarithm; of a negative number with the angle π, even if its imaginary part came out as −0. */
function logarithm([a, b]: Complex): Complex {
  return [Math.log(Math.hypot(a, b)), b === 0 ? (a >= 0 ? 0 : Math.PI) : Math.atan2(b, a)]
}

/** a^b: real for real numbers if possible, otherwise exp(b log a). */
function raise(a: Complex, b: Complex): Complex {
  if (b[1] === 0 && a[1] === 0 && (a[0] >= 0 || Number.isInteger(b[0]))) return [a[0] ** b[0], 0]
  if (a[0] === 0 && a[1] === 0) return [b[0] > 0 ? 0 : Number.NaN, 0]
  return exponential(multiply(b, logarithm(a)))
}

const REAL: Readonly<Record<string, (x: number) => number>> = {
  Sin: Math.sin,
  Cos: Math.cos,
  Tan: Math.tan,
  Cot: (x) => 1 / Math.tan(x),
  Sec: (x) => 1 / Math.cos(x),
  Csc: (x) => 1 / Math.sin(x),
  Arcsin: Math.asin,
  Arccos: Math.acos,
  Arctan: Math.atan,
  Sinh: Math.sinh,
  Cosh: Math.cosh,
  Tanh: Math.tanh,
  Floor: Math.floor,
  Ceil: Math.ceil,
  Degrees: (x) => (x * Math.PI) / 180,
}

/** The value at a point in complex arithmetic. Sets `seen.isComplex` if a real argument left the real numbers. */
function numericValue(expression: Expression, point: Point, seen: { isComplex: boolean }): Complex {
  spend(1)
  const literal = literalOf(expression)
  if (literal !== null) return [toNumber(literal), 0]
  const symbol = symbolOf(expression)
  if (symbol !== undefined) {
    if (Object.hasOwn(CONSTANTS, symbol)) return CONSTANTS[symbol]!
    const value = point.get(symbol)
    if (value === undefined) throw new Unreadable(`no value for ${symbol}`)
    return [toNumber(value), 0]
  }
  const { head, args } = applied(expression) ?? { head: JSON.stringify(expression), args: [] }
  const values = args.map((argument) => numericValue(argument, point, seen))
  const result = functionValue(head, args, values, seen)
  // An infinity computed from finite numbers has no value (1/0, ln 0), or an unknown one (e to the 1000).
  const isMade = values.every((value) => value.every(Number.isFinite)) && !result.every(Number.isFinite)
  return isMade ? [Number.NaN, Number.NaN] : result
}

function functionValue(
  head: string,
  args: readonly Expression[],
  values: readonly Complex[],
  seen: { isComplex: boolean },
): Complex {
  const [a] = values
  if (a === undefined) throw new Unreadable(`unknown function ${head}`)
  if (Object.hasOwn(REAL, head) && values.length === 1) {
    if (a[1] !== 0) throw new Unreadable(`${head} of a complex number is not supported`)
    return [REAL[head]!(a[0]), 0]
  }
  if (!Object.hasOwn(COMPLEX, head)) {
    const isExactOnly = head === 'Factorial' || head === 'Binomial'
    throw new Unreadable(isExactOnly ? `${head} of these arguments is not supported` : `unknown function ${head}`)
  }
  const result = COMPLEX[head]!(values as [Complex, Complex], args)
  const isReal = values.every(([, imaginary]) => imaginary === 0)
  if (LEAVING.includes(head) && result[1] !== 0 && isReal) seen.isComplex = true
  return result
}

/** Functions whose value may be complex where their arguments are real. */
const LEAVING = ['Power', 'Sqrt', 'Root', 'Ln', 'Log']

/** Functions of complex values; `args` are the expressions that have these. */
const COMPLEX: Readonly<Record<string, (values: readonly [Complex, Complex], args: readonly Expression[]) => Complex>> =
  {
    Delimiter: ([a]) => a,
    Add: (values) => values.reduce((sum, value) => [sum[0] + value[0], sum[1] + value[1]]),
    Subtract: ([a, b]) => [a[0] - b[0], a[1] - b[1]],
    Negate: ([a]) => [-a[0], -a[1]],
    InvisibleOperator: (values, args) => {
      const [a, b] = values
      return isMixedNumber(args) ? [a[0] + (a[0] < 0 ? -b[0] : b[0]), 0] : values.reduce(multiply)
    },
    Multiply: (values) => values.reduce(multiply),
    Divide: ([a, b]) => divide(a, b),
    Rational: ([a, b]) => divide(a, b),
    Power: ([a, b]) => raise(a, b),
    Exp: ([a]) => exponential(a),
    Sqrt: ([a]) => raise(a, [0.5, 0]),
    Root: ([a, b]) => {
      const isOddOfNegative = a[1] === 0 && a[0] < 0 && b[1] === 0 && b[0] % 2 === 1 // Such a root is real.
      return isOddOfNegative ? [-((-a[0]) ** (1 / b[0])), 0] : raise(a, divide([1, 0], b))
    },
    Ln: ([a, base]) => (base === undefined ? logarithm(a) : divide(logarithm(a), logarithm(base))),
    Log: ([a, base = [10, 0]]) => divide(logarithm(a), logarithm(base)),
    Abs: ([a]) => [Math.hypot(a[0], a[1]), 0],
  }

/** The nearest double of a rational whose parts may be too large for one. */
function toNumber({ numerator, denominator }: Rational): number {
  const direct = Number(numerator) / Number(denominator)
  if (Number.isFinite(direct)) return direct
  const shift = BigInt(Math.max(0, Math.min(numerator.toString(2).length, denominator.toString(2).length) - 100))
  return Number(numerator >> shift) / Number(denominator >> shift)
}

/** Point `index` of these variables: the first four have positive values, the others alternating signs. */
function pointOf(variables: readonly string[], index: number): Point {
  const point = new Map<string, Rational>()
  for (const [j, name] of variables.entries()) {
    const numerator = BigInt(1009 + ((index * 7919 + j * 104729) % 9001)) // Primes: no two values have a simple ratio.
    const isNegative = index >= 4 && ((index >> (j % 4)) & 1) === 0
    point.set(name, rational(isNegative ? -numerator : numerator, 3001n)!)
  }
  return point
}

const NUM_POINTS = 12

/** Compares values at a point; null if neither has one. `isReal`: both are real. */
function compareAt(a: Expression, b: Expression, point: Point): { isEqual: boolean; isReal: boolean } | null {
  const [exactA, exactB] = [exactValue(a, point), exactValue(b, point)]
  if (exactA !== null && exactB !== null) return { isEqual: isSame(exactA, exactB), isReal: true }
  const seen = { isComplex: false }
  const [p, q] = [numericValue(a, point, seen), numericValue(b, point, seen)]
  const isReal = !seen.isComplex
  const hasNone = [p, q].map((value) => value.some(Number.isNaN))
  if (hasNone[0] && hasNone[1]) return null
  if (hasNone[0] || hasNone[1]) return { isEqual: false, isReal }
  if ([...p, ...q].some((part) => !Number.isFinite(part))) return { isEqual: p[0] === q[0] && p[1] === q[1], isReal }
  const size = Math.max(Math.hypot(...p), Math.hypot(...q))
  // Relative error is undefined at 0: sin π is 1.2e-16.
  const hasZero = exactA?.numerator === 0n || exactB?.numerator === 0n
  const tolerance = point.size > 0 ? 1e-9 * (size + 1) : 1e-12 * (hasZero ? 1 : size)
  return { isEqual: Math.hypot(p[0] - q[0], p[1] - q[1]) <= tolerance, isReal }
}

/** Whether expressions are equal for all variables; null without values. @throws Unreadable, TooLarge */
export function areEqual(a: Expression, b: Expression): boolean | null {
  const variables = [...variablesOf(b, variablesOf(a))].sort()
  if (variables.length === 0) return compareAt(a, b, new Map())?.isEqual ?? null
  const found: { isEqual: boolean; isReal: boolean }[] = []
  for (let index = 0; index < NUM_POINTS; index++) {
    const comparison = compareAt(a, b, pointOf(variables, index))
    if (comparison !== null) found.push(comparison)
    const real = found.filter(({ isReal }) => isReal)
    if (real.length >= 3 && real.some(({ isEqual }) => !isEqual)) return false // Further points cannot make them equal.
  }
  const real = found.filter(({ isReal }) => isReal)
  const counting = real.length >= 3 ? real : found
  return counting.length === 0 ? null : counting.every(({ isEqual }) => isEqual)
}

/** Whether a is a nonzero constant times b, like `2x - 4` and `x - 2`. */
export function areProportional(a: Expression, b: Expression): boolean | null {
  const variables = [...variablesOf(b, variablesOf(a))].sort()
  if (variables.length === 0) return null
  const [atA, atB] = [a, b].map((side) => substitute(side, pointOf(variables, 0))) as [Expression, Expression]
  if (areEqual(atA, 0) !== false || areEqual(atB, 0) !== false) return false
  return areEqual(['Multiply', a, atB], ['Multiply', b, atA])
}

function substitute(expression: Expression, point: Point): Expression {
  const symbol = symbolOf(expression)
  const value = symbol === undefined ? undefined : point.get(symbol)
  if (value !== undefined) {
    return ['Rational', { num: String(value.numerator) }, { num: String(value.denominator) }]
  }
  const call = applied(expression)
  if (symbol !== undefined || call === undefined) return expression
  return [call.head, ...call.args.map((argument) => substitute(argument, point))]
}
