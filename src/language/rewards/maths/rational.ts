/** An exact number: a numerator and a positive denominator in lowest terms. */
export interface Rational {
  readonly numerator: bigint
  readonly denominator: bigint
}

/** Thrown if an answer exceeds a limit: too large a number, too deep nesting, or too much work. `kind` tells which. */
export class TooLarge extends Error {
  readonly kind: 'nesting' | 'number' | 'work'

  constructor(kind: TooLarge['kind'], message: string) {
    super(message)
    this.kind = kind
  }
}

/** Bits of the largest number: 19,728 decimal digits. */
export const MAX_BITS = 65_536

let workLeft = Number.POSITIVE_INFINITY

/** Runs `work` with a limit of units (some 0.5 µs each), which are counted, so that load and machine do not matter. */
export function withWork<T>(units: number, work: () => T): T {
  const before = workLeft
  workLeft = units
  try {
    return work()
  } finally {
    workLeft = before
  }
}

/** Spends units of work. @throws TooLarge when none are left. */
export function spend(units: number): void {
  workLeft -= units
  if (workLeft < 0) throw new TooLarge('work', 'comparing the answers takes too many operations')
}

/** Bits of an integer, rounded up to a multiple of four. */
export function bitsOf(value: bigint): number {
  return value.toString(16).length * 4
}

/** A quotient in lowest terms; null for a denominator of 0. @throws TooLarge if a part has more than MAX_BITS bits. */
export function rational(numerator: bigint, denominator = 1n): Rational | null {
  if (denominator === 0n) return null
  const [m, n] = [bitsOf(numerator), bitsOf(denominator)]
  const [low, high] = m < n ? [m, n] : [n, m]
  if (high > MAX_BITS) throw new TooLarge('number', `a number has more than ${MAX_BITS} bits`)
  spend(1 + (low * (high + 2000)) / 16_000 + high / 1000) // Euclid's steps are proportional to `low`.
  let a = numerator < 0n ? -numerator : numerator
  let b = denominator < 0n ? -denominator : denominator
  while (b !== 0n) [a, b] = [b, a % b]
  const sign = denominator < 0n ? -1n : 1n
  return { numerator: (sign * numerator) / a, denominator: (sign * denominator) / a }
}

export function isSame(a: Rational, b: Rational): boolean {
  return a.numerator === b.numerator && a.denominator === b.denominator
}

export function plus(a: Rational, b: Rational): Rational {
  return rational(a.numerator * b.denominator + b.numerator * a.denominator, a.denominator * b.denominator)!
}

export function times(a: Rational, b: Rational): Rational {
  return rational(a.numerator * b.numerator, a.denominator * b.denominator)!
}

export function over(a: Rational, b: Rational): Rational | null {
  return rational(a.numerator * b.denominator, a.denominator * b.numerator)
}

/** An integer, or a decimal, with an optional exponent of at most four digits; null for anything else. */
export function parseDecimal(text: string): Rational | null {
  const match = /^([-+]?)(\d*)(?:\.(\d*))?(?:[eE]([-+]?\d{1,4}))?$/.exec(text)
  if (match === null) return null
  const [, sign, whole = '', fraction = '', exponent = '0'] = match
  if (whole === '' && fraction === '') return null
  const digits = BigInt(`${sign === '-' ? '-' : ''}${whole}${fraction}`)
  const power = Number(exponent) - fraction.length
  return power >= 0 ? rational(digits * 10n ** BigInt(power)) : rational(digits, 10n ** BigInt(-power))
}
