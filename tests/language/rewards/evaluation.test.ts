import { describe, expect, test } from 'vitest'
import {
  evaluateModel,
  getTaskSuite,
  listTaskSuites,
  registerTaskSuite,
  type TextGenerationTask,
  validateLearningProgress,
} from '../../../src/entries/rewards.ts'
import { InputError } from '../../../src/index.ts'

const task = (prompt: string, columns: Partial<TextGenerationTask> = {}): TextGenerationTask => ({
  prompt,
  targetKeywords: ['cat', 'dog'],
  difficulty: 'easy',
  category: 'pets',
  evaluationCriteria: { keywords: 1 },
  ...columns,
})

registerTaskSuite('pets', () => [
  task('both'),
  task('one', { targetLengthRange: [1, 2], evaluationCriteria: { keywords: 3, length: 1 } }),
  task('sum', { category: 'maths', difficulty: 'hard', answer: '2', evaluationCriteria: { answer: 1 } }),
])

const answers: Record<string, string> = { both: 'a cat, a dog', one: 'one cat here now', sum: 'it is 4/2' }

describe('task suites', () => {
  test('basic and challenging are there, and their criteria can be scored', () => {
    expect(listTaskSuites()).toEqual(expect.arrayContaining(['basic', 'challenging', 'pets']))
    expect(getTaskSuite('basic').length).toBeGreaterThanOrEqual(5)
    expect(getTaskSuite('challenging').length).toBeGreaterThanOrEqual(5)
    for (const { targetKeywords, targetLengthRange, answer } of ['basic', 'challenging'].flatMap(getTaskSuite)) {
      const [least, most] = targetLengthRange ?? [1, 2]
      expect(0 < least && least < most).toBe(true)
      expect(answer === undefined).toBe(targetKeywords !== undefined && targetLengthRange !== undefined)
    }
    expect(() => getTaskSuite('chalenging')).toThrow('did you mean "challenging"?')
    expect(() => registerTaskSuite('basic', () => [])).toThrow(InputError)
  })

  test.each([
    ['no task', []],
    ['a criterion without its column', [task('x', { evaluationCriteria: { length: 1 } })]],
    ['no criterion', [task('x', { evaluationCriteria: {} })]],
    ['an unknown criterion', [task('x', { evaluationCriteria: { style: 1 } as never })]],
    ['a weight without end', [task('x', { evaluationCriteria: { keywords: Number.POSITIVE_INFINITY } })]],
    ['a negative weight', [task('x', { evaluationCriteria: { keywords: -1 } })]],
  ])('with %s are refused', (name, tasks) => {
    registerTaskSuite(`with ${name}`, () => tasks)
    expect(() => getTaskSuite(`with ${name}`)).toThrow(InputError)
  })
})

describe('an evaluation', () => {
  test('scores every task by its criteria, and sums up by category and difficulty', async () => {
    const evaluation = await evaluateModel(async (prompt) => answers[prompt]!, 'pets')
    expect(evaluation.tasks.map(({ score }) => score)).toEqual([1, 0.5 * 0.75 + 0.5 * 0.25, 1])
    expect(evaluation).toMatchObject({ suite: 'pets', n: 3, unknown: 0, mean: 2.5 / 3 })
    expect(evaluation.tasks[1]!.judgments[0]!.components).toEqual({ keywords: 0.5, length: 0.5 })
    expect(evaluation.byCategory).toEqual({ pets: { mean: 0.75, n: 2 }, maths: { mean: 1, n: 1 } })
    expect(evaluation.byDifficulty.hard).toEqual({ mean: 1, n: 1 })
  })

  test('takes several samples of a task', async () => {
    let count = 0
    const evaluation = await evaluateModel(async () => (count++ % 2 === 0 ? 'cat dog' : 'cat'), 'pets', {
      samplesPerTask: 2,
      maxWorkers: 1,
    })
    expect(count).toBe(6)
    expect(evaluation.tasks[0]).toMatchObject({ score: 0.75, completions: ['cat dog', 'cat'] })
  })

  test('leaves out what could not be written: not a score of 0', async () => {
    const evaluation = await evaluateModel(
      async (prompt) => {
        if (prompt === 'both') throw new Error('out of memory')
        if (prompt === 'one') return new Promise(() => {})
        return '2'
      },
      'pets',
      { timeoutMs: 1000 },
    )
    expect(evaluation.tasks.map(({ score }) => score)).toEqual([null, null, 1])
    expect(evaluation.tasks.map(({ judgments }) => judgments[0]!.failure)).toEqual(['threw', 'hung', undefined])
    expect(evaluation).toMatchObject({ mean: 1, n: 1, unknown: 2 })
    expect(evaluation.byDifficulty.easy).toEqual({ mean: null, n: 0 })
    await expect(evaluateModel(async () => '', 'pets', { maxWorkers: 0 })).rejects.toThrow(InputError)
  })
})

describe('learning progress', () => {
  test('is a paired test over tasks, with n and effect size', () => {
    const before = [0.2, 0.4, 0.6, 0.5, 0.3, 0.1]
    const after = [0.5, 0.6, 0.9, 0.6, 0.7, 0.3]
    const progress = validateLearningProgress(before, after)
    expect(progress).toMatchObject({ test: 'paired', isSignificant: true, isImproved: true, leftOut: 0 })
    expect(progress.before).toEqual({ mean: 2.1 / 6, n: 6 })
    expect(progress.difference).toBeCloseTo(0.25, 12)
    expect(validateLearningProgress(after, before)).toMatchObject({ isSignificant: true, isImproved: false })
    // Without their pairing, scores that lie far apart hide a small gain that every task has.
    const wide = [0.1, 0.3, 0.5, 0.7, 0.9]
    const gained = wide.map((score, i) => score + 0.05 + i / 1000)
    expect(validateLearningProgress(wide, gained)).toMatchObject({ test: 'paired', isImproved: true })
    expect(validateLearningProgress(wide, gained, { paired: false })).toMatchObject({
      test: 'welch',
      isImproved: false,
    })
  })

  test('does not call a difference of two standard errors significant where there are few tasks', () => {
    const progress = validateLearningProgress([0, 0, 0], [0.1, 0.3, 0.14])
    expect(progress.statistic).toBeCloseTo(2.946, 3) // 0.18 / (0.10583 / √3)
    expect(progress).toMatchObject({ isSignificant: false, isImproved: false })
    expect(progress.interval[0]).toBeLessThan(0)
  })

  test('leaves unknown scores out, with their counterparts, and never takes them for 0', () => {
    const progress = validateLearningProgress([0.1, null, 0.2, 0.3], [0.2, 1, null, 0.5])
    expect(progress).toMatchObject({ leftOut: 4, before: { mean: 0.2, n: 2 }, after: { mean: 0.35, n: 2 } })
    expect(() => validateLearningProgress([0.1, null], [0.2, 1])).toThrow(InputError)
  })

  test('compares evaluations of the same tasks only', async () => {
    const evaluation = await evaluateModel(async (prompt) => answers[prompt]!, 'pets')
    const other = await evaluateModel(async () => '42', 'basic')
    expect(validateLearningProgress(evaluation, evaluation)).toMatchObject({ pValue: 1, isSignificant: false })
    expect(() => validateLearningProgress(evaluation, other)).toThrow(/paired: false/)
    const swapped = { ...evaluation, tasks: evaluation.tasks.toReversed() }
    expect(() => validateLearningProgress(evaluation, swapped)).toThrow(/the same tasks/)
    expect(validateLearningProgress(evaluation, other, { paired: false }).test).toBe('welch')
    expect(() => validateLearningProgress([0, 1], [1, Number.NaN])).toThrow(InputError)
    for (const alpha of [5, 1, 0]) expect(() => validateLearningProgress([0, 1], [1, 1], { alpha })).toThrow(InputError)
  })
})
