/** Exact numbers: a numerator and a positive denominator without a common divisor. */
export interface Rational {
  readonly numerator: bigint
  readonly denominator: bigint
}

/** A quotient in lowest terms; null for a denominator of 0. */
export function rational(numerator: bigint, denominator = 1n): Rational | null {
  if (denominator === 0n) return null
  let a = numerator < 0n ? -numerator : numerator
  let b = denominator < 0n ? -denominator : denominator
  while (b !== 0n) [a, b] = [b, a % b]
  if (a === 0n) return { numerator: 0n, denominator: 1n }
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

/** An integer, or a decimal with or without an exponent of at most four digits; null for anything else. */
export function parseDecimal(text: string): Rational | null {
  const match = /^([-+]?)(\d*)(?:\.(\d*))?(?:[eE]([-+]?\d{1,4}))?$/.exec(text)
  if (match === null) return null
  const [, sign, whole = '', fraction = '', exponent = '0'] = match
  if (whole === '' && fraction === '') return null
  const digits = BigInt(`${sign === '-' ? '-' : ''}${whole}${fraction}`)
  const power = Number(exponent) - fraction.length
  return power >= 0 ? rational(digits * 10n ** BigInt(power)) : rational(digits, 10n ** BigInt(-power))
}
