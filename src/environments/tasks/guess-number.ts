/**
 * Guess a number: after each guess the model hears `<` where the number is less and `>` where it is greater. Whoever halves
 * what is left needs the fewest guesses.
 */
import { integer, type Settings } from '../../settings.ts'
import { defineAgent } from '../agent.ts'
import type { Message } from '../text.ts'
import { ExampleNumbers } from './characters.ts'

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
    numExamples: 100 * (largest + 1),
    maxTurns: guesses,
    maxTokens: String(largest).length + 1,
    example(index) {
      const number = index % (largest + 1)
      // What guesses look like, for supervised steps: any number that may still be it, and none better than others.
      const drawn = new ExampleNumbers(0, index)
      const demonstration: Message[] = []
      let [low, high] = [0, largest]
      for (let turn = 0; turn < guesses; turn++) {
        const guess = drawn.between(low, high)
        if (guess < number) low = guess + 1
        else high = guess - 1
        demonstration.push({ role: 'assistant', content: String(guess) })
        if (guess === number || turn === guesses - 1) break
        demonstration.push(heard(number, guess))
      }
      return { prompt: '?', number, answer: String(number), demonstration }
    },
    async run({ example, generate }) {
      const number = example.number as number
      let turn = await generate()
      for (;;) {
        if (!/^\d+$/.test(turn.completion)) return { reward: 0 }
        const guess = Number(turn.completion)
        if (guess === number) return { reward: Math.max(0, 1 - turn.turn / 10) }
        if (turn.turn === guesses - 1) return { reward: 0 }
        turn = await generate({ messages: [heard(number, guess)] })
      }
    },
  }),
})

function heard(number: number, guess: number): Message {
  return { role: 'user', content: number < guess ? '<' : '>' }
}
