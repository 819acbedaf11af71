import { rm } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { reverse } from '../../../src/environments/tasks/sequences.ts'
import { languageModel } from '../../../src/language/language-model.ts'
import { wholeWeights } from '../../../src/language/transformer/quantized.ts'
import { transformerLogprobs } from '../../../src/training/backends/transformer-logprobs.ts'
import { generateTokens } from '../../../src/training/text/collect/generate.ts'
import { createWorld } from '../../../src/world/world.ts'
import { writeQwen2 } from '../../support/qwen2-folder.ts'
import { temporaryFolder } from '../../support/temporary.ts'

const policy = languageModel({ width: 16, layers: 1, heads: 2 })
const environment = reverse()
const prompts = ['abc=', 'b=', 'dcba=']

describe('answers of a language model', () => {
  test('come prompt by prompt, with ids as said and the log-probabilities that evaluation gives, bit for bit', async () => {
    const answers = await generateTokens({ policy, environment, prompts, samples: 3, maxTokens: 9 })
    expect(answers.map(({ prompt, sample }) => [prompt, sample])).toEqual(
      [0, 1, 2].flatMap((prompt) => [0, 1, 2].map((sample) => [prompt, sample])),
    )
    expect(new Set(answers.map(({ completion }) => completion)).size).toBeGreaterThan(3)
    const cohort = (await createWorld({ environment, policy, numLanes: 1, seed: 0 })).cohort()
    const evaluated = transformerLogprobs(cohort)
    for (const { prompt, promptIds, completionIds, completion, logprobs, stopReason } of answers) {
      expect(cohort.tokenizer.decode(promptIds)).toBe(prompts[prompt])
      const [all] = await evaluated.logprobs([[...promptIds, ...completionIds]])
      expect(Array.from(all!).slice(promptIds.length - 1)).toEqual(Array.from(logprobs))
      const isEnded = cohort.tokenizer.endIds.includes(completionIds.at(-1)!)
      expect(isEnded).toBe(stopReason === 'stop')
      const said = isEnded ? completionIds.slice(0, -1) : completionIds
      expect(completion).toBe(cohort.tokenizer.decode(said, { skipSpecial: true }))
      expect(isEnded || completionIds.length === 9).toBe(true)
    }
  })

  test.each([8, 4] as const)(
    'come from weights in %s bits without an adapter too, with the bits of their evaluation',
    async (quantize) => {
      const folder = join(await temporaryFolder(), 'model')
      await writeQwen2(folder)
      const given = { prompts: ['one two', 'three'], maxTokens: 9 }
      const answers = await generateTokens({ policy: languageModel({ folder, quantize, context: 64 }), ...given })
      const rough = (
        await createWorld({ environment, policy: languageModel({ folder, quantize, context: 64 }), numLanes: 1 })
      ).cohort()
      expect(rough.weights.length).toBe(0)
      const { model } = rough
      const exact = transformerLogprobs({ model, weights: wholeWeights(model, rough.quantized!) })
      for (const { promptIds, completionIds, logprobs } of answers) {
        const ids = [...promptIds, ...completionIds]
        const [said] = await exact.logprobs([ids])
        expect(Array.from(said!).slice(promptIds.length - 1)).toEqual(Array.from(logprobs))
      }
    },
  )

  test('are the same for one seed, others for another, and alike without exploring', async () => {
    const said = async (options: object) =>
      (await generateTokens({ policy, environment, prompts, samples: 2, ...options })).map(
        ({ completion }) => completion,
      )
    const model = (await createWorld({ environment, policy, numLanes: 1, seed: 0 })).cohort()
    const weights = model.weights.slice()
    const drawn = await said({ weights })
    expect(await said({ weights })).toEqual(drawn)
    expect(await said({ weights, seed: 1 })).not.toEqual(drawn)
    const [first, second] = await said({ weights, seed: 2, explore: false })
    expect(first).toBe(second)
  })

  test('of a loaded model take the context that they need, however long it was made for, or the one that is named', async () => {
    const folder = join(await temporaryFolder(), 'model')
    await writeQwen2(folder, { context: 2 ** 30 })
    const loaded = languageModel({ folder })
    const asked = { policy: loaded, prompts: ['one two', 'three'], maxTokens: 5, seed: 2 }
    const answers = await generateTokens(asked)
    expect(answers.map(({ completionIds }) => completionIds.length)).toEqual([5, 5])
    const prompt = answers[0]!.promptIds.length
    // The model's own setting of its context is left as it is.
    const own = await generateTokens({ ...asked, policy: languageModel({ folder, context: prompt + 1 }) })
    expect(own[0]).toMatchObject({ stopReason: 'context', completionIds: answers[0]!.completionIds.slice(0, 1) })
    const short = await generateTokens({ ...asked, context: prompt + 2 })
    expect(short[0]).toMatchObject({ stopReason: 'context', completionIds: answers[0]!.completionIds.slice(0, 2) })
    await expect(generateTokens({ ...asked, context: prompt })).rejects.toThrow(`${prompt} tokens`)
    // All the positions that it was made for have no room: refused before the weights are looked for.
    await rm(join(folder, 'model.safetensors'))
    await expect(generateTokens({ ...asked, context: 2 ** 30 })).rejects.toThrow(
      /^memory: got a plan .*languageModel.context$/,
    )
  })

  test('of no prompt, no number of samples and a prompt too long are errors', async () => {
    const asked = (options: object) => generateTokens({ policy, environment, prompts, ...options })
    await expect(asked({ prompts: [] })).rejects.toThrow(/prompts.*at least one/s)
    await expect(asked({ samples: 0 })).rejects.toThrow(/samples.*a whole number/s)
    await expect(asked({ prompts: ['a'.repeat(64)] })).rejects.toThrow(/64/)
    await expect(asked({ prompts: [''] })).rejects.toThrow(/at least one token/)
  })

  test('of messages that are none, and with an adapter that is none, are errors', async () => {
    const asked = (options: object) => generateTokens({ policy, prompts, ...options })
    await expect(asked({ prompts: [[]] })).rejects.toThrow(/prompts, example 0, prompt: got no message, expected/)
    await expect(asked({ prompts: [['a']] })).rejects.toThrow(/message: got "a", expected a message like/)
    await expect(asked({ prompts: [[{ role: 'user' }]] })).rejects.toThrow(/message: got {"role":"user"}, expected/)
    await expect(asked({ adapter: 3 })).rejects.toThrow(/adapter: got 3, expected a Float32Array, or a folder/)
  })
})
