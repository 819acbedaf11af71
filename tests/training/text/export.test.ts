import { readdir, readFile } from 'node:fs/promises'
import { join, relative } from 'node:path'
import { describe, expect, test } from 'vitest'
import { languageModel } from '../../../src/language/language-model.ts'
import { loadLanguageModel } from '../../../src/language/load-language-model.ts'
import { samplesToTrajectories } from '../../../src/tables/trajectories/sample.ts'
import { loadSamplesFromJsonl } from '../../../src/tables/trajectories/sample-files.ts'
import { sampleForms } from '../../../src/tables/trajectories/sample-forms.ts'
import type { Trajectories } from '../../../src/tables/trajectories/trajectories.ts'
import { readTrajectories } from '../../../src/tables/trajectories/trajectory-table.ts'
import { loadTrainedModel } from '../../../src/training/backends/trained-model.ts'
import { configureRun, startRun } from '../../../src/training/run/run.ts'
import { generateTokens } from '../../../src/training/text/collect/generate.ts'
import {
  exportTrainedModel,
  exportTrajectories,
  trajectoryFormats,
} from '../../../src/training/text/evaluate/export.ts'
import { writeQwen2 } from '../../support/qwen2-folder.ts'
import { temporaryFolder } from '../../support/temporary.ts'
import { plain } from '../../support/trajectories.ts'

describe('the model of a run', () => {
  test('is exported with the tokenizer that it came with, into a folder that holds nothing else', async () => {
    const folder = await temporaryFolder()
    const [base, run, out] = ['base', 'run', 'out'].map((name) => join(folder, name)) as [string, string, string]
    await writeQwen2(base, { context: 64 })
    const keys = {
      mode: 'sft',
      'sft.updates': '1',
      'sft.batchSize': '2',
      'languageModel.folder': base,
      numLanes: '2',
      threads: '1',
    }
    const started = await startRun(await configureRun('text/arithmetic-1', keys), run)
    await started.train()
    await exportTrainedModel(run, out)
    const { weights, tokenizer } = await loadLanguageModel(out)
    expect(weights).toEqual(started.trainer.world.cohort().weights)
    expect(tokenizer.id).toBe(started.trainer.world.cohort().tokenizer.id)

    const before = await readFile(join(run, 'config.json'), 'utf8')
    await expect(exportTrainedModel(run, run)).rejects.toThrow('which holds a run, expected a new folder')
    await expect(exportTrainedModel(run, base)).rejects.toThrow('which is not empty, expected a new or empty folder')
    expect(await readFile(join(run, 'config.json'), 'utf8')).toBe(before)
    expect(await readdir(folder)).toHaveLength(3)
  })

  test('of a new model is whole too: run and export can be generated from and trained on', async () => {
    const folder = await temporaryFolder()
    const [run, out, next] = ['run', 'out', 'next'].map((name) => join(folder, name)) as [string, string, string]
    const keys = { 'sft.updates': '2', 'sft.batchSize': '4', numLanes: '4', threads: '1' }
    const shape = { 'languageModel.width': '16', 'languageModel.heads': '2', 'languageModel.layers': '1' }
    const first = await startRun(await configureRun('text/reverse', { ...keys, ...shape, mode: 'sft' }), run)
    await first.train()
    await exportTrainedModel(run, out)
    const asked = { prompts: ['cab='], maxTokens: 6, seed: 4 }
    const { policy, environment, weights } = await loadTrainedModel(run)
    const said = await generateTokens({ ...asked, policy, environment, weights })
    for (const whole of [join(run, 'model'), out]) {
      expect(await generateTokens({ ...asked, policy: languageModel({ folder: whole }) })).toEqual(said)
    }
    const update = { 'rl.updates': '1', 'rl.groupsPerUpdate': '2', 'rl.groupSize': '2' }
    const second = await configureRun('text/reverse', { ...keys, ...update, 'languageModel.folder': out })
    const { updates, sftSteps } = await (await startRun(second, next)).train()
    expect([sftSteps, updates]).toEqual([2, 1])
    await expect(generateTokens({ ...asked, policy: languageModel({ folder: run }) })).rejects.toThrow(
      `language model: got ${run}, a run of a language model (of "text/reverse"), expected its model: ${run}/model`,
    )
  })

  test('an adapter names its model so that it is found from anywhere', async () => {
    const folder = await temporaryFolder()
    const [base, run] = ['base', 'run'].map((name) => join(folder, name)) as [string, string]
    await writeQwen2(base, { context: 64 })
    const small = { 'sft.updates': '1', 'sft.batchSize': '2', 'languageModel.loraRank': '1', threads: '1', mode: 'sft' }
    const keys = { ...small, 'languageModel.folder': relative(process.cwd(), base) }
    await (await startRun(await configureRun('text/arithmetic-1', keys), run)).train()
    const config = JSON.parse(await readFile(join(run, 'adapter', 'adapter_config.json'), 'utf8'))
    expect(config.base_model_name_or_path).toBe(base)
  })
})

describe('the conversations of a run', () => {
  test('are exported with prompts, answers and completions as words, as Arrow or as samples that read back', async () => {
    const folder = await temporaryFolder()
    const [run, arrow, lines] = ['run', 'all.arrow', 'all.jsonl'].map((name) => join(folder, name)) as [
      ...[string, string, string],
    ]
    const keys = {
      ...{ mode: 'rl', 'rl.updates': '2', 'rl.groupsPerUpdate': '2', 'rl.groupSize': '3', 'rl.topK': '5' },
      ...{ 'languageModel.width': '8', 'languageModel.layers': '1', trajectories: 'all', numLanes: '4', threads: '1' },
    }
    const started = await startRun(await configureRun('text/reverse', keys), run)
    await expect(exportTrajectories(run, arrow)).rejects.toThrow(
      /trajectories of .*run: got none, expected a run that kept/,
    )
    await started.train()
    await expect(exportTrajectories(run, arrow, 'csv' as never)).rejects.toThrow(/format: got "csv"/)
    const starts: Record<string, string> = {}
    for (const format of trajectoryFormats.filter((each) => !(sampleForms as readonly string[]).includes(each))) {
      const path = format === 'file' ? arrow : format === 'jsonl' ? lines : join(folder, format)
      expect(await exportTrajectories(run, path, format)).toBe(12)
      starts[format] = (await readFile(path)).subarray(0, 6).toString('latin1')
    }
    // Arrow's magic word begins a file; a stream begins with a continuation mark.
    expect(starts).toEqual({
      file: 'ARROW1',
      stream: expect.stringMatching(/^\xff{4}/),
      jsonl: '{"id":',
      parquet: expect.stringMatching(/^PAR1/),
    })

    const { trajectories, words } = await readTrajectories(arrow)
    const { environment, tokenizer, trajectories: last } = started.trainer.world.cohort()
    expect(trajectories.count).toBe(12)
    const samples = await loadSamplesFromJsonl(lines)
    for (let i = 0; i < 12; i++) {
      const { promptId, token, lossMask } = trajectories.row(i)
      const { prompt, answer } = environment.example(promptId)
      const completion = tokenizer.decode(Array.from(token).filter((_, t) => lossMask[t] === 1))
      const tokenTexts = Array.from(token, (id) => tokenizer.decode([id])) // Characters, each a token.
      expect(words[i]).toEqual({ prompt: JSON.stringify(prompt), answer, completion, tokenTexts })
      expect(samples[i]).toMatchObject({ prompt, groundTruth: answer, response: completion })
    }
    // In words alone the token that ends a turn is left out: a chat template puts it there.
    expect(await exportTrajectories(run, lines, 'words')).toBe(12)
    const said = (await readFile(lines, 'utf8'))
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line))
    const spoken = words.map(({ completion }) => completion!.replace(/(<\|(end|pad)\|>)+$/, ''))
    expect(said.map(({ completion }) => completion)).toEqual(spoken)
    expect(spoken).not.toEqual(words.map(({ completion }) => completion))
    expect(said.map(({ reward }) => reward)).toEqual(samples.map(({ reward }) => reward))
    const plainRows = (table: Trajectories) => Array.from({ length: table.count }, (_, i) => plain(table.row(i)))
    expect(plainRows(samplesToTrajectories(samples))).toEqual(plainRows(trajectories))
    expect(plainRows(trajectories).slice(6)).toEqual(plainRows(last.take(last.order())))
  })
})
