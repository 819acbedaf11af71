/** Small tasks for the local engine. */
import { defineTextEnvironment } from '../../src/index.ts'

/** Each digit has two others as its answer; each that is right counts. */
export const codes = defineTextEnvironment({
  id: 'text/bench-codes',
  settings: {},
  make: () => ({
    numExamples: 10,
    maxTokens: 3,
    alphabet: '0123456789',
    example: (index) => ({ prompt: String(index), answer: codeOf(index) }),
    respond: ({ completion, exampleIndex }) => {
      const code = codeOf(exampleIndex)
      return { reward: [...code].filter((digit, i) => completion[i] === digit).length / code.length }
    },
  }),
})

function codeOf(digit: number): string {
  return `${(7 * digit + 3) % 10}${(3 * digit + 1) % 10}`
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
