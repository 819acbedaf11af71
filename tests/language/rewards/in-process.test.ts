import { beforeEach, describe, expect, test, vi } from 'vitest'
import { codeReward, extractCode } from '../../../src/language/rewards/code/code.ts'
import { type CodeTask, runProgram } from '../../../src/language/rewards/code/interpreter.ts'
import { compareAnswers, type MathsTask } from '../../../src/language/rewards/comparison.ts'
import { mathAccuracyReward, mathEqual } from '../../../src/language/rewards/maths/maths.ts'
import { isInTime, judge } from '../../../src/language/rewards/reward.ts'

/** Tasks that were given to workers, and what one answers in place of judging. */
const seen: { task: CodeTask | MathsTask; limitMs: number }[] = []
let fault: { failure: string; error: string } | undefined

// The judges of workers, in this thread.
vi.mock('../../../src/base/threads/workers.ts', () => ({
  WorkerPool: class {
    async run(task: CodeTask | MathsTask, limitMs: number): Promise<object> {
      seen.push({ task, limitMs })
      return fault ?? { answer: 'code' in task ? await runProgram(task) : compareAnswers(task) }
    }
  },
}))

beforeEach(() => {
  seen.length = 0
  fault = undefined
})

const example = {
  prompt: '',
  answer: 'x+1',
  tests: [
    { input: [2], expected: [4] },
    { input: [3], expected: [9] },
  ],
}
const judged = (reward: ReturnType<typeof codeReward>, completion: string): ReturnType<typeof judge> =>
  judge(reward, { prompt: '', completion, example })

describe('the judge of programs', () => {
  test('finds the program in the last fenced block, and exports nothing', () => {
    const two = 'First\n```js\nbroken(\n```\nthen\n  ```javascript\nconst solve = 1\n```\nDone.'
    expect(extractCode(two)).toBe('\nconst solve = 1\n')
    expect(extractCode('```js\n1\n```\n```js\n2')).toBe('\n2')
    expect(extractCode('no ``` fence ``` here')).toBe('no ``` fence ``` here')
    expect(extractCode('export const a = 1\nexport default async function b() {}\nexport { a }')).toBe(
      'const a = 1\nasync function b() {}\nexport { a }',
    )
  })

  test.each<[string, unknown, boolean]>([
    ['({ b: { c: "x" }, a: [1, null] })', { a: [1, null], b: { c: 'x' } }, true],
    ['({ a: [1, NaN], b: { c: "x" } })', { a: [1, null], b: { c: 'x' } }, false],
    ['({ a: [1, null] })', { a: [1, null], b: { c: 'x' } }, false],
    ['({ a: [1, null], d: { c: "x" } })', { a: [1, null], b: { c: 'x' } }, false],
    ['({ length: 0 })', [], false],
    ['({})', [], false],
    ['[]', {}, false],
    ['[1, 2]', [1, 3], false],
    ['[1, 2]', [1, 2], true],
    ['null', {}, false],
    ['({})', null, false],
    ['"1"', 1, false],
  ])('takes %s for %j: %s', async (result, expected, isSame) => {
    const tests = [{ input: [], expected }]
    const reward = codeReward({ maxSteps: 10_000_000 })
    const { value } = await judge(reward, {
      prompt: '',
      completion: `const solve = () => ${result}`,
      example: { prompt: '', tests },
    })
    expect(value).toBe(isSame ? 1 : 0)
  })

  test('cannot judge without tests, and calls nothing but a function by its name', async () => {
    for (const tests of [null, [], [null], [{ input: 1, expected: 1 }], [{ input: [1] }], [{ expected: 1 }], 'x']) {
      const judgment = await judge(codeReward(), { prompt: '', completion: '1', example: { prompt: '', tests } })
      expect(judgment).toMatchObject({ value: null, failure: 'noReference' })
    }
    for (const functionName of ['1; solve', 'solve()', '', '1a', 'a b']) {
      expect(() => codeReward({ functionName })).toThrow('code.functionName')
    }
    expect(isInTime(codeReward({ functionName: '$_a1' }))).toBe(true)
    expect(isInTime(mathAccuracyReward())).toBe(true)
    expect(seen).toHaveLength(0)
  })

  test('gives its limits to the worker, which has a time that no program within them takes', async () => {
    const reward = codeReward({ maxSteps: 1_000_000_000, memoryLimitMib: 20 })
    expect(await judged(reward, 'const solve = (a) => [a * a]')).toEqual({
      value: 1,
      components: { passed: 1, excess: 0 },
    })
    expect(seen).toHaveLength(2)
    expect(seen[1]).toMatchObject({
      task: { functionName: 'solve', argumentsJson: '[3]', maxSteps: 1_000_000_000, memoryLimitMib: 20 },
      limitMs: 1_000_000,
    })
    await judged(codeReward({ maxSteps: 100_000 }), 'const solve = (a) => [a * a]')
    expect(seen.at(-1)!.limitMs).toBe(60_000)
  })

  test('says what the first test failed of, and stops there unless all are counted', async () => {
    expect(await judged(codeReward(), 'const solve = (a) => [a + 6]')).toEqual({
      value: 0,
      components: { passed: 0, excess: 0 },
      reason: 'test 0: gave [8]',
    })
    expect(seen).toHaveLength(1)
    expect(await judged(codeReward({ partial: true }), 'const solve = (a) => [a + 6]')).toEqual({
      value: 0.5,
      components: { passed: 0.5, excess: 0 },
      reason: 'test 0: gave [8]',
    })
    expect(await judged(codeReward({ maxSteps: 100_000 }), 'for (;;);')).toEqual({
      value: 0,
      components: { passed: 0, excess: 1 },
      reason: 'test 0: ran out of its 100000 steps',
      excess: 'steps',
    })
  })

  test('is at fault where its worker is killed or dies: null, and never 0', async () => {
    for (const failure of ['hung', 'died']) {
      fault = { failure, error: 'why' }
      expect(await judged(codeReward(), '1')).toEqual({ value: null, failure, error: 'why', components: {} })
      expect(await judged(mathAccuracyReward(), '\\boxed{y}')).toEqual({
        value: null,
        failure,
        error: 'why',
        components: {},
      })
    }
  })
})

describe('the judge of mathematical answers', () => {
  test('asks the worker only where it is not told at once', async () => {
    expect(await mathEqual('0.50', '\\frac{1}{2}')).toEqual({ isEqual: true })
    expect(seen).toHaveLength(1)
    expect(await mathEqual('\\frac34', '0.75')).toEqual({ isEqual: true })
    expect(seen).toHaveLength(2)
    seen.length = 1
    expect(await mathEqual(' 2/4 ', '0.5')).toEqual({ isEqual: true })
    expect(await mathEqual('2/3', '0.5')).toEqual({ isEqual: false })
    expect(await mathEqual('x+1', '$x+1$')).toEqual({ isEqual: true })
    expect(await mathEqual('', 'x+1')).toEqual({ isEqual: false })
    expect(seen).toHaveLength(1)
    expect(await mathEqual('x', '\\mystery')).toMatchObject({
      failure: 'undecided',
      error: expect.stringMatching(/mystery/),
    })
    expect(seen[1]!.limitMs).toBe(60_000)
  })

  test('is the reward', async () => {
    expect(await judged(mathAccuracyReward(), '\\boxed{1+x}')).toEqual({ value: 1, components: { excess: 0 } })
    const boxed = mathAccuracyReward({ extract: 'boxed' })
    expect(await judged(boxed, 'x+1')).toMatchObject({ value: 0, reason: 'no answer was found' })
    expect(await judged(boxed, 'so \\boxed{x+1}, or 3')).toMatchObject({ value: 1 })
    expect(await judged(mathAccuracyReward(), '\\boxed{9^{9^{9^9}}}')).toEqual({
      value: 0,
      components: { excess: 1 },
      reason: 'a power is too large to be computed',
      excess: 'number',
    })
  })
})
