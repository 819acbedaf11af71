import { describe, expect, test } from 'vitest'
import {
  extractBoxedAnswer,
  extractFinalAnswer,
  extractFinalNumber,
  normalizeMathAnswer,
  parseExactNumber,
} from '../../../src/language/rewards/maths/answers.ts'
import { plus, rational } from '../../../src/language/rewards/maths/rational.ts'
import * as fc from '../../support/properties.ts'

describe('a boxed answer', () => {
  test.each([
    ['so \\boxed{42}.', '42'],
    ['\\boxed{\\frac{1}{\\sqrt{2}}} holds', '\\frac{1}{\\sqrt{2}}'],
    ['\\boxed{1} no, \\boxed{ 2 }', '2'],
    ['\\boxed{\\left\\{ x \\right.} and } more', '\\left\\{ x \\right.'],
    ['\\fbox{7}', '7'],
    ['\\boxed 5$', '5'],
    ['\\boxed 42 then', '42'],
    ['\\boxed{1', null],
    ['\\boxed{1} \\boxed{2', null],
    ['nothing', null],
  ])('of %s is %s', (text, expected) => {
    expect(extractBoxedAnswer(text)).toBe(expected)
  })

  test('comes back whatever its braces, as long as they are balanced', () => {
    const { balanced } = fc.letrec<{ balanced: string }>((tie) => ({
      balanced: fc.oneof(
        { maxDepth: 4 },
        fc.string({ unit: fc.constantFrom('a', '1', '\\{', '\\}', '+', '\\\\') }),
        fc.tuple(tie('balanced'), tie('balanced')).map(([inside, after]) => `{${inside}}${after}`),
      ),
    }))
    fc.assert(
      fc.property(balanced, (inside) => {
        expect(extractBoxedAnswer(`x} \\boxed{${inside}} {`)).toBe(inside.trim())
      }),
    )
  })

  test('is found in linear time among many that are not closed', () => {
    expect(extractBoxedAnswer('\\boxed{'.repeat(100_000))).toBeNull()
  })
})

describe('a final answer', () => {
  test.each([
    ['It costs $1,234.50 in all.', '1,234.50'],
    ['3 + 4 = 7', '7'],
    ['between -2 and 3/4', '3/4'],
    ['about 12.5%', '12.5%'],
    ['1,2', '2'],
    ['.5', '.5'],
    ['none', null],
  ])('as the last number of %s is %s', (text, expected) => {
    expect(extractFinalNumber(text)).toBe(expected)
  })

  test.each([
    ['first 3, then 4\n#### 12', '12'],
    ['The answer is $x+1$. I used 3 steps.', '$x+1$'],
    ['The answer is 5, so \\boxed{6}', '6'],
    ['The answer is 12.', '12'],
    ['The answer is 3.5 apples. No more', '3.5 apples'],
    ['Answer=x+1', 'x+1'],
    ['as 3 is odd\n#### x+1', 'x+1'],
    ['3\n#### ', null],
    ['we get 8 apples', '8'],
    ['no idea', null],
  ])('of %s is %s', (text, expected) => {
    expect(extractFinalAnswer(text)).toBe(expected)
  })
})

describe('a normalized answer', () => {
  test.each([
    ['$\\dfrac{1}{2}$', '\\frac{1}{2}'],
    ['\\left( 1, 2 \\right)', '( 1, 2 )'],
    ['1,234,567', '1234567'],
    ['(1,234)', '(1,234)'],
    ['1{,}234', '1234'],
    ['1\\,234', '1234'],
    ['1,23', '1,23'],
    ['3\\,5', '3 5'],
    ['\\displaystyle 5', '5'],
    ['a\\quad b', 'a b'],
    ['\\tbinom52', '\\binom52'],
    ['\\text {yes}', 'yes'],
    ['\\text{Tuesday}', 'Tuesday'],
    ['(B)', 'B'],
    ['5.', '5'],
    ['−5', '-5'],
    ['\\$ 5', '5'],
    ['50%', '50\\%'],
    ['x \\in [1,2]', '[1,2]'],
  ])('of %s is %s', (answer, expected) => {
    expect(normalizeMathAnswer(answer)).toBe(expected)
  })
})

describe('an exact number', () => {
  test.each([
    ['0.1', 1n, 10n],
    ['-2.50', -5n, 2n],
    ['6/4', 3n, 2n],
    ['12/34', 6n, 17n],
    ['\\frac {1} {2}', 1n, 2n],
    ['1e12', 10n ** 12n, 1n],
    ['\\frac{-3}{6}', -1n, 2n],
    ['\\frac34', 3n, 4n],
    ['1 1/2', 3n, 2n],
    ['-1\\frac{1}{2}', -3n, 2n],
    ['12.5\\%', 1n, 8n],
    ['1.5\\times 10^{3}', 1500n, 1n],
    ['2e-3', 1n, 500n],
  ])('of %s is %s/%s', (text, numerator, denominator) => {
    expect(parseExactNumber(text)).toEqual({ numerator, denominator })
  })

  test.each(['', '.', '-', '1/0', '1..2', 'x', '1 2', '1e99999', '3\\times 10^{2}x', '12a', '\\frac{1}{x}'])(
    'is not %s',
    (text) => {
      expect(parseExactNumber(text)).toBeNull()
    },
  )

  test('survives being written with thousands separated, as BigInt says it is', () => {
    fc.assert(
      fc.property(fc.bigInt({ min: -(10n ** 30n), max: 10n ** 30n }), fc.nat(999), (whole, thousandths) => {
        const text = `${whole.toLocaleString('en')}.${String(thousandths).padStart(3, '0')}`
        const fraction = rational((whole < 0n ? -1n : 1n) * BigInt(thousandths), 1000n)!
        expect(parseExactNumber(normalizeMathAnswer(text))).toEqual(plus(rational(whole)!, fraction))
      }),
    )
  })
})
