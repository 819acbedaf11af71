/** What each token of a text says, held to what all of them say together. */
import { expect, test } from 'vitest'
import { byteTokenizer } from '../../src/language/tokenizers/byte-tokenizer.ts'
import { TextOfIds, TokenTexts } from '../../src/language/tokenizers/token-texts.ts'
import * as fc from '../support/properties.ts'

const tokenizer = byteTokenizer()

/** Words that have a space before them wherever they do not begin a text; 9 begins with one that it loses beside itself alone. */
const spaced = {
  decode: (ids: ArrayLike<number>) =>
    Array.from(ids, (id, i) => (id === 9 && ids[i - 1] !== 9 ? ' nine' : ` ${id}`))
      .join('')
      .slice(1),
}

test('of bytes stands at the last byte of each character, and together they are the text, also of what is none', () => {
  const texts = new TokenTexts(tokenizer)
  const special = tokenizer.encode('<|end|>', { special: true })
  expect(texts.of([...tokenizer.encode('aé語'), ...special, 98])).toEqual(['a', '', 'é', '', '', '語', '<|end|>', 'b'])
  expect(texts.of([0xc3])).toEqual(['\u{fffd}'])
  expect(texts.of([])).toEqual([])
  // A character after so much that is none, that what waits is told before it is whole.
  for (let length = 0; length < 14; length++) {
    const broken = [...Array<number>(length).fill(0xff), ...tokenizer.encode('🙂')]
    expect(texts.of(broken).join('')).toBe(`${'\u{fffd}'.repeat(length)}🙂`)
  }
  const ids = fc.array(fc.oneof(fc.integer({ min: 0, max: 260 }), fc.constantFrom(0xf0, 0x9f, 0x99, 0x82)), {
    maxLength: 60,
  })
  fc.assert(
    fc.property(ids, (some) => {
      const told = texts.of(some)
      expect(told).toHaveLength(some.length)
      expect(told.join('')).toBe(tokenizer.decode(some))
    }),
  )
})

test('has the space that a word has beside others, also where a word is written otherwise beside itself', () => {
  const texts = new TokenTexts(spaced)
  expect(texts.of([1, 2, 1])).toEqual(['1', ' 2', ' 1'])
  expect(texts.of([1, 9, 2])).toEqual(['1', ' nine', ' 2'])
})

test('is decoded once for a token that says the same wherever it stands, and beside few others for one that does not', () => {
  let longest = 0
  const counted = {
    calls: 0,
    decode(ids: ArrayLike<number>) {
      this.calls++
      longest = Math.max(longest, ids.length)
      return tokenizer.decode(ids)
    },
  }
  const texts = new TokenTexts(counted)
  texts.of(tokenizer.encode('to be or not to be '.repeat(100)))
  expect(counted.calls).toBeLessThan(30)
  longest = 0
  const stream = new TextOfIds(counted)
  const said = Array.from({ length: 500 }, () => stream.push(0xff))
  expect(said.join('') + stream.end()).toBe('\u{fffd}'.repeat(500))
  expect(longest).toBeLessThan(30)
})
