import { expect, test } from 'vitest'
import { type TooLong, usableExamples } from '../../src/language/examples.ts'
import { byteTokenizer } from '../../src/language/tokenizers/byte-tokenizer.ts'

const tokenizer = byteTokenizer()

/** Examples of so many tokens each: the first begins a text, the last two answer and end it, where they are learned. */
function reader(lengths: readonly number[], tooLong: TooLong) {
  const made: number[] = []
  const example = (index: number) => {
    made.push(index)
    return { prompt: 'a'.repeat(lengths[index]! - 3), answer: 'b' }
  }
  const environment = { id: 'its texts', numExamples: lengths.length, example }
  return { made, reader: { environment, tokenizer, context: 64, maxTokens: 2, tooLong } }
}
const both = { asked: true, learned: true }

test('examples are counted no further than 2²⁰ tokens, where one of them is too long and that is an error', () => {
  const { made, reader: long } = reader(Array(100).fill(60_000), 'error')
  expect(() => usableExamples(long, both)).toThrow(
    /18 of the first 18 of 100 examples too long, the longest with 60000 tokens \(the first is example 0\)/,
  )
  expect(made.length).toBe(18) // 17 of them have less than 2²⁰ tokens.
  // Where all are short, or the too long ones are used, every example is looked at.
  const mixed = [...Array(20).fill(60_000), 64, 65, 10]
  const cut = reader(mixed, 'cut')
  expect(usableExamples(cut.reader, { asked: false, learned: true })).toMatchObject({ numSkipped: 20, numCut: 1 })
  expect(cut.made.length).toBe(23)
  const skipped = reader(mixed, 'skip')
  expect([...usableExamples(skipped.reader, both).numbers]).toEqual([20, 22])
  const late = reader([...Array(20_000).fill(60), 65, 66], 'error')
  expect(() => usableExamples(late.reader, both)).toThrow(/1 of the first 20001 of 20002 examples too long/)
})

test('an example is made once, whatever it is used for', () => {
  for (const tooLong of ['skip', 'cut'] as const) {
    const { made, reader: each } = reader([10, 70, 64], tooLong)
    usableExamples(each, both)
    expect(made).toEqual([0, 1, 2])
  }
})
