/** Text of tokens as they come, held to the text of all of them. */
import { expect, test } from 'vitest'
import { TextStream } from '../../../src/agents/serving/text-stream.ts'
import { byteTokenizer } from '../../../src/language/tokenizers/byte-tokenizer.ts'
import * as fc from '../../support/properties.ts'

const tokenizer = byteTokenizer()

test('pieces come to the text before the stop string that is complete first, and never to what is taken back', () => {
  const letters = fc.constantFrom('a', 'b', 'é', '语', '🙂')
  const texts = fc.array(letters, { maxLength: 12 }).map((list) => list.join(''))
  const stops = fc.array(
    fc.array(letters, { minLength: 1, maxLength: 3 }).map((list) => list.join('')),
    { maxLength: 3 },
  )
  fc.assert(
    fc.property(texts, stops, (text, strings) => {
      const stream = new TextStream(tokenizer, strings, true)
      const pieces = tokenizer.encode(text).map((id) => stream.push(id))
      const said = pieces.join('') + stream.end()
      const lengths = Array.from({ length: text.length + 1 }, (_, length) => length)
      const first = lengths.find((length) => strings.some((stop) => text.slice(0, length).includes(stop)))
      const found = strings.map((stop) => text.slice(0, first ?? 0).indexOf(stop)).filter((at) => at >= 0)
      expect(said).toBe(first === undefined ? text : text.slice(0, Math.min(...found)))
      expect(stream.stopString === null).toBe(first === undefined)
    }),
  )
})

test('text without a stop string comes as soon as its characters are whole', () => {
  const stream = new TextStream(tokenizer, [], true)
  expect([104, 0xc3, 0xa9, 257].map((id) => stream.push(id))).toEqual(['h', '', 'é', ''])
  const broken = new TextStream(tokenizer, [], true)
  expect([broken.push(0xc3), broken.end()]).toEqual(['', '\u{fffd}'])
})
