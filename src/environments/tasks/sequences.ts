/**
 * Tasks on short texts: reverse, copy and sort. The prompt is letters and `=`. Half of the reward is for the exact answer, half for each
 * right place.
 */
import { InputError, show } from '../../base/errors.ts'
import { integer, type Settings } from '../../base/settings.ts'
import { defineTextEnvironment, type TextEnvironmentFactory } from '../text.ts'
import { ExampleNumbers, partlyRight } from './characters.ts'

const LETTERS = 'abcdefgh'

/** Limit on letters, beyond the context of any model here. */
const LETTERS_MAX = 65_536

const settings = {
  minLength: integer(2, 'letters of the shortest text', { min: 1, max: LETTERS_MAX }),
  maxLength: integer(8, 'letters of the longest text', { min: 1, max: LETTERS_MAX }),
  numExamples: integer(20_000, 'number of examples', { min: 1 }),
  seed: integer(0, 'seed of the examples', { min: 0 }),
} satisfies Settings

function sequenceTask(id: string, answerOf: (text: string) => string): TextEnvironmentFactory<typeof settings> {
  return defineTextEnvironment({
    id,
    module: import.meta.url,
    settings,
    make: ({ minLength, maxLength, numExamples, seed }) => {
      if (minLength > maxLength)
        throw new InputError(`${id}.minLength`, show(minLength), `at most maxLength, ${maxLength}`)
      return {
        numExamples,
        maxTokens: maxLength + 1,
        alphabet: `${LETTERS}=`,
        example(index) {
          const numbers = new ExampleNumbers(seed, index)
          const text = numbers.text(LETTERS, numbers.between(minLength, maxLength))
          return { prompt: `${text}=`, answer: answerOf(text) }
        },
        respond: ({ completion, example }) => partlyRight(completion, example.answer!),
      }
    },
  })
}

/** Reverse the letters: the answer to `abc=` is `cba`. */
export const reverse = sequenceTask('text/reverse', (text) => [...text].reverse().join(''))
/** Repeat the letters: the answer to `abc=` is `abc`. */
export const copy = sequenceTask('text/copy', (text) => text)
/** Sort the letters: the answer to `cab=` is `abc`. */
export const sort = sequenceTask('text/sort', (text) => [...text].sort().join(''))
