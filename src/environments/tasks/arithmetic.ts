/** Sums and differences of whole numbers, digit by digit. Half of the reward is for the right number, half for each digit in its place. */
import { integer, type Settings } from '../../base/settings.ts'
import { defineTextEnvironment, type TextEnvironmentFactory } from '../text.ts'
import { ExampleNumbers, partlyRight } from './characters.ts'

const settings = {
  numExamples: integer(20_000, 'number of examples', { min: 1 }),
  seed: integer(0, 'seed of the examples', { min: 0 }),
} satisfies Settings

/** The example with this number: a sum or a difference of two numbers of at most `digits` digits. */
export function arithmeticExample(seed: number, index: number, digits: number): { prompt: string; answer: string } {
  const numbers = new ExampleNumbers(seed, index)
  const largest = 10 ** digits - 1
  const [a, b] = [numbers.between(0, largest), numbers.between(0, largest)]
  const isSum = numbers.between(0, 1) === 0
  return { prompt: `${a}${isSum ? '+' : '-'}${b}=`, answer: String(isSum ? a + b : a - b) }
}

function arithmeticTask(id: string, digits: number): TextEnvironmentFactory<typeof settings> {
  return defineTextEnvironment({
    id,
    module: import.meta.url,
    settings,
    make: ({ numExamples, seed }) => ({
      numExamples,
      maxTokens: digits + 3,
      alphabet: '0123456789+-=',
      example: (index) => arithmeticExample(seed, index, digits),
      respond: ({ completion, example }) => partlyRight(completion, example.answer!),
    }),
  })
}

/** Sums and differences of one-digit numbers: the answer to `7-9=` is `-2`. */
export const arithmetic1 = arithmeticTask('text/arithmetic-1', 1)
/** Sums and differences of numbers of up to two digits: the answer to `47+85=` is `132`. */
export const arithmetic2 = arithmeticTask('text/arithmetic-2', 2)
