import { readdir, readFile } from 'node:fs/promises'
import { join, relative } from 'node:path'
import { describe, expect, test } from 'vitest'
import { languageModel } from '../../../src/text/language-model.ts'
import { loadLanguageModel } from '../../../src/text/load-language-model.ts'
import { loadTrainedModel } from '../../../src/training/text/evaluate.ts'
import { exportTrainedModel } from '../../../src/training/text/export.ts'
import { generateTokens } from '../../../src/training/text/generate.ts'
import { configureTextRun, startTextRun } from '../../../src/training/text/run.ts'
import { writeQwen2 } from '../../support/qwen2-folder.ts'
import { temporaryFolder } from '../../support/temporary.ts'

describe('the model of a run', () => {
  test('is exported with the tokenizer that it came with, into a folder that holds nothing else', async () => {
    const folder = await temporaryFolder()
    const [base, run, out] = ['base', 'run', 'out'].map((name) => join(folder, name)) as [string, string, string]
    await writeQwen2(base, { context: 64 })
    const keys = {
      mode: 'sft',
      'sft.steps': '1',
      'sft.batchSize': '2',
      'languageModel.folder': base,
      numLanes: '2',
      threads: '1',
    }
    const started = await startTextRun(await configureTextRun('text/reverse', keys), run)
    await started.train()
    await exportTrainedModel(run, out)
    const { weights, tokenizer } = await loadLanguageModel(out)
    expect(weights).toEqual(started.trainer.cohort.weights)
    expect(tokenizer.id).toBe(started.trainer.cohort.tokenizer.id)

    const before = await readFile(join(run, 'config.json'), 'utf8')
    await expect(exportTrainedModel(run, run)).rejects.toThrow('which holds a run, expected a new folder')
    await expect(exportTrainedModel(run, base)).rejects.toThrow('which is not empty, expected a new or empty folder')
    expect(await readFile(join(run, 'config.json'), 'utf8')).toBe(before)
    expect(await readdir(folder)).toHaveLength(3)
  })

  test('of a new model is whole too: run and export can be generated from and trained on', async () => {
    const folder = await temporaryFolder()
    const [run, out, next] = ['run', 'out', 'next'].map((name) => join(folder, name)) as [string, string, string]
    const keys = { 'sft.steps': '2', 'sft.batchSize': '4', numLanes: '4', threads: '1' }
    const shape = { 'languageModel.width': '16', 'languageModel.heads': '2', 'languageModel.layers': '1' }
    const first = await startTextRun(await configureTextRun('text/reverse', { ...keys, ...shape, mode: 'sft' }), run)
    await first.train()
    await exportTrainedModel(run, out)
    const asked = { prompts: ['cab='], maxTokens: 6, seed: 4 }
    const { policy, environment, weights } = await loadTrainedModel(run)
    const said = await generateTokens({ ...asked, policy, environment, weights })
    for (const whole of [join(run, 'model'), out]) {
      expect(await generateTokens({ ...asked, policy: languageModel({ folder: whole }) })).toEqual(said)
    }
    const update = { 'rl.updates': '1', 'rl.groupsPerUpdate': '2', 'rl.groupSize': '2' }
    const second = await configureTextRun('text/reverse', { ...keys, ...update, 'languageModel.folder': out })
    const { updates, sftSteps } = await (await startTextRun(second, next)).train()
    expect([sftSteps, updates]).toEqual([2, 1])
    await expect(generateTokens({ ...asked, policy: languageModel({ folder: run }) })).rejects.toThrow(
      `language model: got ${run}, a run of a language model (of "text/reverse"), expected its model: ${run}/model`,
    )
  })

  test('an adapter names its model so that it is found from anywhere', async () => {
    const folder = await temporaryFolder()
    const [base, run] = ['base', 'run'].map((name) => join(folder, name)) as [string, string]
    await writeQwen2(base, { context: 64 })
    const small = { 'sft.steps': '1', 'sft.batchSize': '2', 'languageModel.loraRank': '1', threads: '1', mode: 'sft' }
    const keys = { ...small, 'languageModel.folder': relative(process.cwd(), base) }
    await (await startTextRun(await configureTextRun('text/reverse', keys), run)).train()
    const config = JSON.parse(await readFile(join(run, 'adapter', 'adapter_config.json'), 'utf8'))
    expect(config.base_model_name_or_path).toBe(base)
  })
})
