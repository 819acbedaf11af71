import { beforeEach, describe, expect, test, vi } from 'vitest'
import { codeReward } from '../../src/rewards/code.ts'
import { compareAnswers, type MathsTask } from '../../src/rewards/comparison.ts'
import { type CodeTask, runProgram } from '../../src/rewards/interpreter.ts'
import { mathAccuracyReward, mathEqual } from '../../src/rewards/maths.ts'
import { judge } from '../../src/rewards/reward.ts'

/** Tasks that were given to workers, and what one answers in place of judging. */
const seen: { task: CodeTask | MathsTask; limitMs: number }[] = []
let fault: { failure: string; error: string } | undefined

// The judges of workers, in this thread.
vi.mock('../../src/workers.ts', () => ({
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
    expect(await judged(mathAccuracyReward(), '\\boxed{9^{9^{9^9}}}')).toEqual({
      value: 0,
      components: { excess: 1 },
      reason: 'a power is too large to be computed',
      excess: 'number',
    })
  })
})
