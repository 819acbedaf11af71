import { describe, expect, test } from 'vitest'
import { InputError } from '../../src/base/errors.ts'
import { byteTokenizer } from '../../src/language/tokenizers/byte-tokenizer.ts'
import { loadTokenizer } from '../../src/language/tokenizers/load-tokenizer.ts'
import { saveTokenizer, type Tokenizer } from '../../src/language/tokenizers/tokenizer.ts'
import * as fc from '../support/properties.ts'
import { temporaryFolder } from '../support/temporary.ts'

describe('bytes', () => {
  const tokenizer = byteTokenizer()

  test('any Unicode text is its UTF-8, and comes back', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'binary' }), (text) => {
        const ids = tokenizer.encode(text)
        expect(ids).toEqual([...Buffer.from(text, 'utf8')])
        expect(tokenizer.decode(Int32Array.from(ids))).toBe(text)
      }),
    )
    expect(tokenizer.decode(tokenizer.encode('\u{feff}mark'))).toBe('\u{feff}mark')
  })

  test('special tokens spelled out in a text are text, unless they are asked for', () => {
    const text = 'a<|end|><|begin|>é<|pad|'
    expect(tokenizer.encode(text)).toEqual([...Buffer.from(text)])
    expect(tokenizer.encode(text, { special: true })).toEqual([97, 257, 256, 0xc3, 0xa9, ...Buffer.from('<|pad|')])
    expect(tokenizer.decode([97, 257, 256, 0xc3, 0xa9])).toBe('a<|end|><|begin|>é')
  })

  test('an empty text has no ids, special or not', () => {
    expect(tokenizer.encode('')).toEqual([])
    expect(tokenizer.encode('', { special: true })).toEqual([])
    expect(tokenizer.encode('<|end|>', { special: true })).toEqual([257])
  })

  test('half a character, and an id that means nothing, are U+FFFD', () => {
    expect(tokenizer.decode([0xe2, 0x82])).toBe('\u{fffd}')
    expect(tokenizer.decode([0xc3, 257, 0xa9])).toBe('\u{fffd}<|end|>\u{fffd}')
    expect(tokenizer.decode([97, 263, -1, 98])).toBe('a\u{fffd}\u{fffd}b')
  })

  test('special tokens are left out of what was said: bytes beside them meet, and other ids stay U+FFFD', () => {
    const { decode } = tokenizer
    expect(decode([97, 258, 98, 257], { skipSpecial: true })).toBe('ab')
    expect(decode([0xc3, 256, 0xa9, 261], { skipSpecial: true })).toBe('é')
    expect(decode([97, 263, 258, -1], { skipSpecial: true })).toBe('a\u{fffd}\u{fffd}')
  })

  test('half a surrogate pair is refused, where it stands', () => {
    expect(() => tokenizer.encode('ab\ud83d')).toThrow(/half a surrogate pair, U\+D83D, at character 2/)
    expect(() => tokenizer.encode('\ude00')).toThrow(InputError)
    expect(tokenizer.encode('😀')).toHaveLength(4)
  })

  test('its template frames each message and ends where the assistant begins', () => {
    const messages = [
      { role: 'system', content: 'Be short.' },
      { role: 'user', content: 'Hi' },
    ]
    const template = tokenizer.chatTemplate!
    expect(template.render(messages)).toBe('<|begin|><|system|>Be short.<|end|><|user|>Hi<|end|>')
    expect(template.render(messages, { addGenerationPrompt: true })).toBe(`${template.render(messages)}<|assistant|>`)
    expect(() => template.render([{ role: 'robot', content: '' }])).toThrow(/role "robot".*one of system, user/)
  })

  test('its ids are below its vocabulary size', () => {
    const ids = tokenizer.encode('<|begin|><|end|><|pad|><|system|><|user|><|assistant|><|tool|>\u{7f}', {
      special: true,
    })
    expect(ids).toEqual([256, 257, 258, 259, 260, 261, 262, 0x7f])
    expect(tokenizer.vocabularySize).toBe(263)
    expect([tokenizer.beginIds, tokenizer.endIds, tokenizer.padId]).toEqual([[256], [257], 258])
    expect(tokenizer.specialTokens.flatMap((token) => tokenizer.encode(token, { special: true }))).toEqual([
      256, 257, 258, 259, 260, 261, 262,
    ])
  })
})

describe('an alphabet', () => {
  const tokenizer = byteTokenizer({ alphabet: '01+=é😀' })

  test('its characters are the ids from 0, then end and pad', () => {
    expect(tokenizer.encode('1+0=😀é')).toEqual([1, 2, 0, 3, 5, 4])
    expect(tokenizer.decode([1, 2, 0, 3, 5, 4, 6, 7, 8])).toBe('1+0=😀é<|end|><|pad|>\u{fffd}')
    expect([tokenizer.endIds, tokenizer.padId, tokenizer.vocabularySize]).toEqual([[6], 7, 8])
    expect([tokenizer.beginIds, tokenizer.chatTemplate]).toEqual([[], null])
  })

  test('special tokens are left out of what was said', () => {
    expect(tokenizer.decode([1, 7, 0, 6, 8], { skipSpecial: true })).toBe('10\u{fffd}')
  })

  test('special tokens are encoded where they are asked for', () => {
    expect(tokenizer.encode('1<|end|><|pad|>0', { special: true })).toEqual([1, 6, 7, 0])
  })

  test('another character is refused by name', () => {
    expect(() => tokenizer.encode('1+2')).toThrow(new InputError('text "1+2"', '"2"', 'only characters of "01+=é😀"'))
    expect(() => tokenizer.encode('1<|end|>')).toThrow(/got "<"/)
  })

  test('two alphabets do not go by one id', () => {
    expect(byteTokenizer({ alphabet: '10' }).id).not.toBe(byteTokenizer({ alphabet: '01' }).id)
    expect(tokenizer.id).not.toBe(byteTokenizer().id)
  })

  test('an empty alphabet, or a character twice, is refused', () => {
    expect(() => byteTokenizer({ alphabet: '' })).toThrow(/at least one character/)
    expect(() => byteTokenizer({ alphabet: '010' })).toThrow(/"0" twice/)
  })
})

describe("in Hugging Face's form", () => {
  const alphabet = '0123456789 \n+=<|end>é😀'

  test.each([
    ['bytes', byteTokenizer(), fc.string({ unit: 'binary' })],
    ['characters', byteTokenizer({ alphabet }), fc.string({ unit: fc.constantFrom(...alphabet) })],
  ])('%s have the same ids, ends, special tokens and text', async (_, own, texts) => {
    const folder = await temporaryFolder()
    await saveTokenizer(folder, own)
    const read = await loadTokenizer(folder)
    expect(read.vocabularySize).toBe(own.vocabularySize)
    expect(read.beginIds).toEqual(own.beginIds)
    expect(read.endIds).toEqual(own.endIds)
    expect(read.specialTokens).toEqual(own.specialTokens)
    const textsOf = ({ files }: Tokenizer) => [...files].map(([name, bytes]) => [name, Buffer.from(bytes).toString()])
    expect(textsOf(read)).toEqual(textsOf(own))
    const pieces = fc.array(fc.oneof(texts, fc.constantFrom(...own.specialTokens)))
    fc.assert(
      fc.property(pieces, fc.boolean(), (parts, continues) => {
        const text = parts.join('')
        const special = own.encode(text, { special: true })
        expect(read.encode(text, { special: true, continues })).toEqual(special)
        expect(read.decode(special)).toBe(own.decode(special))
        expect(read.decode(special, { skipSpecial: true })).toBe(own.decode(special, { skipSpecial: true }))
      }),
    )
    fc.assert(
      fc.property(texts, (text) => {
        expect(read.encode(text)).toEqual(own.encode(text))
      }),
    )
    for (const ids of [[], [0xe2, 0x82], [3, -1, own.vocabularySize, 4], [0xc3, own.endIds[0]!, 0xa9]]) {
      expect(read.decode(ids)).toBe(own.decode(ids))
    }
  })

  test('characters refuse what is not of the alphabet, and bytes frame messages as the byte template does', async () => {
    const [characters, bytes] = [await temporaryFolder(), await temporaryFolder()]
    await saveTokenizer(characters, byteTokenizer({ alphabet: '01+' }))
    const read = await loadTokenizer(characters)
    expect(() => read.encode('1+2')).toThrow(
      'text "1+2": got "2", expected only text that the tokenizer has tokens for',
    )
    expect(read.chatTemplate).toBe(null)
    await saveTokenizer(bytes, byteTokenizer())
    const [own, template] = [byteTokenizer().chatTemplate!, (await loadTokenizer(bytes)).chatTemplate!]
    const messages = ['system', 'user', 'assistant', 'tool'].map((role) => ({ role, content: ` ${role}\n{{ it }} ` }))
    for (const addGenerationPrompt of [false, true]) {
      expect(template.render(messages, { addGenerationPrompt })).toBe(own.render(messages, { addGenerationPrompt }))
    }
    expect(() => template.render([{ role: 'robot', content: '' }])).toThrow(/robot/)
  })
})
