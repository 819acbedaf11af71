/** Constraints: every answer is of its schema, regular expression or grammar, and what cannot be enforced is refused by its name. */
import { readFileSync } from 'node:fs'
import { describe, expect, test } from 'vitest'
import { InputError } from '../../../src/base/errors.ts'
import type { Constraint } from '../../../src/environments/text.ts'
import { Automaton } from '../../../src/language/grammars/automaton.ts'
import { readGrammar } from '../../../src/language/grammars/gbnf.ts'
import { grammarsOf } from '../../../src/language/grammars/grammars.ts'
import { Vocabulary } from '../../../src/language/grammars/vocabulary.ts'
import { byteTokenizer } from '../../../src/language/tokenizers/byte-tokenizer.ts'
import { outside, randomSchema, type Schema } from '../../support/json-schema.ts'
import { allowed, answerOf, isAnswer } from '../../support/matching.ts'
import { assert, double, integer, property, record, boolean as truth } from '../../support/properties.ts'
import { isThorough, seeded } from '../../support/tiers.ts'

interface Suite {
  readonly files: Record<
    string,
    {
      readonly description: string
      readonly schema: unknown
      readonly tests: { readonly data: unknown; readonly valid: boolean }[]
    }[]
  >
}
const suite = JSON.parse(readFileSync('tests/golden/json-schema-suite.json', 'utf8')) as Suite

describe('a JSON schema', () => {
  test('of the test suite is refused by a name, or has no answer that it calls invalid', () => {
    const counts = { refused: 0, valid: 0, answers: 0, invalid: 0 }
    for (const groups of Object.values(suite.files)) {
      for (const { schema, tests } of groups) {
        try {
          isAnswer({ schema: schema as object }, '')
        } catch (error) {
          expect(error).toBeInstanceOf(InputError)
          expect((error as InputError).subject).toMatch(/^(schema|#)/)
          counts.refused++
          continue
        }
        for (const { data, valid } of tests) {
          const isOne = isAnswer({ schema: schema as object }, JSON.stringify(data))
          if (!valid) expect([schema, data, isOne]).toEqual([schema, data, false])
          counts[valid ? 'valid' : 'invalid']++
          if (valid && isOne) counts.answers++
        }
      }
    }
    expect(counts).toEqual({ refused: 79, valid: 244, answers: 205, invalid: 191 })
  })

  test('by chance: every answer of it parses, and is valid', () => {
    const [schemas, answers] = isThorough ? [500, 20] : [80, 5]
    let finished = 0
    for (let seed = 0; seed < schemas; seed++) {
      const draw = seeded(seed)
      const schema = randomSchema(draw)
      for (let i = 0; i < answers; i++) {
        const text = answerOf({ schema }, draw)
        if (text === null) continue
        finished++
        expect([schema, text, outside(schema, JSON.parse(text))]).toEqual([schema, text, null])
      }
    }
    expect(finished).toBeGreaterThan(0.95 * schemas * answers)
  })

  test('bounds numbers as its keywords say, in whatever digits', () => {
    const bound = () => double({ min: -1200, max: 1200, noNaN: true }).map((value) => Number(value.toFixed(2)))
    const bounds = record({ low: bound(), span: integer({ min: 0, max: 3000 }), isInteger: truth(), isOpen: truth() })
    assert(
      property(
        bounds,
        double({ min: -1.2, max: 1.2, noNaN: true }),
        integer({ min: 0, max: 4 }),
        ({ low, span, isInteger, isOpen }, at, digits) => {
          const high = Number((low + span / 100).toFixed(2))
          const schema = {
            type: isInteger ? 'integer' : 'number',
            [isOpen ? 'exclusiveMinimum' : 'minimum']: low,
            [isOpen ? 'exclusiveMaximum' : 'maximum']: high,
          }
          const texts = [low, high, low + (at * span) / 100, at * 1200].map((value) =>
            value.toFixed(isInteger ? 0 : digits),
          )
          for (const text of texts) {
            let isOne: boolean
            try {
              isOne = isAnswer({ schema }, text)
            } catch {
              isOne = false // No number is between the bounds.
            }
            expect([schema, text, isOne]).toEqual([schema, text, outside(schema, JSON.parse(text)) === null])
          }
        },
      ),
      { numRuns: 400 },
    )
  })

  test.each<[Schema, string, boolean]>([
    [{ type: 'object', properties: { a: {}, b: {} }, required: ['b'] }, '{"b": 1}', true],
    [{ type: 'object', properties: { a: {}, b: {} }, required: ['b'] }, '{"a": 1}', false],
    [{ type: 'object', properties: { a: {} } }, '{"c": 1}', false],
    [
      { type: 'object', properties: { a: { type: 'null' } }, additionalProperties: { type: 'integer' } },
      '{"a": null, "ab": 3, "": 4}',
      true,
    ],
    [
      { type: 'object', properties: { a: { type: 'null' } }, additionalProperties: { type: 'integer' } },
      '{"a": 3}',
      false,
    ],
    [
      { type: 'object', properties: { a: { type: 'null' } }, additionalProperties: { type: 'integer' } },
      '{"\\u0061": 3}',
      false,
    ],
    [{ type: 'object', additionalProperties: { type: 'integer' }, maxProperties: 1 }, '{"x": 1, "y": 2}', false],
    [
      {
        $defs: { n: { type: 'object', properties: { next: { anyOf: [{ $ref: '#/$defs/n' }, { type: 'null' }] } } } },
        $ref: '#/$defs/n',
      },
      '{"next": {"next": null}}',
      true,
    ],
    [{ type: 'string', maxLength: 2 }, '"\\n😀"', true],
    [{ type: 'string', maxLength: 2 }, '"\\ud83d\\ude00"', false],
    [{ type: 'string', pattern: '^a"b\\\\$' }, '"a\\"b\\\\"', true],
    [{ type: 'array', prefixItems: [{ type: 'integer' }], items: { type: 'null' }, minItems: 2 }, '[1, null]', true],
    [{ type: 'array', prefixItems: [{ type: 'integer' }], items: false, minItems: 1 }, '[1, 2]', false],
    [{ oneOf: [{ type: 'string' }, { type: 'integer' }] }, '3', true],
    [{ type: 'string', format: 'date' }, '"2024-02-30"', false],
    [{ type: 'string', format: 'my-own' }, '"x"', true],
  ])('has these answers and not others: %j %s', (schema, text, expected) => {
    expect(isAnswer({ schema }, text)).toBe(expected)
  })

  test.each<[Schema, string]>([
    [{ not: {} }, 'schema.not'],
    [{ type: 'object', properties: { a: { type: 'number', multipleOf: 2 } } }, 'schema.properties.a.multipleOf'],
    [{ type: 'string', pattern: '(?=a)' }, 'schema.pattern'],
    [{ type: 'string', pattern: '[' }, 'schema.pattern'],
    [{ type: 'string', pattern: 'a', minLength: 2 }, 'schema'],
    [{ type: 'string', format: 'json-pointer' }, 'schema.format'],
    [{ type: 'array', uniqueItems: true }, 'schema.uniqueItems'],
    [{ oneOf: [{ type: 'number' }, { type: 'integer' }] }, 'schema.oneOf'],
    [{ allOf: [{}, {}] }, 'schema.allOf'],
    [{ anyOf: [{}], type: 'string' }, 'schema.type'],
    [{ $ref: 'https://example.com/x' }, 'schema.$ref'],
    [{ $defs: { a: { $ref: '#/$defs/a' } }, $ref: '#/$defs/a' }, '#/$defs/a.$ref'],
    [{ type: 'integer', minimum: 4, maximum: 3 }, 'schema'],
    [{ type: 'thing' }, 'schema.type'],
    [{ type: 'object', properties: { a: {} }, minProperties: 1 }, 'schema.minProperties'],
  ])('is refused by the name of what is not enforced: %j', (schema, subject) => {
    expect(() => isAnswer({ schema }, '')).toThrow(expect.objectContaining({ subject }))
  })
})

describe('a regular expression', () => {
  const patterns = [
    'a+b*',
    '(ab|c)?d{2,3}',
    '[a-c]{1,2}[^a]',
    '\\d\\w\\s?',
    'a.c',
    '(?:x|y)*z',
    '[\\d-]+',
    '^ab$|^c',
    'a|b|',
    '\\u0061\\x62',
    '[^\\W_]+',
  ]
  const texts = [
    '',
    'a',
    'ab',
    'abb',
    'aab',
    'cdd',
    'dd',
    'abddd',
    'a1',
    '1a ',
    '1a',
    'abc',
    'a\nc',
    'axc',
    'z',
    'xyz',
    '1-2',
    'c',
    'b',
    'aé',
    '_',
    'a😀c',
  ]

  test.each(patterns)('is matched by its answers as a whole: %s', (pattern) => {
    const whole = new RegExp(`^(?:${pattern})$`, 'u')
    for (const text of texts) expect([text, isAnswer({ regex: pattern }, text)]).toEqual([text, whole.test(text)])
  })

  test.each(['(?<=a)b', '(a)\\1', 'a\\b', '\\p{L}'])('with what is not known is refused: %s', (pattern) => {
    expect(() => isAnswer({ regex: pattern }, '')).toThrow('regex: got')
  })
})

/** Rules that each call the next. */
function chain(length: number): string {
  return Array.from({ length }, (_, i) => `r${i} ::= r${i + 1}`).join('\n')
}

describe('a constraint that is made to take long', () => {
  const endless = (name: string) => ({
    [name]: { type: 'object', properties: { x: { $ref: `#/$defs/${name}` } }, required: ['x'] },
  })
  const names = Array.from('abcdefgh')
  const levels = Array.from({ length: 12 }, (_, i) => {
    const properties = Object.fromEntries(names.map((name) => [name, { $ref: `#/$defs/l${i + 1}` }]))
    return [`l${i}`, { type: 'object', properties, required: names }]
  })
  test.each<[string, Constraint]>([
    [
      'too many levels',
      {
        schema: { $defs: { ...endless('a'), ...endless('b') }, oneOf: [{ $ref: '#/$defs/a' }, { $ref: '#/$defs/b' }] },
      },
    ],
    [
      'pairs of alternatives',
      {
        schema: {
          $defs: { ...Object.fromEntries(levels), l12: { type: 'string' } },
          oneOf: [{ $ref: '#/$defs/l0' }, { $ref: '#/$defs/l0' }],
        },
      },
    ],
    ['which a value may both match', { schema: { oneOf: [{ type: 'object', required: 5 }, { type: 'object' }] } }],
    ['000 steps to build it', { grammar: `root ::= r0\nr3000 ::= "a"?\n${chain(3000)}` }],
    ['too many levels of nesting', { grammar: `root ::= ${'('.repeat(40_000)}"a"${')'.repeat(40_000)}` }],
    ['at most 100000', { grammar: `root ::= ${'"a" '.repeat(60_000)}` }],
    ['a place that the schema has', { schema: { $ref: '#/%' } }],
    ['more than 2000000 steps', { regex: '((){60000}){60000}' }],
    ['10000 readings of one text', { regex: '(a?){20000}' }],
  ])('is refused: %s', (message, constraint) => {
    expect(() => isAnswer(constraint, 'a')).toThrow(
      expect.objectContaining({ name: 'InputError', message: expect.stringContaining(message) }),
    )
  })

  test('of many characters is read in time that grows with their number', () => {
    const many = (count: number, of: (i: number) => string) => Array.from({ length: count }, (_, i) => of(i)).join('')
    const spread = (i: number) => String.fromCodePoint(0x3000 + 2 * i)
    expect(isAnswer({ regex: `[${many(15_000, spread)}]` }, spread(9))).toBe(true)
    expect(isAnswer({ regex: `[${many(15_000, spread)}]` }, String.fromCodePoint(0x3001))).toBe(false)
    expect(isAnswer({ regex: many(15_000, () => '\\x61') }, 'a'.repeat(15_000))).toBe(true)
  })

  test('has masks that visit no more states than a limit', () => {
    const bytes = Array.from({ length: 60 }, (_, i) => new Uint8Array(i + 1).fill(97))
    const grammar = `root ::= ${'"a"? '.repeat(4500)}`
    const vocabulary = new Vocabulary([...bytes, new Uint8Array(0)], [60], 2)
    const automaton = new Automaton(readGrammar(grammar))
    expect(() => vocabulary.maskAt(automaton, automaton.start)).toThrow('more than 300000 readings of the next token')
  })
})

describe('a grammar', () => {
  test.each<[string, string, boolean]>([
    ['root ::= "a" b* # words\nb ::= [b-d] | "\\n"', 'abd\n', true],
    ['root ::= ("x" | y){2}\ny ::= "y" "z"?', 'xyz', true],
    ['root ::= ("x" | y){2}\ny ::= "y" "z"?', 'xyzx', false],
    ['root ::= "(" root ")" | ""', '((()))', true],
    ['root ::= "(" root ")" | ""', '((())', false],
    ['root ::= [^a-z]+', 'Ä1', true],
    ['root ::=\n  "a"\n  | "b"', 'b', true],
    ['root ::= item ("," item)*\nitem ::= [0-9]{1,3}', '1,22,333', true],
    ['root ::= item ("," item)*\nitem ::= [0-9]{1,3}', '1,4444', false],
  ])('has these answers: %j %s', (grammar, text, expected) => {
    expect(isAnswer({ grammar }, text)).toBe(expected)
  })

  test.each([
    ['roo ::= "a"', 'no rule root'],
    ['root ::= b', 'no rule b'],
    ['root ::= "a', 'the end of a text'],
    ['root ::= ("a"', 'a closing parenthesis'],
    ['root = "a"', 'a rule like'],
    ['root ::= root "a" | "b"', 'rule root, which begins with itself'],
    ['root ::= x* root\nx ::= "a"?', 'begins with itself'],
    ['root ::= "a"\nroot ::= "b"', 'rule root twice'],
    ['root ::= [a-z]{3,2}', 'a maximum of at least its minimum'],
    ['root ::= "\\u12"', '4 hexadecimal digits'],
    ['root ::= (("a"{1000}){1000}){1000}', 'more than 200000 places'],
    ['root ::= ""{1000000000}', 'more than 2000000 steps'],
  ])('is refused for what is wrong with it: %j', (grammar, message) => {
    expect(() => isAnswer({ grammar }, '')).toThrow(message)
  })

  test('goes on as before behind an end token that may not come, and has no next token behind one that may', () => {
    const tokenizer = byteTokenizer()
    const matcher = grammarsOf(tokenizer, tokenizer.vocabularySize).matcherOf({ grammar: 'root ::= "ab"' })
    const [end] = tokenizer.endIds as [number]
    expect([matcher.accept(97), matcher.accept(end), matcher.accept(99)]).toEqual([true, false, false])
    expect(allowed(matcher)).toEqual([98])
    expect([matcher.accept(98), matcher.accept(end)]).toEqual([true, true])
    expect([matcher.next(), matcher.accept(97)]).toEqual([null, false])
  })

  test('that calls itself at its end goes on for ever without new positions', () => {
    const tokenizer = byteTokenizer()
    const matcher = grammarsOf(tokenizer, tokenizer.vocabularySize).matcherOf({ grammar: 'root ::= [a-z] root | "."' })
    matcher.accept(97)
    const mask = matcher.next()
    for (let i = 0; i < 5000; i++) expect(matcher.accept(98)).toBe(true)
    expect(matcher.next()).toBe(mask) // The same position.
  })

  test('leaves bytes that begin a character alone, and no others', () => {
    const tokenizer = byteTokenizer()
    const matcher = grammarsOf(tokenizer, tokenizer.vocabularySize).matcherOf({ grammar: 'root ::= [é-퟿]' })
    expect(matcher.accept(0xed)).toBe(true)
    expect(allowed(matcher)).toEqual(Array.from({ length: 32 }, (_, i) => 0x80 + i)) // Surrogates are no characters.
  })
})
