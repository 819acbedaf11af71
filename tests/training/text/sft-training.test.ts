import { describe, expect, test } from 'vitest'
import { languageModel } from '../../../src/language/language-model.ts'
import { evaluateText } from '../../../src/training/text/evaluate/evaluate.ts'
import { trainOnExamples } from '../../../src/training/text/learn/sft-training.ts'
import { digits } from '../../support/conversations.ts'

const small = { width: 32, layers: 1, heads: 2, anyText: true }

describe('supervised fine-tuning', () => {
  test('learns conversations by heart, in every turn of the assistant, and what others say only as context', async () => {
    const messages = [
      { role: 'user', content: 'a' },
      { role: 'assistant', content: 'bc' },
      { role: 'user', content: 'd' },
      { role: 'assistant', content: 'ef' },
    ]
    const losses: number[] = []
    const trainer = await trainOnExamples({
      policy: languageModel(small),
      examples: [{ prompt: messages }],
      settings: { updates: 60, batchSize: 1, learningRate: 1e-2 },
      onStep: ({ loss, tokens }) => {
        losses.push(loss)
        expect(tokens).toBe(6) // Two turns of two characters and an end.
      },
    })
    expect(losses.at(-1)!).toBeLessThan(0.05)
    const environment = digits({
      maxTurns: 2,
      example: () => ({ prompt: messages.slice(0, 1) }),
      respond: ({ turn }) => ({ reward: 0, ...(turn === 0 ? { messages: messages.slice(2, 3) } : {}) }),
    })
    const { weights } = trainer.world.cohort()
    const { samples } = await evaluateText({ environment, policy: languageModel(small), weights, episodes: 1 })
    expect(samples[0]!.completion).toBe('bc<|end|><|user|>d<|end|><|assistant|>ef')
  })

  test('without examples, or with one that has nothing to learn from, is an error', async () => {
    const policy = languageModel(small)
    await expect(trainOnExamples({ policy, examples: [] })).rejects.toThrow(/at least one example/)
    await expect(trainOnExamples({ policy, examples: [{ prompt: 'a' }] })).rejects.toThrow(/example 0.*no answer/s)
    const prompt = [{ role: 'user', content: 'a' }]
    await expect(trainOnExamples({ policy, examples: [{ prompt }] })).rejects.toThrow(/no answer/)
  })
})
