import { describe, expect, test } from 'vitest'
import { Unreadable } from '../../../src/language/rewards/maths/expression.ts'
import { MAX_NESTING, readLatex } from '../../../src/language/rewards/maths/latex.ts'
import { TooLarge } from '../../../src/language/rewards/maths/rational.ts'

const n = (num: string) => ({ num })

describe('LaTeX', () => {
  test.each([
    ['1+2-3', ['Add', n('1'), n('2'), ['Negate', n('3')]]],
    ['-x^2', ['Negate', ['Power', 'x', n('2')]]],
    ['--x', 'x'],
    ['1/2x', ['Divide', n('1'), ['InvisibleOperator', n('2'), 'x']]],
    ['a/b/c', ['Divide', ['Divide', 'a', 'b'], 'c']],
    ['2\\times -3', ['Multiply', n('2'), ['Negate', n('3')]]],
    ['x\\div 2', ['Divide', 'x', n('2')]],
    ['2^3^4', ['Power', n('2'), ['Power', n('3'), n('4')]]],
    ['x^12', ['InvisibleOperator', ['Power', 'x', n('1')], n('2')]],
    ['x^-1', ['Power', 'x', ['Negate', n('1')]]],
    ['x^{-1}y', ['InvisibleOperator', ['Power', 'x', ['Negate', n('1')]], 'y']],
    ['\\frac12x', ['InvisibleOperator', ['Divide', n('1'), n('2')], 'x']],
    ['\\frac1{23}', ['Divide', n('1'), n('23')]],
    ['\\sqrt[3]{x}', ['Root', 'x', n('3')]],
    ['\\sqrt2x', ['InvisibleOperator', ['Sqrt', n('2')], 'x']],
    ['\\binom{5}{2}', ['Binomial', n('5'), n('2')]],
    ['5!', ['Factorial', n('5')]],
    ['2^3!', ['Factorial', ['Power', n('2'), n('3')]]],
    ['||x|-1|', ['Abs', ['Add', ['Abs', 'x'], ['Negate', n('1')]]]],
    ['2|x||y|', ['InvisibleOperator', n('2'), ['Abs', 'x'], ['Abs', 'y']]],
    ['|(2|x|)|', ['Abs', ['Delimiter', ['InvisibleOperator', n('2'), ['Abs', 'x']]]]],
    ['\\lvert x\\rvert', ['Abs', 'x']],
    ['\\lfloor 2.5\\rfloor', ['Floor', n('2.5')]],
    ['\\lceil x\\rceil', ['Ceil', 'x']],
    ['45^\\circ', ['Degrees', n('45')]],
    ['45^{\\circ}', ['Degrees', n('45')]],
    ['45\\degree', ['Degrees', n('45')]],
    ['\\sin 2x\\cos y', ['InvisibleOperator', ['Sin', ['InvisibleOperator', n('2'), 'x']], ['Cos', 'y']]],
    ['\\sin(x)y', ['InvisibleOperator', ['Sin', ['Delimiter', 'x']], 'y']],
    ['\\sin^2 x+1', ['Add', ['Power', ['Sin', 'x'], n('2')], n('1')]],
    ['\\sin^{-1}x', ['Arcsin', 'x']],
    ['\\sin-x', ['Sin', ['Negate', 'x']]],
    ['\\log_2 8', ['Log', n('8'), n('2')]],
    ['\\log_{10}x', ['Log', 'x', n('10')]],
    ['\\operatorname{sin} x', ['Sin', 'x']],
    ['\\mathrm{e}^x', ['Power', 'e', 'x']],
    ['x_1+x_{12}', ['Add', 'x_1', 'x_12']],
    ['\\alpha\\pi', ['InvisibleOperator', 'alpha', 'Pi']],
    ['\\mathbb{R}', '\\mathbb R'],
    ['\\mathrm{ab}', '\\mathrm ab'],
    ['\\mathrm{x}', 'x'],
    ['\\emptyset', 'EmptySet'],
    ['1.', n('1')],
    ['.5', n('.5')],
    ['.25', n('.25')],
    ['1e5', n('1e5')],
    ['{5}', n('5')],
    ['2[x]', ['InvisibleOperator', n('2'), ['Delimiter', 'x']]],
    ['\\begin{pmatrix}1&x\\\\3&4\\end{pmatrix}', ['Matrix', ['List', ['List', n('1'), 'x'], ['List', n('3'), n('4')]]]],
    ['\\begin{array}{cc}1&2\\\\\\end{array}', ['Matrix', ['List', ['List', n('1'), n('2')]]]],
  ])('%s is read as it is meant', (text, expected) => {
    expect(readLatex(text)).toEqual(expected)
  })

  test.each([
    '',
    '+',
    'x+',
    '(x',
    'x)',
    '(x]',
    '{x',
    '|x',
    'x^',
    '\\frac{1}',
    '\\frac',
    '\\sqrt',
    '2 3',
    '3!!',
    'x,y',
    'x;y',
    "x'",
    '\\mystery x',
    '\\sin',
    'x_{a',
    'x_{\\frac12}',
    '\\mathrm{}',
    '\\mathrm{a{b}',
    '\\begin{cases}1\\end{cases}',
    '\\begin{matrix}1',
    '\\begin{matrix}1\\end{pmatrix}',
    '\\{x\\}',
    'x=1',
    '1\\%',
  ])('%s cannot be read', (text) => {
    expect(() => readLatex(text)).toThrow(Unreadable)
  })

  test('is nested as deeply as it may be, and no more', () => {
    const nested = (depth: number): string => `${'('.repeat(depth)}x${')'.repeat(depth)}`
    expect(() => readLatex(nested(MAX_NESTING))).not.toThrow()
    expect(() => readLatex(nested(MAX_NESTING + 1))).toThrow(TooLarge)
    expect(() => readLatex(`${'\\sin '.repeat(MAX_NESTING + 1)}x`)).toThrow(TooLarge)
    expect(() => readLatex(`0${'+\\sin x'.repeat(MAX_NESTING + 1)}`)).not.toThrow()
    expect(() => readLatex(`0${'+(x)'.repeat(MAX_NESTING + 1)}`)).not.toThrow()
    expect(() => readLatex('1e9999')).not.toThrow()
    expect(() => readLatex('1e10000')).toThrow(TooLarge)
  })
})
