/** Formulas as text, beside what JavaScript makes of them. */
import { describe, expect, test } from 'vitest'
import { readFormula } from '../../src/base/expressions/formula.ts'

const names = ['loss', 'evaluation', 'p', 'q']
const values: Readonly<Record<string, number>> = { loss: 0.25, 'evaluation.mean': 12, p: 0.5, q: -3 }
const value = (text: string) => readFormula('stop', text, names)((name) => values[name])

describe('a formula', () => {
  const { loss, p, q } = values as { loss: number; p: number; q: number }
  test.each([
    ['1 + 2 * 3 - 4 / 8', 1 + 2 * 3 - 4 / 8],
    ['-(1 - 2) - 3 - 4', -(1 - 2) - 3 - 4],
    ['8 / 2 / 2', 2],
    ['1e-3 + .5', 1e-3 + 0.5],
    ['max(0.1, 1 - p) * min(q, loss)', Math.max(0.1, 1 - p) * Math.min(q, loss)],
    [
      'exp(p) + log(loss) + sqrt(abs(q)) + cos(p) + floor(q / 2)',
      Math.exp(p) + Math.log(loss) + Math.sqrt(3) + Math.cos(p) - 2,
    ],
    ['if(p < 0.4, 1, 0.1)', 0.1],
    ['loss < 0.3 and evaluation.mean >= 12', 1],
    ['loss > 0.3 or q <= -3', 1],
    ['loss > 0.3 and p > 0 or q < 0', 1],
    ['loss > 0.3 and (p > 0 or q < 0)', 0],
  ])('%s', (text, expected) => {
    expect(value(text)).toBeCloseTo(expected, 12)
  })

  test('is not true of what is unknown', () => {
    expect(value('evaluation.std > 0 or evaluation.std <= 0')).toBe(0)
    expect(value('evaluation.std')).toBe(Number.NaN)
    expect(value('evaluation.std or q > 0')).toBe(0)
    expect(value('evaluation.std and q < 0')).toBe(0)
    expect(value('if(evaluation.std, 1, 2)')).toBe(2)
    expect(value('q and loss or 0')).toBe(1)
  })

  test.each([
    ['loss <', 'stop: got "loss <", its end as word 3, expected a number or a name'],
    ['loss 3', 'stop: got "loss 3", 3 as word 2, expected an operator, or the end'],
    ['(loss', 'stop: got "(loss", its end as word 3, expected )'],
    ['loss = 3', 'stop: got "loss = 3", at letter 5, expected a formula, like loss < 0.1'],
    ['los < 3', 'name in stop: got "los" (did you mean "loss"?), expected one of loss, evaluation, p, q'],
    ['max(loss)', 'stop: got "max(loss)", ) as word 4, expected ,'],
    ['sine(loss)', 'function of stop: got "sine"'],
    ['', 'expected a number or a name'],
    ['3 > 2 > 1', 'stop: got "3 > 2 > 1", > as word 4, expected and, or or the end: comparisons do not chain'],
  ])('refuses %s', (text, message) => {
    expect(() => value(text)).toThrow(message)
  })

  test('has at most 500 words, nested or in a row', () => {
    expect(value(`${'('.repeat(249)}p${')'.repeat(249)}`)).toBe(p)
    expect(value(`p${' + p'.repeat(249)}`)).toBe(p * 250)
    expect(value(`${'-'.repeat(498)}p`)).toBe(p)
    for (const text of [`${'('.repeat(20_000)}p${')'.repeat(20_000)}`, `p${' + p'.repeat(20_000)}`])
      expect(() => value(text)).toThrow(/^stop: got a formula of 4000\d words, expected at most 500$/)
  })
})
