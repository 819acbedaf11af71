import { describe, expect, test } from 'vitest'
import { InputError } from '../../../src/base/errors.ts'
import {
  accuracyReward,
  computeF1Score,
  f1ScoreReward,
  formatReward,
  keywordReward,
  lengthReward,
} from '../../../src/language/rewards/basic.ts'
import type { Reward } from '../../../src/language/rewards/reward.ts'
import { containsPhrase, normalizedText, wordsOf } from '../../../src/language/rewards/words.ts'
import * as fc from '../../support/properties.ts'

const value = (made: Reward, completion: string, answer?: string): unknown =>
  made('', completion, { prompt: '', ...(answer !== undefined && { answer }) })

describe('length', () => {
  test('is 1 within the tolerance and falls in a straight line outside, on both sides', () => {
    const made = lengthReward({ targetLength: 10, tolerance: 0.2 })
    const ofWords = (count: number): unknown => value(made, 'word '.repeat(count))
    expect([8, 10, 12].map(ofWords)).toEqual([1, 1, 1])
    expect(ofWords(15)).toBeCloseTo(0.7, 12)
    expect(ofWords(5)).toBeCloseTo(0.7, 12)
    expect(ofWords(0)).toBeCloseTo(0.2, 12)
    expect(ofWords(100)).toBe(0)
  })

  test('counts words as a reader does', () => {
    expect(wordsOf("Don't panic — it's 1,000.5 km, café-bar!")).toEqual([
      "don't",
      'panic',
      "it's",
      '1,000.5',
      'km',
      'café-bar',
    ])
    expect(wordsOf(' \n')).toEqual([])
  })
})

describe('keyword', () => {
  test('is the share of whole words found, and a bonus for all', () => {
    const made = keywordReward({ keywords: ['cat', 'C++', 'ice cream'], bonusMultiplier: 2 })
    expect(value(made, 'Category of concatenation')).toBe(0)
    expect(value(made, 'A CAT.')).toBeCloseTo(1 / 3, 12)
    expect(value(made, 'The cat likes c++ and ice cream')).toBe(2)
    expect(() => keywordReward()).toThrow(InputError)
    expect(() => keywordReward({ keywords: [''] })).toThrow(InputError)
  })

  test('takes a phrase as it stands, whatever characters it has', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'grapheme' }), (text) => {
        fc.pre(text.trim() !== '')
        expect(containsPhrase(`( ${text} )`, text)).toBe(true)
      }),
    )
  })
})

describe('accuracy and F1', () => {
  test('forgive capitals, spaces and punctuation at the ends, and nothing else', () => {
    const made = accuracyReward()
    expect(value(made, ' Paris. ', 'paris')).toBe(1)
    expect(value(made, 'In Paris', 'paris')).toBe(0)
    expect(value(made, '-5', '5')).toBe(0)
    expect(value(made, '', 'A')).toBe(0)
    expect(value(made, 'the', 'A')).toBe(0)
    expect(value(made, '', '.')).toBe(0)
    expect(value(accuracyReward({ similarityThreshold: 0.6 }), 'in Paris', 'Paris')).toBe(1)
  })

  test('compare texts in lower case, with one space between words and no punctuation at their ends', () => {
    expect(normalizedText(' "Well,  DONE!"\n it is. ')).toBe('well, done!" it is')
    expect(normalizedText('Straße')).toBe('straße')
    expect(normalizedText('?!')).toBe('')
  })

  test('have no value where there is no answer to compare with: not 0', () => {
    expect(value(accuracyReward(), 'x')).toMatchObject({ value: null, failure: 'noReference' })
    expect(value(f1ScoreReward(), 'x')).toMatchObject({ value: null, failure: 'noReference' })
  })

  test('F1 counts a repeated word once for each time it is wanted', () => {
    // P = 2/5, R = 2/2
    expect(computeF1Score('the cat cat sat down there', 'cat sat')).toBeCloseTo((2 * 0.4 * 1) / 1.4, 12)
    expect(computeF1Score('a dog', 'the cat')).toBe(0)
    expect(computeF1Score('a dog and an owl', 'the dog and owl')).toBe(1)
    expect(value(f1ScoreReward(), 'one dog', 'a dog')).toBeCloseTo(2 / 3, 12)
    expect(computeF1Score('a', 'A')).toBe(1)
    expect(computeF1Score('', 'A')).toBe(0)
    expect(computeF1Score('', '')).toBe(1)
  })
})

describe('format', () => {
  test.each([
    ['<think>a</think><answer>b</answer>', 1],
    [' <think>a\n</think>\n<answer>b</answer> ', 1],
    ['<think>a</think>b', 0],
    ['<answer>b</answer><think>a</think>', 0],
    ['<think></think><answer>b</answer>', 0],
    ['<think>a</think><answer>b</answer>!', 0],
    ['<think><answer>x</answer></think><answer>b</answer>', 0],
    ['<think>a</think><think>a</think><answer>b</answer>', 0],
    ['', 0],
  ])('of %s is %d', (completion, expected) => {
    expect(value(formatReward(), completion)).toBe(expected)
  })

  test('refuses tags that are no names', () => {
    expect(() => formatReward({ tags: [] })).toThrow(InputError)
    expect(() => formatReward({ tags: ['a b'] })).toThrow(/letters, digits/)
  })
})
