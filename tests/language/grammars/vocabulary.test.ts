/** Tokens of several bytes: which may come next, and what their bytes are. */
import { expect, test } from 'vitest'
import { Automaton } from '../../../src/language/grammars/automaton.ts'
import { readGrammar } from '../../../src/language/grammars/gbnf.ts'
import { utf8Sequences, without } from '../../../src/language/grammars/ranges.ts'
import { tokenBytes } from '../../../src/language/grammars/token-bytes.ts'
import { Vocabulary } from '../../../src/language/grammars/vocabulary.ts'
import { loadTokenizer } from '../../../src/language/tokenizers/load-tokenizer.ts'
import { array, assert, constantFrom, integer, property, tuple, uint8Array } from '../../support/properties.ts'

const GRAMMARS = [
  'root ::= "ab" root | "a" [b-c]* | "é"+',
  'root ::= ("a" | "b" "a"){2,3} "c"',
  'root ::= "{" (root ("," root)*)? "}"',
]

test('a mask has the tokens whose bytes the grammar takes one after another, and no others', () => {
  const bytes = constantFrom(...Buffer.from('abc{},é'))
  const token = array(bytes, { maxLength: 4 }).map((list) => Uint8Array.from(list))
  assert(
    property(
      array(token, { minLength: 1, maxLength: 60 }),
      constantFrom(...GRAMMARS),
      array(integer({ min: 0 }), { maxLength: 6 }),
      (tokens, grammar, choices) => {
        const automaton = new Automaton(readGrammar(grammar)) // It keeps the masks of one vocabulary.
        const words = Math.ceil((tokens.length + 1) / 32)
        const vocabulary = new Vocabulary([...tokens, new Uint8Array(0)], [tokens.length], words)
        let position = automaton.start
        for (const choice of [...choices, 0]) {
          const after = tokens.map((each) =>
            each.reduce<typeof position | null>((at, byte) => at && automaton.after(at, byte), position),
          )
          const wanted = [...after.map((at, id) => at !== null && tokens[id]!.length > 0), position.isEnd]
          const mask = vocabulary.maskAt(automaton, position)
          expect(wanted.map((_, id) => ((mask[id >> 5]! >>> (id & 31)) & 1) === 1)).toEqual(wanted)
          const going = after.filter((at, id) => at !== null && tokens[id]!.length > 0)
          if (going.length === 0) return
          position = going[choice % going.length]!
        }
      },
    ),
    { numRuns: 400 },
  )
})

test('ranges lose the characters of others, at their ends too', () => {
  expect(without([[5, 9]], [[5, 5]])).toEqual([[6, 9]])
  expect(
    without(
      [
        [1, 4],
        [5, 9],
      ],
      [
        [9, 12],
        [2, 5],
      ],
    ),
  ).toEqual([
    [1, 1],
    [6, 8],
  ])
})

test('ranges of characters are written by the bytes of their characters alone', () => {
  const code = integer({ min: 0, max: 0x10ffff })
  assert(
    property(tuple(code, code), array(code, { minLength: 20, maxLength: 20 }), (ends, codes) => {
      const [from, to] = [Math.min(...ends), Math.max(...ends)]
      const sequences = utf8Sequences([[from, to]])
      for (const each of [from, to, from - 1, to + 1, ...codes]) {
        if (each < 0 || each > 0x10ffff || (each >= 0xd800 && each <= 0xdfff)) continue
        const bytes = Buffer.from(String.fromCodePoint(each))
        const isIn = sequences.some(
          (s) => s.length === bytes.length && s.every(([low, high], i) => bytes[i]! >= low && bytes[i]! <= high),
        )
        expect([each, isIn]).toEqual([each, each >= from && each <= to])
      }
    }),
    { numRuns: 400 },
  )
  assert(
    property(tuple(code, code), uint8Array({ minLength: 1, maxLength: 4 }), (ends, bytes) => {
      const sequences = utf8Sequences([[Math.min(...ends), Math.max(...ends)]])
      const isIn = sequences.some(
        (s) => s.length === bytes.length && s.every(([low, high], i) => bytes[i]! >= low && bytes[i]! <= high),
      )
      if (isIn)
        expect(Array.from(new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes))).toHaveLength(1)
    }),
    { numRuns: 400 },
  )
})

test.each(['llama', 'llama3', 'mistral', 'qwen2', 'smollm'])(
  'the bytes of the tokens of a text are those of the text: %s',
  async (name) => {
    const tokenizer = await loadTokenizer(`tests/golden/tokenizers/${name}`)
    const bytes = tokenBytes(tokenizer)
    for (const text of ['{"name": "Ünï\\n", "n": [1, 2.5e3]}', ' a  b\tc\n\n', '😀 你好 é']) {
      const ids = tokenizer.encode(text, { continues: true })
      expect(Buffer.concat(ids.map((id) => bytes[id]!)).toString()).toBe(text)
    }
    for (const id of tokenizer.endIds) expect(bytes[id]).toHaveLength(0)
  },
)
