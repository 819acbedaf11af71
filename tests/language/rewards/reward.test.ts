import { afterEach, describe, expect, test } from 'vitest'
import { InputError } from '../../../src/base/errors.ts'
import { integer } from '../../../src/base/settings.ts'
import { composeRewards } from '../../../src/language/rewards/compose.ts'
import { createAsyncBatchProcessor, withPolicy } from '../../../src/language/rewards/policy.ts'
import {
  clearRegistries,
  createConfiguredRewardFunction,
  createCustomVerifierPipeline,
  getRewardFunction,
  getVerifierFunction,
  listRegisteredFunctions,
  reward,
  verifier,
} from '../../../src/language/rewards/registry.ts'
import {
  failed,
  failureKinds,
  type Judgment,
  judge,
  judgesInTime,
  judgesTogether,
  type Reward,
  RewardFailure,
} from '../../../src/language/rewards/reward.ts'
import * as fc from '../../support/properties.ts'

const example = { prompt: '1+1=', answer: '2' }
const input = { prompt: '1+1=', completion: '2', example }
const forever = (): Promise<number> => new Promise(() => {})

async function call(made: Reward, completion = '2'): Promise<Judgment> {
  return (await made('1+1=', completion, example)) as Judgment
}

afterEach(clearRegistries)

describe('a judgment', () => {
  test('is the number that a reward answers, at once or later', async () => {
    expect(await judge(() => 0.5, input)).toEqual({ value: 0.5, components: {} })
    expect(await judge(async () => 0, input)).toEqual({ value: 0, components: {} })
    expect(await judge(() => ({ value: 1, components: { a: 2, b: null } }), input)).toEqual({
      value: 1,
      components: { a: 2, b: null },
    })
  })

  test.each([Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY, undefined, null, '1', {}, { value: 'x' }])(
    'of a reward that answers %s is null and never 0',
    async (answer) => {
      const judgment = await judge(() => answer as number, input)
      expect(judgment).toMatchObject({ value: null, failure: 'notANumber' })
      expect(judgment.error).toMatch(/not a finite number/)
    },
  )

  test('of a reward that throws is null and never 0', async () => {
    const thrower = (): never => {
      throw new Error('no such column')
    }
    expect(await judge(thrower, input)).toEqual(failed('threw', 'no such column'))
    expect(await judge(() => Promise.reject('text'), input)).toEqual(failed('threw', '"text"'))
  })

  test('keeps what a reward says of its own null, and makes components that are no numbers null', async () => {
    const answer = { value: null, error: 'no unit', components: { a: Number.NaN, b: 1 } }
    expect(await judge(() => answer, input)).toEqual(failed('unknown', 'no unit', { a: null, b: 1 }))
  })
})

describe('a policy', () => {
  test('ends a reward that hangs with null, never a number, and tells it to stop', async () => {
    let heard: AbortSignal | undefined
    const made = withPolicy(
      (_prompt, _completion, _example, signal) => {
        heard = signal
        return forever()
      },
      { timeoutMs: 20 },
    )
    expect(await call(made)).toEqual(failed('hung', 'no answer within 20 ms'))
    expect(heard?.aborted).toBe(true)
    expect(made.counts.failures.hung).toBe(1)
  })

  test('counts every failure by kind', async () => {
    const answers = [
      () => 1,
      () => Number.NaN,
      () => Promise.reject(new Error('x')),
      forever,
      () => failed('refused', ''),
    ]
    let next = 0
    const made = withPolicy(() => answers[next++]!(), { timeoutMs: 20 })
    for (let i = 0; i < answers.length; i++) await call(made)
    const none = Object.fromEntries(failureKinds.map((kind) => [kind, 0]))
    expect(made.counts).toMatchObject({ calls: 5, attempts: 5 })
    expect(made.counts.failures).toEqual({ ...none, notANumber: 1, threw: 1, hung: 1, refused: 1 })
  })

  test('counts what went beyond the limits of its judge, by kind, and nothing else', async () => {
    const answers = [1, { value: 0, excess: 'steps' as const }, { value: 0, excess: 'work' as const }, 0]
    let next = 0
    const made = withPolicy(() => answers[next++]!)
    for (let i = 0; i < answers.length; i++) await call(made)
    expect(made.counts.excesses).toEqual({ steps: 1, nesting: 0, length: 0, number: 0, work: 1 })
  })

  test('tries again, and counts what failed before', async () => {
    let attempts = 0
    const flaky = (): number => {
      if (++attempts < 3) throw new Error('not yet')
      return 0.25
    }
    const made = withPolicy(flaky, { retries: 2 })
    expect((await call(made)).value).toBe(0.25)
    expect(made.counts).toMatchObject({ calls: 1, attempts: 3 })
    expect(made.counts.failures.threw).toBe(2)
    attempts = -10
    expect(await call(made)).toEqual(failed('threw', 'not yet'))
    expect(made.counts.attempts).toBe(6)
  })

  test('fails where it is to fail, through a composition and a batch', async () => {
    const made = withPolicy(() => Number.NaN, { onFailure: 'fail' })
    await expect(call(made)).rejects.toThrow(RewardFailure)
    await expect(call(composeRewards({ made }))).rejects.toMatchObject({ kind: 'notANumber' })
    await expect(createAsyncBatchProcessor(made)([input])).rejects.toThrow(RewardFailure)
  })

  test('does not try again what the caller aborted, nor wait for it', async () => {
    const controller = new AbortController()
    const made = withPolicy(forever, { retries: 5 })
    const judged = made('', '', example, controller.signal) as Promise<Judgment>
    controller.abort()
    expect(await judged).toEqual(failed('aborted', 'aborted'))
    expect(await made('', '', example, controller.signal)).toMatchObject({ failure: 'aborted' })
    expect(made.counts.attempts).toBe(2)
    expect(made.counts.failures.aborted).toBe(2)
  })

  test('is checked', () => {
    expect(() => withPolicy(() => 1, { timeoutMs: 0 })).toThrow(InputError)
    expect(() => withPolicy(() => 1, { retries: -1 })).toThrow(InputError)
    expect(() => withPolicy(() => 1, { onFailure: 'zero' as 'mask' })).toThrow(/mask, fail/)
  })
})

describe('composed rewards', () => {
  test('are a weighted sum whose parts stay, by name and without weights', async () => {
    const inner = composeRewards({ words: () => 3 })
    const made = composeRewards({ a: () => 2, b: { reward: inner, weight: -0.5 } })
    expect(await call(made)).toEqual({ value: 0.5, components: { a: 2, b: 3, 'b/words': 3 } })
  })

  test('have no value where a part has none: the part never counts as 0', async () => {
    const made = composeRewards({ a: () => 2, b: () => Number.NaN, c: () => Promise.reject(new Error('gone')) })
    const judgment = await call(made)
    expect(judgment.value).toBeNull()
    expect(judgment.failure).toBe('notANumber')
    expect(judgment.error).toMatch(/^b: .*; c: gone$/)
    expect(judgment.components).toEqual({ a: 2, b: null, c: null })
  })

  test('only record a part of weight 0', async () => {
    const made = composeRewards({ a: () => 2, seen: { reward: () => Number.NaN, weight: 0 } })
    expect(await call(made)).toEqual({ value: 2, components: { a: 2, seen: null } })
  })

  test('refuse no parts and weights that are not finite', () => {
    expect(() => composeRewards({})).toThrow(InputError)
    expect(() => composeRewards({ a: { reward: () => 1, weight: Number.NaN } })).toThrow(/weight of reward a/)
  })
})

describe('a batch', () => {
  test('comes in the order of its samples, and never runs more at once than it may', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.nat(3), { maxLength: 12 }),
        fc.integer({ min: 1, max: 5 }),
        async (delays, workers) => {
          let running = 0
          let most = 0
          const made: Reward = async (_, completion) => {
            most = Math.max(most, ++running)
            await new Promise((resolve) => setTimeout(resolve, delays[Number(completion)]))
            running--
            return Number(completion)
          }
          const inputs = delays.map((_, i) => ({ ...input, completion: String(i) }))
          const judged = await createAsyncBatchProcessor(made, { maxWorkers: workers })(inputs)
          expect(judged.map(({ value }) => value)).toEqual(delays.map((_, i) => i))
          expect(most).toBeLessThanOrEqual(workers)
        },
      ),
      { numRuns: 20 },
    )
  })

  test('with one sample that fails has nulls there and values elsewhere', async () => {
    const made: Reward = (_, completion) => (completion === 'bad' ? forever() : completion.length)
    const judgeBatch = createAsyncBatchProcessor(made, { maxWorkers: 2, timeoutMs: 20 })
    const judged = await judgeBatch(['a', 'bad', 'abc'].map((completion) => ({ ...input, completion })))
    expect(judged.map(({ value }) => value)).toEqual([1, null, 3])
    expect(judgeBatch.counts).toMatchObject({ calls: 3, failures: { hung: 1 } })
    expect(() => createAsyncBatchProcessor(made, { maxWorkers: 0 })).toThrow(InputError)
  })

  test('ends when it is aborted', async () => {
    const controller = new AbortController()
    const judged = createAsyncBatchProcessor(forever, { maxWorkers: 1 })([input, input, input], controller.signal)
    controller.abort()
    expect((await judged).map(({ failure }) => failure)).toEqual(['aborted', 'aborted', 'aborted'])
  })
})

describe('a reward that judges together', () => {
  const inputs = ['a', 'bb', 'ccc', 'dddd', 'eeeee'].map((completion) => ({ ...input, completion }))
  const lengths = (given: readonly { completion: string }[]) => given.map(({ completion }) => completion.length)

  test('is called for as many samples as it takes, and of groups for all', async () => {
    for (const [size, expected] of [
      [2, [2, 2, 1]],
      [5, [5]],
      [9, [5]],
      ['group', [5]],
    ] as const) {
      const sizes: number[] = []
      const made = judgesTogether(async (given) => {
        sizes.push(given.length)
        await new Promise((resolve) => setTimeout(resolve, 5 * given.length)) // The last one answers first.
        return lengths(given)
      }, size)
      const judged = await createAsyncBatchProcessor(made)(inputs)
      expect(judged.map(({ value }) => value)).toEqual([1, 2, 3, 4, 5])
      expect(sizes).toEqual(expected)
      expect(await createAsyncBatchProcessor(made)([])).toEqual([])
      expect(sizes).toEqual(expected)
    }
  })

  test('judges one completion by itself, unless it compares a group', async () => {
    expect(await judge(judgesTogether(lengths, 4), inputs[2]!)).toEqual({ value: 3, components: {} })
    const { value, failure, error } = await judge(judgesTogether(lengths, 'group'), inputs[2]!)
    expect([value, failure, error]).toEqual([null, 'threw', expect.stringContaining('a whole group')])
    for (const size of [0, 1.5, 'groups']) expect(() => judgesTogether(lengths, size as never)).toThrow(InputError)
    expect(() => judgesTogether(3 as never, 2)).toThrow(/judgesTogether: got 3/)
  })

  test('that fails leaves all samples of its call unknown, each counted, and others as they are', async () => {
    const cases: [() => unknown, string][] = [
      [() => [1], 'malformed'],
      [() => 7, 'malformed'],
      [() => Promise.reject(new Error('gone')), 'threw'],
      [forever, 'hung'],
      [() => [Number.NaN, undefined], 'notANumber'],
    ]
    for (const [answer, failure] of cases) {
      const made = judgesTogether((given) => (given[0]!.completion === 'a' ? (answer() as never) : lengths(given)), 2)
      const judgeBatch = createAsyncBatchProcessor(made, { timeoutMs: 20 })
      const judged = await judgeBatch(inputs)
      expect(judged.map(({ value }) => value)).toEqual([null, null, 3, 4, 5])
      expect(judged.map((judgment) => judgment.failure)).toEqual([failure, failure, undefined, undefined, undefined])
      expect(judgeBatch.counts).toMatchObject({ calls: 5, attempts: 5, failures: { [failure]: 2 } })
      const strict = createAsyncBatchProcessor(made, { timeoutMs: 20, onFailure: 'fail' })
      await expect(strict(inputs)).rejects.toThrow(RewardFailure)
    }
  })

  test('is tried again for the samples without a value, of a group for all', async () => {
    for (const [size, calls, attempts] of [
      [5, [5, 1, 1], 7],
      ['group', [5, 5, 5], 15],
    ] as const) {
      const sizes: number[] = []
      const made = judgesTogether((given) => {
        sizes.push(given.length)
        return given.map(({ completion }) => (completion === 'bb' && sizes.length < 3 ? Number.NaN : completion.length))
      }, size)
      const judgeBatch = createAsyncBatchProcessor(made, { retries: 4 })
      expect((await judgeBatch(inputs)).map(({ value }) => value)).toEqual([1, 2, 3, 4, 5])
      expect(sizes).toEqual(calls)
      expect(judgeBatch.counts).toMatchObject({ calls: 5, attempts, failures: { notANumber: 2 } })
    }
  })

  test('ends when it is aborted, and has no time limit where it ends by itself', async () => {
    const controller = new AbortController()
    const judged = createAsyncBatchProcessor(judgesTogether(forever as never, 5), { retries: 3 })(
      inputs,
      controller.signal,
    )
    controller.abort()
    expect(new Set((await judged).map(({ failure }) => failure))).toEqual(new Set(['aborted']))
    const slow = judgesTogether(async (given) => {
      await new Promise((resolve) => setTimeout(resolve, 30))
      return lengths(given)
    }, 5)
    expect((await createAsyncBatchProcessor(judgesInTime(slow), { timeoutMs: 1 })(inputs))[4]!.value).toBe(5)
  })
})

describe('the registry', () => {
  test('finds what was registered, with its settings checked', async () => {
    reward({
      id: 'brief',
      settings: { most: integer(2, 'characters', { min: 1 }) },
      make:
        ({ most }) =>
        (_, completion) =>
          completion.length <= most ? 1 : 0,
    })
    expect((await judge(getRewardFunction('brief')({ most: 3 } as never), { ...input, completion: 'abc' })).value).toBe(
      1,
    )
    expect(() => getRewardFunction('brief')({ most: 0 } as never)).toThrow('brief.most: got 0')
    expect(() => getRewardFunction('brief')({ least: 0 } as never)).toThrow(InputError)
    expect(listRegisteredFunctions().rewards).toContain('brief')
  })

  test('names the nearest word for an unknown one, and refuses a name that is taken', () => {
    expect(() => getRewardFunction('acuracy')).toThrow('did you mean "accuracy"?')
    expect(() => getVerifierFunction('coherent')).toThrow('did you mean "coherence"?')
    expect(() => reward({ id: 'length', settings: {}, make: () => () => 1 })).toThrow(/a name that is not taken/)
    expect(() => reward({ id: '', settings: {}, make: () => () => 1 })).toThrow(InputError)
    verifier({ id: 'mine', settings: {}, make: () => () => true })
    expect(() => verifier({ id: 'mine', settings: {}, make: () => () => true })).toThrow(InputError)
    clearRegistries()
    expect(listRegisteredFunctions().verifiers).not.toContain('mine')
    expect(listRegisteredFunctions().verifiers).toContain('length')
  })

  test('makes a reward from its configuration, with weights, parameters and verifiers', async () => {
    const made = createConfiguredRewardFunction([
      { name: 'accuracy', weight: 2 },
      { name: 'length', weight: 0.5, params: { targetLength: 1 }, verifiers: [{ name: 'noEmptyResponse' }] },
    ])
    expect(await call(made)).toEqual({
      value: 2.5,
      components: { accuracy: 1, length: 1, 'length/verifier/noEmptyResponse': 1 },
    })
    expect(() => createConfiguredRewardFunction({ name: 'lenght' })).toThrow('did you mean "length"?')
    expect(() => createConfiguredRewardFunction([{ name: 'length' }, { name: 'length' }])).toThrow(/twice/)
    expect(() => createConfiguredRewardFunction([])).toThrow(InputError)
    expect(() => createConfiguredRewardFunction({ name: 'length', params: { target: 1 } })).toThrow(InputError)
    expect(() => createCustomVerifierPipeline([{ name: 'length' }, { name: 'length' }])).toThrow(/twice/)
  })

  test('leaves the configuration of the caller as it was, so that it makes the same reward again', async () => {
    const configuration = [
      {
        name: 'length',
        weight: 0.5,
        params: { targetLength: 1 },
        verifiers: [{ name: 'length', params: { minLength: 1 } }],
        verifierPenalty: -1,
      },
    ]
    const before = structuredClone(configuration)
    const first = await call(createConfiguredRewardFunction(configuration))
    expect(configuration).toEqual(before)
    expect(await call(createConfiguredRewardFunction(configuration))).toEqual(first)
  })

  test('gives the penalty only for a verification that failed, and null for a verifier that broke', async () => {
    verifier({ id: 'no', settings: {}, make: () => () => false })
    verifier({
      id: 'broken',
      settings: {},
      make: () => () => {
        throw new Error('no list')
      },
    })
    const penalized = (name: string): Reward =>
      createConfiguredRewardFunction({ name: 'accuracy', verifiers: [{ name }], verifierPenalty: -1 })
    expect((await call(penalized('no'))).value).toBe(-1)
    expect(await call(penalized('broken'))).toMatchObject({
      value: null,
      failure: 'threw',
      error: 'accuracy: verifier broken: no list',
    })
  })
})
