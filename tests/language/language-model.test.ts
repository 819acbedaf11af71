import { mkdir, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { beforeEach, describe, expect, test } from 'vitest'
import { rl, rlRates } from '../../src/algorithms/tokens/rl.ts'
import { bestKernelBuild, spansOf } from '../../src/kernels/bind.ts'
import { languageModel } from '../../src/language/language-model.ts'
import { loadLanguageModel } from '../../src/language/load-language-model.ts'
import { saveLora } from '../../src/language/transformer/lora-folder.ts'
import type { WeightBits } from '../../src/language/transformer/model.ts'
import { createTrainer } from '../../src/training/loop/trainer.ts'
import { type Generated, generateTokens } from '../../src/training/text/collect/generate.ts'
import { trainOnExamples } from '../../src/training/text/learn/sft-training.ts'
import { createWorld } from '../../src/world/world.ts'
import { digits } from '../support/conversations.ts'
import { writeQwen2 } from '../support/qwen2-folder.ts'
import { temporaryFolder } from '../support/temporary.ts'
import { packed } from './transformer/golden.ts'

const environment = digits({
  maxTokens: 5,
  example: (index) => ({ prompt: [{ role: 'user', content: `Say ${index}.` }] }),
  respond: ({ completion }) => ({ reward: completion.length }),
})

let folder: string
beforeEach(async () => {
  folder = join(await temporaryFolder(), 'model')
})

describe("a language model from Hugging Face's files", () => {
  test('has conversations by its own template, and learns from them', async () => {
    await writeQwen2(folder)
    const world = await createWorld({
      environment,
      policy: languageModel({ folder }),
      numLanes: 4,
      groupSize: 4,
      seed: 1,
    })
    const trainer = createTrainer(world, rl({ groupsPerUpdate: 2, groupSize: 4, updates: 1 }))
    const before = trainer.world.cohort().weights.slice()
    for await (const { rl: figures } of trainer.updates()) {
      expect(figures!.trajectories).toBe(8)
      expect(figures!.kl.k3).toBe(0)
    }
    expect(trainer.world.cohort().weights).not.toEqual(before)
    const { token, lossMask } = trainer.world.cohort().trajectories.row(0)
    const prompt = Array.from(token).filter((_, t) => lossMask[t] === 0)
    expect(trainer.world.cohort().tokenizer.decode(prompt)).toMatch(/Say \d\./)
  })

  test('generates in 16, 8 and 4 bits without an adapter, by the log-probabilities of the rounded weights', async () => {
    await writeQwen2(folder)
    const { model, weights } = await loadLanguageModel(folder)
    const ways: { readonly quantize: 16 | 8 | 4; readonly embeddingBits?: 8 | 4 }[] = [
      ...[{ quantize: 16 } as const, { quantize: 8 } as const, { quantize: 4 } as const],
      ...[{ quantize: 8, embeddingBits: 8 } as const, { quantize: 4, embeddingBits: 4 } as const],
    ]
    for (const way of ways) {
      const said = await generateTokens({ policy: languageModel({ folder, ...way }), prompts: ['a 1'], maxTokens: 8 })
      const [{ promptIds, completionIds, logprobs }] = said as [Generated]
      const tokens = [...promptIds, ...completionIds]
      const of = (bits: WeightBits, embeddingBits: WeightBits = 32) => {
        const own = { ...model, embeddingBits }
        const { network } = packed(own, weights, bestKernelBuild(), 64, 128, undefined, bits)
        const { logprob } = network.evaluate(network.pack(tokens, spansOf([0, tokens.length]), 0, 1))
        return [...logprob.subarray(promptIds.length - 1, tokens.length - 1)]
      }
      const embeddingBits = way.quantize === 16 ? 16 : (way.embeddingBits ?? 32)
      expect(logprobs).toEqual(of(way.quantize, embeddingBits))
      expect(logprobs).not.toEqual(of(32))
      if (embeddingBits < 16) expect(logprobs).not.toEqual(of(way.quantize))
    }
    const open = (settings: Parameters<typeof languageModel>[0]) =>
      createWorld({ environment, numLanes: 2, seed: 1, policy: languageModel({ folder, ...settings }) })
    await expect(open({ embeddingBits: 8 })).rejects.toThrow(
      'languageModel.embeddingBits: got 8, with quantize=32, expected quantize=8 or 4',
    )
    await expect(open({ quantize: 16, quantizeActivations: true })).rejects.toThrow(
      'languageModel.quantizeActivations: got true, with quantize=16, expected quantize=8 or 4, or false',
    )
  })

  test('whose tokenizer has more ids than the model has tokens is refused, as is one without files or a context too long', async () => {
    await writeQwen2(folder, { vocabularySize: 64 })
    const options = { environment, numLanes: 2, seed: 1 }
    await expect(createWorld({ ...options, policy: languageModel({ folder }) })).rejects.toThrow(
      /tokenizer .*ids up to/s,
    )
    await writeQwen2(folder)
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
    const model = (await createWorld({ ...options, policy: languageModel({ folder, loraRank: 2 }) })).cohort()
    const adapter = await temporaryFolder()
    await saveLora(adapter, model.adapter!.lora, model.adapter!.weights)
    await expect(createWorld({ ...options, policy: languageModel({ folder, adapter, loraRank: 3 }) })).rejects.toThrow(
      /loraRank: got 3, expected 2, as .* has, or 0/,
    )
    for (const [settings, said] of [
      [{ loraAlpha: 5 }, /loraAlpha: got 5, expected 4, as .* has, or 0/],
      [{ loraDropout: 0.1 }, /loraDropout: got 0.1, expected 0, as .* has, or 0/],
      [{ loraTargets: ['q_proj'] }, /loraTargets: got q_proj, expected down_proj,.*v_proj, as .* has, or none/],
      [{ loraLayers: 2 }, /loraLayers: got 2, expected layers 0, as .* has, or 0/],
      [{ loraStabilized: true }, /loraStabilized: got true, expected false, as .* has/],
      [{ loraMagnitude: true }, /loraMagnitude: got true, expected false, as .* has/],
    ] satisfies [Parameters<typeof languageModel>[0], RegExp][]) {
      const policy = languageModel({ folder, adapter, ...settings })
      await expect(createWorld({ ...options, policy })).rejects.toThrow(said)
    }
    const alike = {
      loraRank: 2,
      loraAlpha: 4,
      loraTargets: model.adapter!.lora.settings.targets as string[],
      loraLayers: 1,
    }
    const taken = (await createWorld({ ...options, policy: languageModel({ folder, adapter, ...alike }) })).cohort()
    expect(taken.adapter!.weights).toEqual(model.adapter!.weights)
    const cache = await temporaryFolder()
    const misspelt = loadLanguageModel('modle', { offline: true, cache })
    await expect(misspelt).rejects.toThrow(/offline is set; and there is no folder modle, expected/)
  })

  test.each(['width', 'layers', 'heads', 'feedForwardWidth'])('says that %s has no effect on it', async (name) => {
    await writeQwen2(folder)
    const policy = languageModel({ folder, [name]: 6 })
    const { notes, model } = (await createWorld({ environment, numLanes: 2, seed: 1, policy })).cohort()
    const others = (
      await createWorld({ environment, numLanes: 2, seed: 1, policy: languageModel({ folder }) })
    ).cohort()
    expect(notes).toEqual([
      `languageModel.${name} has no effect: ${folder} has its own sizes and tokenizer`,
      ...others.notes,
    ])
    expect(model.shape).toEqual(others.model.shape)
  })

  test('begins at random with initialize, from a folder without weights, at the learning rate of a new model', async () => {
    await writeQwen2(folder)
    const { weights: stored } = await loadLanguageModel(folder)
    await rm(join(folder, 'model.safetensors'))
    const options = { environment, numLanes: 4, groupSize: 4 }
    await expect(createWorld({ ...options, policy: languageModel({ folder }), seed: 1 })).rejects.toThrow('safetensors')
    const policy = languageModel({ folder, initialize: true })
    const weightsOf = async (seed: number) => (await createWorld({ ...options, policy, seed })).cohort().weights.slice()
    const [one, again, other] = [await weightsOf(1), await weightsOf(1), await weightsOf(2)]
    expect(again).toEqual(one)
    expect(other).not.toEqual(one)
    expect(one).toHaveLength(stored.length)
    const deviation = Math.hypot(...one.subarray(0, 2048 * 16)) / Math.sqrt(2048 * 16) // The embedding.
    expect(deviation).toBeCloseTo(0.02, 3)
    const trainer = createTrainer(
      await createWorld({ ...options, policy, seed: 1 }),
      rl({ groupsPerUpdate: 2, groupSize: 4, updates: 1 }),
    )
    for await (const { learningRate } of trainer.updates()) expect(learningRate).toBe(rlRates.made)

    const refused = { folder, initialize: true, loraRank: 2 }
    await expect(createWorld({ ...options, policy: languageModel(refused), seed: 1 })).rejects.toThrow(
      'languageModel.initialize: got true, with an adapter, expected false, or no adapter',
    )
    await expect(createWorld({ ...options, policy: languageModel({ initialize: true }), seed: 1 })).rejects.toThrow(
      'languageModel.initialize: got true, without languageModel.folder, expected a folder with config.json',
    )
  })

  test.each(['adam', 'muon', 'adam8'])('by %s trains only the parameters that trainable names', async (optimizer) => {
    await writeQwen2(folder)
    const policyOf = (...trainable: string[]) => languageModel({ folder, trainable })
    const examples = [{ prompt: 'a', answer: 'b' }]
    const changedBy = async (...trainable: string[]) => {
      const norms: number[] = []
      const settings = { updates: 2, batchSize: 1, optimizer, weightDecay: 0.1, learningRate: 1e-2 }
      const onStep = ({ gradNorm }: { gradNorm: number }) => norms.push(gradNorm)
      const { world } = await trainOnExamples({ policy: policyOf(...trainable), examples, settings, onStep })
      const trained = world.cohort().weights
      const { model, weights } = await loadLanguageModel(folder)
      const changed = model.parameters.filter(({ offset, shape }) => {
        const end = offset + shape.reduce((product, side) => product * side, 1)
        return weights.subarray(offset, end).some((value, i) => value !== trained[offset + i])
      })
      return { names: changed.map(({ name }) => name), norms, all: model.parameters.length }
    }
    const whole = await changedBy()
    expect(whole.names).toHaveLength(whole.all)
    const some = await changedBy('model.norm.weight', '*.q_proj.*')
    const attention = 'model.layers.0.self_attn.q_proj'
    expect(some.names).toEqual([`${attention}.weight`, `${attention}.bias`, 'model.norm.weight'])
    expect(some.norms[0]).toBeGreaterThan(0)
    expect(some.norms[0]).toBeLessThan(0.9 * whole.norms[0]!)

    const world = (trainable: string, more = {}) =>
      createWorld({ environment, policy: languageModel({ folder, trainable: [trainable], ...more }), numLanes: 2 })
    await expect(world('model.layer.*')).rejects.toThrow(
      'languageModel.trainable: got "model.layer.*", expected the name of a parameter, like model.embed_tokens.weight',
    )
    await expect(world('*', { loraRank: 2 })).rejects.toThrow(/trainable: got \*, with an adapter/)
  })

  test('that is none of ours and opens no language model is an error that says what it lacks', async () => {
    const own = await languageModel().open(environment)
    const { openWeights: _, ...unread } = own
    for (const [opened, message] of [
      [undefined, 'policy mine, model of open(): got undefined, expected a model made by transformer()'],
      [{ ...own, model: { shape: {} } }, 'policy mine, model of open(): got {"shape":{}}'],
      [
        { ...own, tokenizer: {} },
        'policy mine, tokenizer of open(): got {}, expected a tokenizer, like byteTokenizer()',
      ],
      [{ ...own, context: 1.5 }, 'policy mine, context of open(): got 1.5, expected a whole number ≥ 2'],
      [unread, 'policy mine, openWeights of open(): got undefined, expected a function'],
    ] as const) {
      const policy = { id: 'mine', parameters: {}, open: async () => opened } as never
      await expect(createWorld({ environment, policy, numLanes: 2 })).rejects.toThrow(message)
    }
    const nameless = { open: async () => own } as never
    await expect(createWorld({ environment, policy: nameless, numLanes: 2 })).rejects.toThrow(
      /^policy: got .*languageModel/,
    )
  })

  test('in the folder of a control run is none, and that is said', async () => {
    await mkdir(folder)
    const config = { colonnade: '0.1.0', environment: { id: 'CartPole-v1', parameters: {} }, policy: {}, settings: {} }
    await writeFile(join(folder, 'config.json'), JSON.stringify(config))
    await expect(loadLanguageModel(folder)).rejects.toThrow(
      `language model: got ${folder}, a control run (of "CartPole-v1"), expected a run of a language model, or the folder of one`,
    )
  })
})
