import { describe, expect, test } from 'vitest'
// The worker that compares is a compiled file.
import { type Judgement, judge, mathAccuracyReward, mathEqual, withPolicy } from '../../dist/src/index.js'
import { areEqual, type Expression } from '../../src/rewards/expression.ts'

/** An answer, the reference, and 1 (equal), 0 (different) or the kind of failure. */
const cases: [string, string, 0 | 1 | string][] = [
  ['\\frac{1}{2}', '0.5', 1],
  ['\\frac12', '1/2', 1],
  ['x^2+2x+1', '(x+1)^2', 1],
  ['\\sqrt{8}', '2\\sqrt{2}', 1],
  ['\\frac{\\sqrt{3}}{3}', '\\frac{1}{\\sqrt{3}}', 1],
  ['\\sin^2 x+\\cos^2 x', '1', 1],
  ['3+4i', '4i+3', 1],
  ['\\{1,2\\}', '\\{2,1\\}', 1],
  ['\\left\\{1,2\\right\\}', '\\{2,1\\}', 1],
  ['(1,2)', '(1,2)', 1],
  ['(1,2)', '(2,1)', 0],
  ['x=5', '5=x', 1],
  ['x=5', '5', 1],
  ['5', 'x=5', 1],
  ['2x=4', 'x=2', 1],
  ['x=3', 'x=2', 0],
  ['0=0', 'x=5', 0],
  ['2x+3', '3+2x', 1],
  ['\\pi', '3.14', 0],
  ['e^{i\\pi}', '-1', 1],
  ['\\binom{5}{2}', '10', 1],
  ['5!', '120', 1],
  ['\\log_2 8', '3', 1],
  ['\\ln e^2', '2', 1],
  ['x(x-1)', 'x^2-x', 1],
  ['\\frac{x^2-1}{x-1}', 'x+1', 1],
  ['2\\pi r', '2 r \\pi', 1],
  ['\\sqrt{2}+\\sqrt{3}', '\\sqrt{5+2\\sqrt{6}}', 1],
  ['(-\\infty, 3]', '(-\\infty,3]', 1],
  ['\\left(-\\infty, 3\\right]', '(-\\infty,6/2]', 1],
  ['(-\\infty, 3)', '(-\\infty,3]', 0],
  ['[0,1]', '(0,1)', 0],
  ['0.333', '\\frac13', 0],
  ['1.000000001', '1', 0],
  ['2^{100}', '1267650600228229401496703205376', 1],
  ['2^{100}', '1267650600228229401496703205377', 0],
  ['2^{100}x', '1267650600228229401496703205377x', 0],
  ['\\begin{pmatrix}1\\\\2\\end{pmatrix}', '\\begin{pmatrix}1\\\\ \\frac42\\end{pmatrix}', 1],
  ['\\begin{pmatrix}1\\\\2\\end{pmatrix}', '\\begin{pmatrix}1\\\\3\\end{pmatrix}', 0],
  ['x', 'y', 0],
  ['|x|', 'x', 0],
  ['\\sqrt{x^2}', 'x', 0],
  ['0.1+0.2', '0.3', 1],
  ['10\\%', '0.1', 1],
  ['\\tan 45^\\circ', '1', 1],
  ['ab', 'ba', 1],
  ['\\frac{a+b}{c}', '\\frac{a}{c}+\\frac{b}{c}', 1],
  ['1{,}000', '1000', 1],
  ['1,000', '1000', 1],
  ['1,234,567.5', '1234567.5', 1],
  ['\\sin\\pi', '0', 1],
  ['1\\frac12', '1.5', 1],
  ['1 1/2', '3/2', 1],
  ['-1\\frac{1}{2}', '-1.5', 1],
  ['\\$5', '5', 1],
  ['5\\text{ cm}', '5', 1],
  ['5\\text{ cm}', '5\\text{ m}', 0],
  ['90^\\circ', '90', 1],
  ['3,5', '5,3', 1],
  ['1 \\pm \\sqrt2', '1-\\sqrt2, 1+\\sqrt2', 1],
  ['x<5', '5>x', 1],
  ['x<5', 'x>5', 0],
  ['1<x<5', '5>x>1', 1],
  ['(1,2)\\cup(3,4)', '(3,4)\\cup(1,2)', 1],
  ['\\text{Tuesday}', 'tuesday', 1],
  ['Monday', 'Tuesday', 0],
  ['listen', 'silent', 0],
  ['B', '(B)', 1],
  ['\\text{(B)}', 'B', 1],
  ['', '5', 0],
  ['garbage \\frac', '5', 0],
  ['5', '\\undefinedcommand{3}', 'undecided'],
  ['9^{9^{9^9}}', '5', 0],
  ['5', '9^{9^{9^9}}', 'undecided'],
  ['\\frac{1}{0}', '5', 0],
  ['5', '\\frac{0}{0}', 'undecided'],
  ['1.5\\times10^3', '1500', 1],
  ['1.1\\times 10^{2}', '110', 1],
  ['7\\%', '0.07', 1],
  ['\\sqrt[3]{-8}', '-2', 1],
  ['\\sqrt[3]{27x^3}', '3x', 1],
  ['x^{1/2}', '\\sqrt{x}', 1],
  ['\\ln(x^2)', '2\\ln x', 1],
  ['f(x)=x^2', 'x^2', 1],
  ['y=2x+1', 'y=1+2x', 1],
  ['x^2+y^2=1', 'y^2=1-x^2', 1],
  ['-\\frac{1}{2}', '-0.5', 1],
  ['\\frac{-1}{2}', '-\\frac12', 1],
  ['(3)(4)', '12', 1],
  ['\\dfrac{3}{4}', '.75', 1],
  ['x \\in [1,2]', '[1,2]', 1],
  ['1/3', '0.33333333333333', 0],
  ['\\sqrt{2}', '1.41421356', 0],
  ['e', '2.718281828', 0],
  ['x_1+x_2', 'x_2+x_1', 1],
  ['\\infty', '-\\infty', 0],
  ['\\infty', '\\infty', 1],
  ['\\frac{\\pi}{2}', '90^\\circ', 0],
  ['2^{-1}', '0.5', 1],
  ['((1,2),(3,4))', '((1,2),(3,5))', 0],
  ['100!', '10', 0],
  ['10^{10^{10}}', '3', 0],
  ['\\frac{1}{0}', '\\infty', 0],
  ['\\infty', '\\frac{1}{0}', 'undecided'],
  ['-\\ln 0', '\\infty', 0],
  ['0^{-1}', '\\infty', 0],
  ['\\cot 0', '\\infty', 0],
  ['e^{1000}', '\\infty', 0],
  ['\\infty + 1', '\\infty', 1],
  ['\\frac{1}{\\infty}', '0', 1],
  ['\\log 100', '2', 1],
  ['\\lfloor 2.5 \\rfloor', '2', 1],
  ['{5}', '5', 1],
  ['5.', '5', 1],
  ['3.0', '3', 1],
  ['\\emptyset', '\\varnothing', 1],
  ['\\sin(30^\\circ)', '\\frac12', 1],
  ['\\arctan 1', '\\frac{\\pi}{4}', 1],
  ['x>2 \\text{ or } x<1', 'x<1, x>2', 1],
]

describe('mathematical equality', () => {
  test.each(cases)('of %s and %s is %s', async (answer, reference, expected) => {
    const found = await mathEqual(answer, reference)
    expect('failure' in found ? found.failure : Number(found.isEqual)).toBe(expected)
  })

  test('is the same both ways where both can be read', async () => {
    for (const [answer, reference, expected] of cases.filter(([, , expected]) => expected === 1)) {
      expect([answer, reference, await mathEqual(reference, answer)]).toEqual([answer, reference, { isEqual: true }])
      expect(expected).toBe(1)
    }
  })

  test('does not depend on what was compared before', async () => {
    await mathEqual('x(3)', 'x+1')
    await mathEqual('x=(1,2)', 'x_1')
    expect(await mathEqual('x_2+x_1', 'x_1+x_2')).toEqual({ isEqual: true })
    expect(await mathEqual('f(x)+f', 'xf+f')).toEqual({ isEqual: true })
  })

  test.each<[string, string, string]>([
    ['1'.repeat(1001), '1', 'length'],
    [`${'x,'.repeat(64)}x`, `${'y,'.repeat(64)}y`, 'length'],
    [`${'('.repeat(51)}x${')'.repeat(51)}`, 'x', 'nesting'],
    [`${'\\sqrt{'.repeat(140)}2${'}'.repeat(140)}`, 'x+1', 'nesting'],
    ['\\sin'.repeat(60), 'x', 'nesting'],
    ['9^{9^{9^9}}', '7', 'number'],
    ['5001!', '7', 'number'],
    ['1e10000', 'x', 'number'],
    ['\\frac{3^{240000}}{2^{240000}}', '7', 'number'],
    [`x+${'(1+2^{9999}x)'.repeat(60)}`, 'x', 'number'],
    [`x+${'(2^{-999}+3^{630}x)'.repeat(50)}`, 'x', 'work'],
  ])(
    'of an answer that goes beyond what is compared is false, with its reason: %.20s',
    async (answer, reference, excess) => {
      expect(await mathEqual(answer, reference)).toEqual({ isEqual: false, excess, reason: expect.any(String) })
      if (answer.length < 1000 && excess !== 'length') {
        expect(await mathEqual(reference, answer)).toMatchObject({ failure: 'undecided' })
      }
    },
  )

  test('of brackets that are not closed, or mean nothing, is an end', async () => {
    expect(await mathEqual('('.repeat(40), '1')).toEqual({ isEqual: false })
    expect(await mathEqual('[[[[[[[[|]]]]]]]]', '1')).toEqual({ isEqual: false })
    expect(await mathEqual('[|'.repeat(20) + ']'.repeat(20), '1')).toEqual({ isEqual: false })
    expect(await mathEqual('|x|'.repeat(300), '1')).toEqual({ isEqual: false })
    await expect(mathEqual('1', '')).rejects.toThrow(/reference/)
    await expect(mathEqual('1', '1'.repeat(1001))).rejects.toThrow(/1000/)
  })

  test('needs values: two functions that agree at no point that can be computed are not called equal', () => {
    const nothing: Expression = ['Divide', 0, 0]
    expect(areEqual(nothing, nothing)).toBeNull()
    expect(areEqual(['Ln', ['Negate', ['Square', 'x']]], ['Ln', 'x'])).toBe(false)
    expect(() => areEqual(['Mystery', 'x'], 'x')).toThrow(/Mystery/)
  })
})

describe('mathAccuracy', () => {
  const value = (completion: string, answer?: string, parameters = {}): Promise<Judgement> =>
    judge(mathAccuracyReward(parameters), {
      prompt: '',
      completion,
      example: { prompt: '', ...(answer !== undefined && { answer }) },
    })

  const right = { value: 1, components: { excess: 0 } }
  const wrong = { value: 0, components: { excess: 0 } }

  test('is 1 for a right answer, however it is written, and 0 for a wrong one or none', async () => {
    expect(await value('so \\boxed{\\frac{6}{4}}', '1.5')).toEqual(right)
    expect(await value('so \\boxed{x^2-1}', 'thus \\boxed{(x-1)(x+1)}')).toEqual(right)
    expect(await value('so 7', 'reason\n#### 7')).toEqual(right)
    expect(await value('so 8', '7')).toEqual(wrong)
    expect(await value('no idea', '7')).toEqual({ ...wrong, reason: 'no answer was found' })
    expect(await value('so 7', '7', { extract: 'boxed' })).toEqual({ ...wrong, reason: 'no answer was found' })
  })

  test('is null and never 0 where it cannot be told', async () => {
    expect(await value('7', undefined)).toMatchObject({ value: null, failure: 'noReference' })
    expect(await value('7', '\\mystery{1}')).toMatchObject({ value: null, failure: 'undecided' })
    expect(await value('7', '9^{9^{9^9}}')).toMatchObject({ value: null, failure: 'undecided' })
  })

  test('is 0 and never null for an answer that breaks off the comparison, and such answers are counted', async () => {
    const policed = withPolicy(mathAccuracyReward(), { timeoutMs: 1 })
    const judged = (completion: string): Promise<unknown> =>
      Promise.resolve(policed('', completion, { prompt: '', answer: 'x' }))
    const beyond = { value: 0, components: { excess: 1 }, reason: expect.any(String) }
    expect(await judged('\\boxed{9^{9^{9^9}}}')).toEqual({ ...beyond, excess: 'number' })
    expect(await judged(`\\boxed{${'('.repeat(60)}x${')'.repeat(60)}}`)).toEqual({ ...beyond, excess: 'nesting' })
    expect(await judged('\\boxed{x+0}')).toEqual(right)
    expect(policed.counts.excesses).toEqual({ steps: 0, nesting: 1, length: 0, number: 1, work: 0 })
    expect(policed.counts.failures).toMatchObject({ hung: 0, threw: 0, undecided: 0 })
  })
})
