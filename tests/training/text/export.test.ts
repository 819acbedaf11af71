import { readdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { loadLanguageModel } from '../../../src/text/load-language-model.ts'
import { exportTrainedModel } from '../../../src/training/text/export.ts'
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
})
