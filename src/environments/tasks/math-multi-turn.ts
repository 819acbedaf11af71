/**
 * Sums and differences with further attempts: after a wrong answer the model may try again, for a lower reward (AReaL's multi-turn
 * mathematics, without its fault of continuing after a right answer).
 */
import { fraction, integer, type Settings } from '../../base/settings.ts'
import { defineAgent } from '../tools/agent.ts'
import { arithmeticExample } from './arithmetic.ts'

const settings = {
  digits: integer(1, 'maximum of digits of each number', { min: 1, max: 6 }),
  attempts: integer(3, 'maximum of answers', { min: 1, max: 10 }),
  turnDiscount: fraction(0.8, "factor of a right answer's reward for each wrong answer before it"),
  numExamples: integer(20_000, 'number of examples', { min: 1 }),
  seed: integer(0, 'seed of the examples', { min: 0 }),
} satisfies Settings

/** The answer to `7-9=` is `-2`; after a wrong answer the model gets `?` and answers again. */
export const mathMultiTurn = defineAgent({
  id: 'text/math-multi-turn',
  module: import.meta.url,
  settings,
  make: ({ digits, attempts, turnDiscount, numExamples, seed }) => ({
    numExamples,
    maxTurns: attempts,
    maxTokens: digits + 3,
    alphabet: '0123456789+-=?',
    example: (index) => arithmeticExample(seed, index, digits),
    async run({ example, generate }) {
      let turn = await generate()
      while (turn.completion !== example.answer && turn.turn < attempts - 1) {
        turn = await generate({ messages: [{ role: 'user', content: '?' }] })
      }
      const isRight = turn.completion === example.answer
      return {
        reward: isRight ? turnDiscount ** turn.turn : 0,
        components: { right: isRight ? 1 : 0, turns: turn.turn + 1 },
      }
    },
  }),
})
