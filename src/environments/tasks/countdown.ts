/**
 * Countdown: make the target from all the numbers, each used once, with +, − and ×. Several answers can be right, so the reward evaluates
 * them.
 */
import { integer, type Settings } from '../../base/settings.ts'
import { defineTextEnvironment } from '../text.ts'
import { ExampleNumbers } from './characters.ts'

const settings = {
  numbers: integer(3, 'how many numbers a task has', { min: 2, max: 4 }),
  largest: integer(9, 'the largest number', { min: 1, max: 99 }),
  numExamples: integer(20_000, 'number of examples', { min: 1 }),
  seed: integer(0, 'seed of the examples', { min: 0 }),
} satisfies Settings

/** An answer to `3,5,2:11=` is `3*2+5`, or another expression for 11 that uses each number once. */
export const countdown = defineTextEnvironment({
  id: 'text/countdown',
  module: import.meta.url,
  settings,
  make: ({ numbers, largest, numExamples, seed }) => ({
    numExamples,
    maxTokens: numbers * (String(largest).length + 1) + 2,
    alphabet: '0123456789,:+-*=',
    example(index) {
      const drawn = new ExampleNumbers(seed, index)
      const given = Array.from({ length: numbers }, () => drawn.between(1, largest))
      const order = shuffled(given, drawn)
      const answer = order.map((value, place) => (place === 0 ? '' : '+-*'[drawn.between(0, 2)]) + value).join('')
      return { prompt: `${given.join(',')}:${computed(answer)}=`, answer, given, target: computed(answer) }
    },
    respond({ completion, example }) {
      const { given, target } = example as { given: readonly number[]; target: number } & typeof example
      if (!/^\d+([-+*]\d+)*$/.test(completion))
        return { reward: 0, components: { wellFormed: 0, numbers: 0, target: 0 } }
      const used = completion.split(/[-+*]/).map(Number)
      const usesAll = used.toSorted().join() === given.toSorted().join() ? 1 : 0
      const reaches = usesAll === 1 && computed(completion) === target ? 1 : 0
      return {
        reward: 0.1 + 0.2 * usesAll + 0.7 * reaches,
        components: { wellFormed: 1, numbers: usesAll, target: reaches },
      }
    },
  }),
})

function shuffled(values: readonly number[], drawn: ExampleNumbers): number[] {
  const order = [...values]
  for (let i = order.length - 1; i > 0; i--) {
    const j = drawn.between(0, i)
    ;[order[i], order[j]] = [order[j]!, order[i]!]
  }
  return order
}

/** Evaluates an expression, products before sums. */
function computed(expression: string): number {
  let total = 0
  for (const [, sign, product] of expression.matchAll(/([-+]?)(\d+(?:\*\d+)*)/g)) {
    const value = product!.split('*').reduce((left, right) => left * Number(right), 1)
    total += sign === '-' ? -value : value
  }
  return total
}
