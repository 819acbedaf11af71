/**
 * Guess a number: after each guess the model hears `<` where the number is less and `>` where it is greater. Whoever halves
 * what is left needs the fewest guesses.
 */
import { integer, type Settings } from '../../settings.ts'
import { defineAgent } from '../agent.ts'

const settings = {
  largest: integer(9, 'the largest number; the smallest is 0', { min: 1, max: 99 }),
  guesses: integer(4, 'guesses that there are', { min: 1, max: 20 }),
} satisfies Settings

/** After `?` the model guesses, up to four times; a guess that is right is worth 1, less a tenth for each before it. */
export const guessNumber = defineAgent({
  id: 'text/guess-number',
  module: import.meta.url,
  settings,
  make: ({ largest, guesses }) => ({
    alphabet: '0123456789<>?',
    numExamples: 10 * (largest + 1),
    maxTurns: guesses,
    maxTokens: String(largest).length + 1,
    example(index) {
      const number = index % (largest + 1)
      // What a first guess looks like, for supervised steps: any number, and no better than others.
      return { prompt: '?', number, answer: String((index * 7) % (largest + 1)) }
    },
    async run({ example, generate }) {
      const number = example.number as number
      let turn = await generate()
      for (;;) {
        if (!/^\d+$/.test(turn.completion)) return { reward: 0 }
        const guess = Number(turn.completion)
        if (guess === number) return { reward: Math.max(0, 1 - turn.turn / 10) }
        if (turn.turn === guesses - 1) return { reward: 0 }
        turn = await generate({ messages: [{ role: 'user', content: number < guess ? '<' : '>' }] })
      }
    },
  }),
})
