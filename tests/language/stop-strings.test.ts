import { describe, expect, test } from 'vitest'
import { byteTokenizer } from '../../src/language/tokenizers/byte-tokenizer.ts'
import { loadTokenizer } from '../../src/language/tokenizers/load-tokenizer.ts'
import { StopStrings } from '../../src/language/tokenizers/stop-strings.ts'
import type { Tokenizer } from '../../src/language/tokenizers/tokenizer.ts'
import * as fc from '../support/properties.ts'
import { folderOf, recorded } from './golden.ts'

/** After how many ids a stop string was found, and which; null where none was. */
function run(tokenizer: Tokenizer, strings: string[], ids: readonly number[]) {
  const stops = new StopStrings(tokenizer, strings)
  for (const [index, id] of ids.entries()) {
    const found = stops.push(id)
    if (found !== null) return { found, after: index + 1 }
  }
  return null
}

describe.each(recorded)('%s', async (name) => {
  const tokenizer = await loadTokenizer(folderOf(name))

  test('finds a stop string at the first id after which all that was decoded has it', () => {
    const texts = ['The answer is</a> x', 'naïve 😀 é', 'stop\n\nhere', '  two  spaces']
    const strings = ['</a>', '😀', '\n\n', '  spaces', 'aïv', 'é', 'never']
    for (const text of texts) {
      for (const string of strings) {
        for (const ids of [
          tokenizer.encode(text),
          [...text].flatMap((c) => tokenizer.encode(c, { continues: true })),
        ]) {
          const slow = ids.findIndex((_, i) => tokenizer.decode(ids.slice(0, i + 1)).includes(string))
          const expected = slow < 0 ? null : { found: string, after: slow + 1 }
          expect(run(tokenizer, [string], ids), `${string} in ${text}`).toEqual(expected)
        }
      }
    }
  })
})

test('any bytes: finds what decoding everything finds', () => {
  const tokenizer = byteTokenizer()
  const ids = fc.array(fc.constantFrom(97, 98, 0xc3, 0xa9, 0xf0, 257))
  fc.assert(
    fc.property(ids, fc.constantFrom('a', 'ab', 'aé', 'ébé', 'a<|end|>b'), (sampled, string) => {
      const slow = sampled.findIndex((_, i) => tokenizer.decode(sampled.slice(0, i + 1)).includes(string))
      expect(run(tokenizer, [string], sampled)?.after ?? 0).toBe(slow + 1)
    }),
    { numRuns: 500 },
  )
})

test('of several in one token the one that began first is told', () => {
  const tokenizer = { ...byteTokenizer(), decode: (ids: ArrayLike<number>) => 'xyz!'.slice(0, 4 * ids.length) }
  expect(run(tokenizer, ['z!', 'yz'], [0])).toEqual({ found: 'yz', after: 1 })
})

test('a turn does not end by the end of the one before', () => {
  const stops = new StopStrings(byteTokenizer(), ['ab'])
  expect([stops.push(97), stops.push(98), stops.push(98)]).toEqual([null, 'ab', null])
  stops.push(97)
  stops.clear()
  expect(stops.push(98)).toBeNull()
})

test('decodes a few ids for each, however long the turn', () => {
  const tokenizer = byteTokenizer()
  let longest = 0
  const counting = {
    ...tokenizer,
    decode: (ids: ArrayLike<number>) => {
      longest = Math.max(longest, ids.length)
      return tokenizer.decode(ids)
    },
  }
  run(counting, ['abc', 'é'], Array(500).fill(97))
  expect(longest).toBe(4)
})

test('an empty stop string, and one that is no text, are refused', () => {
  expect(() => new StopStrings(byteTokenizer(), ['a', ''])).toThrow(/stop string: got ""/)
  expect(() => new StopStrings(byteTokenizer(), ['\u{fffd}'])).toThrow(/without U\+FFFD/)
  expect(() => new StopStrings(byteTokenizer(), [3] as never)).toThrow(/stop string: got 3/)
  expect(() => new StopStrings(byteTokenizer(), 'ab' as never)).toThrow(/stopStrings: got "ab", expected a list/)
  expect(new StopStrings(byteTokenizer(), []).push(97)).toBeNull()
})
