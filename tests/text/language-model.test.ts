import { cp } from 'node:fs/promises'
import { join } from 'node:path'
import { beforeEach, describe, expect, test } from 'vitest'
import { rl } from '../../src/algorithms/rl.ts'
import { saveTransformer } from '../../src/policies/transformer/folder.ts'
import { saveLora } from '../../src/policies/transformer/lora-folder.ts'
import { transformer } from '../../src/policies/transformer/model.ts'
import { Random } from '../../src/random.ts'
import { languageModel } from '../../src/text/language-model.ts'
import { loadLanguageModel } from '../../src/text/load-language-model.ts'
import { createTextTrainer } from '../../src/training/text/trainer.ts'
import { createWorld } from '../../src/world.ts'
import { digits } from '../support/conversations.ts'
import { temporaryFolder } from '../support/temporary.ts'

const environment = digits({
  maxTokens: 5,
  example: (index) => ({ prompt: [{ role: 'user', content: `Say ${index}.` }] }),
  respond: ({ completion }) => ({ reward: completion.length }),
})

let folder: string
beforeEach(async () => {
  folder = join(await temporaryFolder(), 'model')
  await cp(new URL('../golden/tokenizers/qwen2', import.meta.url).pathname, folder, { recursive: true })
})

async function writeModel(vocabularySize: number, context = 128): Promise<void> {
  const model = transformer({
    model_type: 'qwen2',
    vocab_size: vocabularySize,
    hidden_size: 16,
    num_hidden_layers: 1,
    num_attention_heads: 2,
    num_key_value_heads: 1,
    intermediate_size: 32,
    max_position_embeddings: context,
    rms_norm_eps: 1e-6,
    rope_theta: 10_000,
    tie_word_embeddings: true,
  })
  const weights = new Float32Array(model.numParameters)
  model.initialise(weights, new Random(1), 0)
  await saveTransformer(folder, model, weights)
}

describe("a language model from Hugging Face's files", () => {
  test('has conversations by its own template, and learns from them', async () => {
    await writeModel(2048)
    const world = await createWorld({
      environment,
      policy: languageModel({ folder }),
      numLanes: 4,
      groupSize: 4,
      seed: 1,
    })
    const trainer = createTextTrainer(world, { rl: rl({ groupsPerUpdate: 2, groupSize: 4, updates: 1 }) })
    const before = trainer.cohort.weights.slice()
    for await (const { rl: figures } of trainer.updates()) {
      expect(figures!.trajectories).toBe(8)
      expect(figures!.kl.k3).toBe(0)
    }
    expect(trainer.cohort.weights).not.toEqual(before)
    const { token, lossMask } = trainer.cohort.trajectories.row(0)
    const prompt = Array.from(token).filter((_, t) => lossMask[t] === 0)
    expect(trainer.cohort.tokenizer.decode(prompt)).toMatch(/Say \d\./)
  })

  test('whose tokenizer has more ids than the model has tokens is refused, as is one without files or a context too long', async () => {
    await writeModel(64)
    const options = { environment, numLanes: 2, seed: 1 }
    await expect(createWorld({ ...options, policy: languageModel({ folder }) })).rejects.toThrow(
      /tokenizer .*ids up to/s,
    )
    await writeModel(2048)
    await expect(createWorld({ ...options, policy: languageModel({ folder, context: 256 }) })).rejects.toThrow(
      /at most 128/,
    )
    const nowhere = languageModel({ folder: `${folder}/nowhere` })
    await expect(createWorld({ ...options, policy: nowhere })).rejects.toThrow(/no folder/)
    for (const settings of [{ loraAlpha: 4 }, { loraDropout: 0.1 }, { loraTargets: ['q_proj'] }]) {
      const [name] = Object.keys(settings)
      await expect(createWorld({ ...options, policy: languageModel({ folder, ...settings }) })).rejects.toThrow(
        `languageModel.loraRank: got 0, with ${name}, expected a whole number`,
      )
    }
    const model = (await createWorld({ ...options, policy: languageModel({ folder, loraRank: 2 }) })).talk()
    const adapter = await temporaryFolder()
    await saveLora(adapter, model.adapter!.lora, model.adapter!.weights)
    await expect(createWorld({ ...options, policy: languageModel({ folder, adapter, loraRank: 3 }) })).rejects.toThrow(
      /loraRank: got 3, expected 2, as .* has, or 0/,
    )
    const cache = await temporaryFolder()
    const misspelt = loadLanguageModel('modle', { offline: true, cache })
    await expect(misspelt).rejects.toThrow(/offline is set; and there is no folder modle, expected/)
  })
})
