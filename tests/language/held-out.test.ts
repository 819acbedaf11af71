import { describe, expect, test } from 'vitest'
import { textEnvironmentFactory } from '../../src/environments/tasks/registry.ts'
import { usableExamples } from '../../src/language/examples.ts'
import { checkHeldOut, type HeldOut, heldOutUses } from '../../src/language/held-out.ts'
import { byteTokenizer } from '../../src/language/tokenizers/byte-tokenizer.ts'

const arithmetic = textEnvironmentFactory('text/arithmetic-1')({ numExamples: 4000 } as never)

function examplesOf(heldOut: HeldOut | null, environment = arithmetic) {
  const tokenizer = byteTokenizer({ alphabet: environment.alphabet! })
  const reader = { environment, tokenizer, context: 32, maxTokens: 4, tooLong: 'error' as const }
  return usableExamples(reader, { asked: true, learned: true }, heldOut)
}

/** The numbers of the examples that are left, and their different prompts. */
function leftOf(heldOut: HeldOut) {
  const { numbers, numQuestions } = examplesOf(heldOut)
  return {
    numbers: [...numbers],
    numQuestions,
    prompts: new Set([...numbers].map((i) => arithmetic.example(i).prompt)),
  }
}

describe('questions that are held out', () => {
  const all = new Set(Array.from({ length: 4000 }, (_, i) => arithmetic.example(i).prompt))

  test('are that part of the different ones, and what is left and what is held out share none and lack none', () => {
    for (const fraction of [0.2, 0.5]) {
      const [training, evaluation] = heldOutUses.map((use) => leftOf({ fraction, seed: 3, use }))
      expect(evaluation!.prompts.size).toBe(Math.round(fraction * all.size))
      expect(evaluation!.numQuestions).toBe(evaluation!.prompts.size)
      expect(training!.numQuestions).toBe(all.size - evaluation!.prompts.size)
      expect([...evaluation!.prompts].filter((prompt) => training!.prompts.has(prompt))).toEqual([])
      const numbers = [...training!.numbers, ...evaluation!.numbers].sort((a, b) => a - b)
      expect(numbers).toEqual(Array.from({ length: 4000 }, (_, i) => i))
    }
    expect(examplesOf(null)).toMatchObject({ numQuestions: null })
  })

  test('are the same with one seed, however the examples are numbered, and others with another', () => {
    const evaluation = (seed: number) => leftOf({ fraction: 0.2, seed, use: 'evaluation' }).prompts
    const reversed = { ...arithmetic, example: (index: number) => arithmetic.example(3999 - index) }
    const { numbers } = examplesOf({ fraction: 0.2, seed: 3, use: 'evaluation' }, reversed)
    expect(new Set([...numbers].map((i) => reversed.example(i).prompt))).toEqual(evaluation(3))
    expect(evaluation(4)).not.toEqual(evaluation(3))
  })

  test('are at least one and never all; where there is one question none can be held out', () => {
    const some = (count: number, fraction: number) => {
      const environment = { ...arithmetic, numExamples: count }
      return heldOutUses.map((use) => examplesOf({ fraction, seed: 0, use }, environment).numQuestions)
    }
    expect(some(3, 0.01)).toEqual([2, 1])
    expect(some(3, 0.99)).toEqual([1, 2])
    expect(() => some(1, 0.5)).toThrow(
      'text/arithmetic-1, heldOut: got 1 question, expected at least 2, to hold one out',
    )
  })

  test('are texts to learn where there is no prompt', () => {
    const texts = { ...arithmetic, numExamples: 10, example: (index: number) => ({ prompt: '', answer: `${index}` }) }
    const tokenizer = byteTokenizer({ alphabet: '0123456789' })
    const reader = { environment: texts, tokenizer, context: 32, maxTokens: 4, tooLong: 'error' as const }
    const held = usableExamples(reader, { asked: false, learned: true }, { fraction: 0.3, seed: 0, use: 'evaluation' })
    expect(held.numbers.length).toBe(3)
  })

  test('refuses an option that is none', () => {
    const right = { fraction: 0.2, seed: 0, use: 'training' } as const
    expect(() => checkHeldOut(right)).not.toThrow()
    for (const [wrong, message] of [
      [null, 'heldOut: got null'],
      [{ ...right, fraction: 0 }, 'heldOut.fraction: got 0, expected above 0 and below 1'],
      [{ ...right, fraction: 1 }, 'heldOut.fraction: got 1'],
      [{ ...right, seed: 0.5 }, 'heldOut.seed: got 0.5, expected a whole number ≥ 0'],
      [{ ...right, use: 'both' }, 'heldOut.use'],
      [{ ...right, part: 1 }, 'part'],
    ] as const) {
      expect(() => checkHeldOut(wrong as never)).toThrow(message)
    }
  })
})
