import { describe, expect, test, vi } from 'vitest'
import { compareAnswers, type MathsTask } from '../../../src/language/rewards/comparison.ts'
import { mathEqual } from '../../../src/language/rewards/maths/maths.ts'
import { beyond, cases } from './maths-cases.ts'

// The worker that compares, in this thread.
vi.mock('../../../src/base/threads/workers.ts', () => ({
  WorkerPool: class {
    async run(task: MathsTask): Promise<object> {
      return { answer: compareAnswers(task) }
    }
  },
}))

describe('without a worker', () => {
  test.each(cases)('%s and %s: %s', async (answer, reference, expected) => {
    const found = await mathEqual(answer, reference)
    expect('failure' in found ? found.failure : Number(found.isEqual)).toBe(expected)
    if (expected === 1) expect(await mathEqual(reference, answer)).toEqual({ isEqual: true })
    // What is told at once is what comparing gives.
    const words = { equal: 1, different: 0, undecided: 'undecided' }
    if (answer !== '') expect(words[compareAnswers({ answer, reference }).verdict]).toBe(expected)
  })

  test('a power is refused by the larger of its parts, before it is computed', () => {
    const judged = compareAnswers({ answer: '(10^{-300})^{300}', reference: '7' })
    expect(judged).toMatchObject({ verdict: 'different', excess: 'number', reason: expect.stringMatching(/power/) })
  })

  test.each(beyond)('beyond what is compared: %.20s', async (answer, reference, excess) => {
    expect(await mathEqual(answer, reference)).toEqual({ isEqual: false, excess, reason: expect.any(String) })
    if (answer.length < 1000 && excess !== 'length') {
      expect(await mathEqual(reference, answer)).toMatchObject({
        failure: 'undecided',
        error: expect.stringMatching(/./),
      })
    }
  })
})
