import { describe, expect, test } from 'vitest'
import { type Judgment, judge, mathAccuracyReward, mathEqual, withPolicy } from '../../../src/entries/rewards.ts'
import { areEqual, type Expression } from '../../../src/language/rewards/maths/expression.ts'
import { beyond, cases } from './maths-cases.ts'

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

  test.each(beyond)(
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
    expect(areEqual(['Ln', ['Negate', ['Power', 'x', 2]]], ['Ln', 'x'])).toBe(false)
    expect(() => areEqual(['Mystery', 'x'], 'x')).toThrow(/Mystery/)
  })
})

describe('mathAccuracy', () => {
  const value = (completion: string, answer?: string, parameters = {}): Promise<Judgment> =>
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
