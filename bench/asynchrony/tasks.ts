/** Small tasks for the local engine. */
import { defineTextEnvironment } from '../../src/index.ts'

/** Two digits are to be repeated in reverse, three times; each place that is right counts. */
export const repeats = defineTextEnvironment({
  id: 'text/bench-digits',
  settings: {},
  make: () => ({
    numExamples: 100,
    maxTokens: 7,
    alphabet: '0123456789',
    example: (index) => ({ prompt: String(index).padStart(2, '0'), answer: answerOf(index) }),
    respond: ({ completion, exampleIndex }) => {
      const answer = answerOf(exampleIndex)
      const right = [...answer].filter((digit, i) => completion[i] === digit).length
      return { reward: right / answer.length }
    },
  }),
})

function answerOf(index: number): string {
  return [...String(index).padStart(2, '0')].reverse().join('').repeat(3)
}

/** Answers that end by chance, some of which are long. */
export const guessing = defineTextEnvironment({
  id: 'text/bench-guessing',
  settings: {},
  make: () => ({
    numExamples: 100,
    maxTokens: 96,
    alphabet: '0123456789',
    example: (index) => ({ prompt: String(index).padStart(2, '0') }),
    respond: ({ completion }) => ({ reward: [...completion].filter((digit) => digit === '7').length }),
  }),
})
