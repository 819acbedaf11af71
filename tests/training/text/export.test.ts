import { cp, readdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { saveTransformer } from '../../../src/policies/transformer/folder.ts'
import { transformer } from '../../../src/policies/transformer/model.ts'
import { Random } from '../../../src/random.ts'
import { loadLanguageModel } from '../../../src/text/load-language-model.ts'
import { exportTrainedModel } from '../../../src/training/text/export.ts'
import { configureTextRun, startTextRun } from '../../../src/training/text/run.ts'
import { temporaryFolder } from '../../support/temporary.ts'

async function baseModel(folder: string): Promise<void> {
  await cp(new URL('../../golden/tokenizers/qwen2', import.meta.url).pathname, folder, { recursive: true })
  const model = transformer({
    model_type: 'qwen2',
    vocab_size: 2048,
    hidden_size: 16,
    num_hidden_layers: 1,
    num_attention_heads: 2,
    num_key_value_heads: 1,
    intermediate_size: 32,
    max_position_embeddings: 64,
    rms_norm_eps: 1e-6,
    rope_theta: 10_000,
    tie_word_embeddings: true,
  })
  const weights = new Float32Array(model.numParameters)
  model.initialise(weights, new Random(1), 0)
  await saveTransformer(folder, model, weights)
}

describe('the model of a run', () => {
  test('is exported with the tokenizer that it came with, into a folder that holds nothing else', async () => {
    const folder = await temporaryFolder()
    const [base, run, out] = ['base', 'run', 'out'].map((name) => join(folder, name)) as [string, string, string]
    await baseModel(base)
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
