import { cp, mkdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { beforeEach, describe, expect, test } from 'vitest'
import { rl } from '../../../src/algorithms/tokens/rl.ts'
import { ratesOf, sft } from '../../../src/algorithms/tokens/sft.ts'
import { languageModel } from '../../../src/language/language-model.ts'
import { createTrainer } from '../../../src/training/loop/trainer.ts'
import type { ConversationRunDefinition } from '../../../src/training/run/definition.ts'
import { configureRun, resumeRun, startRun } from '../../../src/training/run/run.ts'
import { planTextRun } from '../../../src/training/text/learn/plan.ts'
import { trainOnExamples } from '../../../src/training/text/learn/sft-training.ts'
import { createWorld } from '../../../src/world/world.ts'
import { digits } from '../../support/conversations.ts'
import { writeQwen2 } from '../../support/qwen2-folder.ts'
import { temporaryFolder } from '../../support/temporary.ts'

let folder: string
beforeEach(async () => {
  folder = join(await temporaryFolder(), 'model')
})

/** A folder with configuration and tokenizer, and no weights: whoever would read them fails. */
async function writeWithoutWeights(sizes: Record<string, unknown>): Promise<void> {
  await mkdir(folder)
  await cp(new URL('../../golden/tokenizers/qwen2', import.meta.url).pathname, folder, { recursive: true })
  const config = { model_type: 'llama', vocab_size: 49_152, rms_norm_eps: 1e-5, tie_word_embeddings: true, ...sizes }
  await writeFile(join(folder, 'config.json'), JSON.stringify(config))
}

/** Of SmolLM2-135M. */
const SMALL = {
  ...{ hidden_size: 576, intermediate_size: 1536, num_hidden_layers: 30, num_attention_heads: 9 },
  ...{ num_key_value_heads: 3, max_position_embeddings: 8192 },
}
/** Of Llama 2 7B. */
const LARGE = {
  ...{ hidden_size: 4096, intermediate_size: 11_008, num_hidden_layers: 32, num_attention_heads: 32 },
  ...{ max_position_embeddings: 4096 },
}

const planned = async (keys: Record<string, string>) =>
  planTextRun(await configureRun('text/copy', { 'languageModel.folder': folder, threads: '1', ...keys }))

describe('what a run uses where the user says nothing', () => {
  test('has a word where looking at all examples takes long', async () => {
    const notesOf = async (keys: Record<string, string>) =>
      (await planTextRun(await configureRun('text/sort', keys))).notes
    const wait = 'this may take minutes'
    expect(await notesOf({ 'environment.maxLength': '60000' })).toEqual([
      `checking 20,000 examples with turns of up to 60001 tokens first: ${wait}`,
    ])
    expect(await notesOf({ 'environment.numExamples': '60000000' })).toEqual([
      `checking 60,000,000 examples with turns of up to 5 tokens first: ${wait}`,
    ])
    expect(await notesOf({ 'environment.numExamples': '50000000' })).toEqual([])
  })

  test('with a loaded model is what the field has: no supervised steps, small learning rates, ε 1e-8', async () => {
    await writeQwen2(folder)
    const { definition, notes } = await planned({})
    expect(definition.sft).toBe(null)
    expect(definition.settings).toMatchObject({ mode: 'rl', numLanes: 64 })
    expect(definition.rl!.settings).toMatchObject({ learningRate: 1e-6, beta1: 0.9, beta2: 0.999, epsilon: 1e-8 })
    expect(definition.rl!.loss.settings.entropyCoef).toBe(0)
    expect(definition.policy.parameters.context).toBe(128)
    expect(notes).toEqual([
      expect.stringMatching(/^context 128 of the model's 128: what fits [\d.]+ GiB$/),
      'learning rate 0.000001 of updates: as usual for loaded models',
    ])
  })

  test('with its adapters it is their rates, and with keys of supervised steps there are some', async () => {
    await writeQwen2(folder)
    const adapted = (await planned({ 'languageModel.loraRank': '2' })).definition
    expect(adapted.rl!.settings.learningRate).toBe(1e-4)
    const both = (await planned({ 'sft.updates': '3' })).definition
    expect(both.settings.mode).toBe('sft+rl')
    expect(both.sft!.settings).toMatchObject({ updates: 3, learningRate: 2e-5, epsilon: 1e-8 })
    const supervised = (await planned({ mode: 'sft', 'languageModel.loraRank': '2' })).definition
    expect(supervised.sft!.settings).toMatchObject({ updates: 100, learningRate: 1e-4 })
    const own = (await planned({ 'rl.learningRate': '0.25', 'languageModel.context': '32', numLanes: '3' })).definition
    expect(own.rl!.settings.learningRate).toBe(0.25)
    expect(own.policy.parameters.context).toBe(32)
    expect(own.settings.numLanes).toBe(3)
  })

  test('with a new model is what its task is known to be learnt with', async () => {
    const { definition, notes } = await planTextRun(await configureRun('text/reverse', { threads: '1' }))
    expect(definition.settings).toMatchObject({ mode: 'sft+rl', numLanes: 128 })
    expect(definition.sft!.settings).toMatchObject({ updates: 150, learningRate: 3e-3, epsilon: 1e-5 })
    expect(definition.rl!.settings).toMatchObject({ updates: 500, learningRate: 1e-3, epsilon: 1e-5 })
    expect(definition.policy.parameters).toMatchObject({ folder: '', context: 0 })
    expect(notes).toEqual([])
  })

  test('keys of a phase that the mode leaves out are refused, and not passed over', async () => {
    const configured = (keys: Record<string, string>) => configureRun('text/copy', keys)
    await expect(configured({ mode: 'rl', 'sft.updates': '3' })).rejects.toThrow(
      'mode: got rl, with sft.updates, expected sft or sft+rl, or no such key',
    )
    await expect(configured({ mode: 'sft', 'loss.klCoef': '1' })).rejects.toThrow('mode: got sft, with loss.klCoef')
  })

  test('a trainer that is told no learning rate takes that of what it trains', async () => {
    await writeQwen2(folder)
    const rates: number[] = []
    for (const parameters of [{ folder }, { folder, loraRank: 2 }, { width: 16, heads: 2 }]) {
      const world = await createWorld({
        environment: digits({ respond: ({ completion }) => ({ reward: completion.length }) }),
        policy: languageModel(parameters),
        numLanes: 2,
        groupSize: 2,
      })
      const trainer = createTrainer(world, rl({ updates: 1, groupsPerUpdate: 1, groupSize: 2 }))
      for await (const { learningRate } of trainer.updates()) rates.push(learningRate)
    }
    const examples = [{ prompt: '1', answer: '2' }]
    const onStep = ({ learningRate }: { learningRate: number }) => rates.push(learningRate)
    await trainOnExamples({ policy: languageModel({ folder }), examples, settings: { updates: 1 }, onStep })
    expect(rates).toEqual([1e-6, 1e-4, 1e-3, 2e-5])
    const byLoss = (loss: string) => ratesOf(sft({ loss }))
    expect(byLoss('dpo')).toMatchObject({ loaded: 1e-6, adapter: 1e-5 })
    expect(byLoss('reward')).toMatchObject({ loaded: 1e-4, adapter: 1e-3 }) // As TRL's RewardConfig.
  })
})

const { availableMemory } = process as NodeJS.Process & { availableMemory(): number }

describe('the plan of a run', () => {
  test('is chosen so that it fits, told, and written down, before any weight is read', async () => {
    await writeWithoutWeights(SMALL)
    const { definition, bytes, parts, notes } = await planned({ threads: '2' })
    const { context } = definition.policy.parameters as { context: number }
    expect([64, 128, 256, 512, 1024]).toContain(context)
    expect([8, 16, 32, 64]).toContain(definition.settings.numLanes)
    expect(notes[0]!.includes(` ${definition.settings.numLanes} lanes`)).toBe(definition.settings.numLanes < 64)
    expect(notes[0]).not.toContain('threads')
    expect(bytes).toBeLessThanOrEqual(Math.max(2 ** 32, availableMemory() / 2))
    expect(notes[0]).toMatch(`context ${context} of the model's 8192`)
    // 134,515,008 parameters: one column of weights, two of Adam's, a gradient with that of its embeddings apart; and each lane's cache.
    expect(parts).toMatchObject({
      weights: 4 * 134_515_008,
      optimizer: 2 * 4 * 134_515_008 + 16,
      gradients: 4 * (134_515_008 + 49_152 * 576),
      cache: definition.settings.numLanes * context * 30 * 2 * 192 * 4,
    })
    const sum = Object.values(parts).reduce((total, part) => total + part, 0)
    expect(sum).toBeLessThanOrEqual(bytes)
    expect(sum).toBeGreaterThan(0.999 * bytes)
    await expect(startRun(definition, join(await temporaryFolder(), 'run'))).rejects.toThrow(/model.safetensors/)
  })

  test('that does not fit is refused before any weight is read, with the keys that lower it', async () => {
    await writeWithoutWeights(LARGE)
    await expect(planned({})).rejects.toThrow(
      /memory: got a plan of 1\d\d\.\d\d GiB \(most of it for .*\), expected at most .* GiB.*: less of languageModel.context \(now 16\), numLanes \(1\), threads \(1\), languageModel.checkpointing=true, languageModel.cacheBits=16, or an adapter instead of all weights \(languageModel.loraRank\)$/,
    )
    await expect(planned({ 'languageModel.loraRank': '4', numLanes: '5' })).rejects.toThrow(
      /numLanes \(5\), threads \(1\), languageModel.checkpointing=true, languageModel.cacheBits=16, or languageModel.quantize=16, 8 or 4$/,
    )
    const started = configureRun('text/copy', { 'languageModel.folder': folder }).then((run) => startRun(run))
    await expect(started).rejects.toThrow(/^memory: got a plan/)
    const world = createWorld({ environment: digits({}), policy: languageModel({ folder }), numLanes: 2 })
    await expect(world).rejects.toThrow(/^memory: .*: fewer numLanes, or a smaller languageModel.context$/)
  })

  test('of sizes that the user names is that, or is refused with them', async () => {
    await writeWithoutWeights(SMALL)
    await expect(planned({ 'languageModel.context': '8192', numLanes: '100' })).rejects.toThrow(
      /languageModel.context \(now 8192\), numLanes \(100\)/,
    )
  })

  test('a resumed run has the sizes and rates of the first', async () => {
    await writeQwen2(folder)
    const run = join(await temporaryFolder(), 'run')
    const keys = { 'languageModel.folder': folder, threads: '1', 'rl.updates': '0', numLanes: '2' }
    const plans: number[] = []
    const started = await startRun(await configureRun('text/copy', keys), run, ({ bytes }) => plans.push(bytes))
    await started.train()
    const config = JSON.parse(await readFile(join(run, 'config.json'), 'utf8'))
    expect(config.policy.parameters.context).toBe(128)
    expect(config.rl.parameters.learningRate).toBe(1e-6)
    const resumed = await resumeRun<ConversationRunDefinition>(run, {}, ({ bytes }) => plans.push(bytes))
    expect(resumed.definition.settings).toEqual(started.definition.settings)
    expect(resumed.definition.policy.parameters).toEqual(started.definition.policy.parameters)
    expect(plans[1]).toBe(plans[0])
    expect(resumed.trainer.world.arena.bytes).toBe(plans[0])
    await resumed.train()
  })
})
