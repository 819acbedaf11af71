/**
 * Guess a number: after each guess the model hears `<` where the number is less and `>` where it is greater. Whoever halves
 * what is left needs the fewest guesses. Each question is a range of its own, so that ranges can be held out.
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
 * After `2-7?` the model guesses a number from 2 to 7, up to four times; a guess that is right is worth 1, less a tenth for each
 * before it. The component `best` is what the best guesses are worth in that range on average.
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
      const other = (one + drawn.between(1, largest)) % (largest + 1) // Any but the same one.
      const range = { low: Math.min(one, other), high: Math.max(one, other) }
      const number = drawn.between(range.low, range.high)
      // What guesses look like, for supervised steps: any number that may still be it, and none better than others.
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

/** What a right guess is worth that so many others came before. */
function rewardOf(before: number): number {
  return Math.max(0, 1 - before / 10)
}

/** What the best guesses are worth on average: they halve what is left, so that each guess doubles the numbers that may be reached. */
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
