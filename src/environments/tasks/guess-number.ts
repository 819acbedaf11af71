/**
 * Guess a number: after each guess the model gets `<` if the number is less and `>` if it is greater. Halving the range needs the fewest
 * guesses. Each example is a range, so that ranges can be held out.
 */
import { integer, type Settings } from '../../base/settings.ts'
import type { Message } from '../text.ts'
import { defineAgent } from '../tools/agent.ts'
import { ExampleNumbers } from './characters.ts'

const settings = {
  largest: integer(9, 'the largest number of any range; the smallest is 0', { min: 1, max: 99 }),
  guesses: integer(4, 'maximum of guesses', { min: 1, max: 20 }),
  seed: integer(0, 'seed of ranges and numbers', { min: 0 }),
} satisfies Settings

/**
 * After `2-7?` the model guesses a number from 2 to 7, up to four times. A right guess is worth 1, minus 0.1 for each guess before it.
 * The component `best` is the mean reward of the best guesses for that range.
 */
export const guessNumber = defineAgent({
  id: 'text/guess-number',
  module: import.meta.url,
  settings,
  make: ({ largest, guesses, seed }) => ({
    alphabet: '0123456789-<>?',
    numExamples: 100 * (largest + 1),
    maxTurns: guesses,
    maxTokens: String(largest).length + 1,
    example(index) {
      const drawn = new ExampleNumbers(seed, index)
      const one = drawn.between(0, largest)
      const other = (one + drawn.between(1, largest)) % (largest + 1) // Differs from `one`.
      const range = { low: Math.min(one, other), high: Math.max(one, other) }
      const number = drawn.between(range.low, range.high)
      // Demonstrations only show the format: any number that is still possible, not a good guess.
      const demonstration: Message[] = []
      let { low, high } = range
      for (let turn = 0; turn < guesses; turn++) {
        const guess = drawn.between(low, high)
        if (guess < number) low = guess + 1
        else high = guess - 1
        demonstration.push({ role: 'assistant', content: String(guess) })
        if (guess === number || turn === guesses - 1) break
        demonstration.push(heard(number, guess))
      }
      return { prompt: `${range.low}-${range.high}?`, ...range, number, answer: String(number), demonstration }
    },
    async run({ example, generate }) {
      const { low, high, number } = example as unknown as { low: number; high: number; number: number }
      const components = { best: bestReward(high - low + 1, guesses) }
      let turn = await generate()
      for (;;) {
        if (!/^\d+$/.test(turn.completion)) return { reward: 0, components }
        const guess = Number(turn.completion)
        if (guess === number) return { reward: rewardOf(turn.turn), components }
        if (turn.turn === guesses - 1) return { reward: 0, components }
        turn = await generate({ messages: [heard(number, guess)] })
      }
    },
  }),
})

/** Reward of a right guess after `before` wrong ones. */
function rewardOf(before: number): number {
  return Math.max(0, 1 - before / 10)
}

/** Mean reward of the best guesses: halving the range, each guess doubles the numbers that can be reached. */
function bestReward(numNumbers: number, guesses: number): number {
  let [sum, left] = [0, numNumbers]
  for (let turn = 0; turn < guesses && left > 0; turn++) {
    const reached = Math.min(left, 2 ** turn)
    sum += reached * rewardOf(turn)
    left -= reached
  }
  return sum / numNumbers
}

function heard(number: number, guess: number): Message {
  return { role: 'user', content: number < guess ? '<' : '>' }
}
