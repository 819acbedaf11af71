import { describe, expect, test } from 'vitest'
import { textEnvironmentFactory, textEnvironments } from '../../../src/environments/tasks/registry.ts'
import type { Example, Message, Reply, TextEnvironmentDefinition } from '../../../src/environments/text.ts'

function reply(environment: TextEnvironmentDefinition, example: Example, completion: string): Promise<Reply> | Reply {
  const turn = {
    example,
    exampleIndex: 0,
    completion,
    raw: completion,
    turn: 0,
    stopReason: 'stop' as const,
    messages: [],
  }
  return environment.respond(turn, new AbortController().signal)
}

/** The first answer that an example gives is a guess there. */
const GUESSED = ['text/guess-number']

describe.each(textEnvironments.map(({ id }) => id))('%s', (id) => {
  const environment = textEnvironmentFactory(id)()

  test('gives 1 for the right answer of every example, and less for others', async () => {
    for (let index = 0; index < 300; index++) {
      const example = environment.example(index)
      const right = GUESSED.includes(id) ? String(example.number) : example.answer!
      expect((await reply(environment, example, right)).reward).toBeCloseTo(1, 12)
      for (const wrong of ['', `${right}1`, 'a'.repeat(9)]) {
        expect((await reply(environment, example, wrong)).reward).toBeLessThan(1)
      }
    }
  })

  test('needs only its alphabet, and its answers fit its budget', () => {
    for (let index = 0; index < 300; index++) {
      const { prompt, answer } = environment.example(index)
      for (const letter of `${prompt}${answer}`) expect(environment.alphabet).toContain(letter)
      expect(answer!.length + 1).toBeLessThanOrEqual(environment.maxTokens)
    }
  })

  test('has the same examples whenever it is asked, and others with another seed', () => {
    const factory = textEnvironmentFactory(id)
    const examples = (seed: number) =>
      Array.from({ length: 20 }, (_, index) => factory({ seed } as never).example(index).prompt)
    expect(examples(0)).toEqual(examples(0))
    expect(examples(0)).not.toEqual(examples(1))
  })
})

test.each(['text/reverse', 'text/copy', 'text/sort'])('%s has texts of the lengths asked for', (id) => {
  const factory = textEnvironmentFactory(id) as (lengths: object) => TextEnvironmentDefinition
  const environment = factory({ minLength: 3, maxLength: 4 })
  const lengths = Array.from({ length: 100 }, (_, index) => environment.example(index).answer!.length)
  expect(new Set(lengths)).toEqual(new Set([3, 4]))
  expect(() => factory({ maxLength: 1 })).toThrow(`${id}.minLength: got 2, expected at most maxLength, 1`)
})

test('answers are right by a second way of computing them', () => {
  for (let index = 0; index < 100; index++) {
    const [text] = (textEnvironmentFactory('text/reverse')().example(index).prompt as string).split('=')
    expect(textEnvironmentFactory('text/reverse')().example(index).answer).toBe([...text!].reduce((a, c) => c + a, ''))
    const sum = textEnvironmentFactory('text/arithmetic-2')().example(index)
    expect(Number(sum.answer)).toBe(new Function(`return ${(sum.prompt as string).slice(0, -1)}`)())
    const made = textEnvironmentFactory('text/countdown')().example(index)
    expect(new Function(`return ${made.answer}`)()).toBe(made.target)
  }
})

test('countdown takes any way to the target that uses each number once, and no other', async () => {
  const environment = textEnvironmentFactory('text/countdown')()
  const example = { prompt: '3,5,2:11=', answer: '3*2+5', given: [3, 5, 2], target: 11 }
  expect((await reply(environment, example, '5+2*3')).reward).toBeCloseTo(1)
  expect((await reply(environment, example, '3+5+3')).reward).toBeCloseTo(0.1)
  expect((await reply(environment, example, '3+5+2')).reward).toBeCloseTo(0.3)
  expect((await reply(environment, example, '3+*5')).reward).toBe(0)
})

test('guess-number says where the number is, and takes fewer guesses for better', async () => {
  const environment = textEnvironmentFactory('text/guess-number')()
  const example = { prompt: '1-8?', low: 1, high: 8, number: 6, answer: '0' }
  const said = { role: 'assistant', content: '' }
  let messages: Message[] = [{ role: 'user', content: '1-8?' }]
  const heard: (string | number | null)[] = []
  for (const [turn, completion] of ['2', '8', '6'].entries()) {
    const { reward, messages: more } = await environment.respond(
      { example, exampleIndex: 6, completion, raw: completion, turn, stopReason: 'stop', messages },
      new AbortController().signal,
    )
    heard.push(more?.[0]?.content ?? reward)
    messages = [...messages, said, ...(more ?? [])]
  }
  expect(heard).toEqual(['>', '<', 0.8])
  const last = textEnvironmentFactory('text/guess-number')({ guesses: 1 } as never)
  expect(await reply(last, example, '2')).toEqual({ reward: 0, components: { best: 1 / 8 } })
  for (const [completion, reward] of [
    ['12', 1],
    ['1', 0],
    ['12.', 0],
    [' 12', 0],
  ] as const)
    expect(await reply(last, { ...example, high: 16, number: 12 }, completion)).toMatchObject({ reward })
})

/** What the best guesses are worth together, over the numbers from low to high, where `turn` of 4 guesses were made before. */
function bestSum(low: number, high: number, turn: number): number {
  if (low > high || turn === 4) return 0
  const guesses = Array.from({ length: high - low + 1 }, (_, i) => low + i)
  const worth = (guess: number) =>
    1 - turn / 10 + bestSum(low, guess - 1, turn + 1) + bestSum(guess + 1, high, turn + 1)
  return Math.max(...guesses.map(worth))
}

test('guess-number tells what the best guesses are worth in each range', async () => {
  const environment = textEnvironmentFactory('text/guess-number')()
  for (const high of [1, 2, 3, 6, 9]) {
    const { components } = await reply(environment, { prompt: '', low: 0, high, number: 0 }, 'x')
    expect(components!.best).toBeCloseTo(bestSum(0, high, 0) / (high + 1), 12)
  }
})

test('guess-number has all ranges, and shows guesses that may be right, and end with the number', () => {
  const environment = textEnvironmentFactory('text/guess-number')()
  const ranges = new Set<unknown>()
  const first = new Set<string>()
  for (let index = 0; index < environment.numExamples; index++) {
    const example = environment.example(index) as Example & { low: number; high: number; number: number }
    const { prompt, demonstration, number } = example
    let { low, high } = example
    ranges.add(prompt)
    expect(prompt).toBe(`${low}-${high}?`)
    expect(low).toBeLessThan(high)
    expect(number).toBeGreaterThanOrEqual(low)
    expect(number).toBeLessThanOrEqual(high)
    for (const [i, { role, content }] of demonstration!.entries()) {
      if (i === 0) first.add(content!)
      if (role === 'user') {
        expect(content).toBe(Number(demonstration![i - 1]!.content) < number ? '>' : '<')
        continue
      }
      const guess = Number(content)
      expect(guess).toBeGreaterThanOrEqual(low)
      expect(guess).toBeLessThanOrEqual(high)
      if (guess < number) low = guess + 1
      else high = guess - 1
    }
    const guesses = demonstration!.filter(({ role }) => role === 'assistant')
    expect(guesses.length === 4 || Number(guesses.at(-1)!.content) === number).toBe(true)
  }
  expect(ranges.size).toBe(45)
  expect(first.size).toBe(10)
})
