/** What trainings of language models declare that they tell. */
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { checkMetricNames, checkMetrics } from '../../../src/base/metrics.ts'
import { runMetrics } from '../../../src/entries/settings.ts'
import { configureRun, createTrainer, InputError, rl, sft, startRun } from '../../../src/index.ts'
import { inProcess } from '../../support/command.ts'
import { talkWorld } from '../../support/conversations.ts'
import { temporaryFolder } from '../../support/temporary.ts'

const metric = { unit: null, description: 'of a step', reduction: 'last' } as const

describe('the metrics of a language model', () => {
  test('are declared, and are what the lines of a run have, each those of its phase', async () => {
    const words = {
      ...{ 'environment.maxLength': '3', 'languageModel.width': '8', 'languageModel.layers': '1' },
      ...{
        'sft.updates': '2',
        'sft.batchSize': '4',
        'rl.groupSize': '2',
        'rl.groupsPerUpdate': '2',
        'rl.updates': '2',
      },
      threads: '1',
    }
    const run = await startRun(await configureRun('text/reverse', words), join(await temporaryFolder(), 'run'))
    await run.train()
    const lines = (await readFile(join(run.folder, 'metrics.jsonl'), 'utf8')).trimEnd().split('\n')
    const told = lines.map((line) => Object.keys(JSON.parse(line)))
    const [supervised, reinforced] = [
      await runMetrics('text/reverse', { ...words, mode: 'sft' }),
      await runMetrics('text/reverse', words),
    ]
    for (const keys of told.slice(0, 2)) expect(keys.toSorted()).toEqual(Object.keys(supervised).toSorted())
    for (const keys of told.slice(2)) expect(keys.toSorted()).toEqual(Object.keys(reinforced).toSorted())
    expect(told).toHaveLength(4)
    expect(reinforced).toEqual(await runMetrics('text/reverse', { mode: 'rl' }))
    expect(() => checkMetrics('text metrics', reinforced)).not.toThrow()
    expect(Object.keys(supervised)).toEqual(['checkpoint', ...Object.keys(sft.metrics)])
  })

  test('are listed by the help of its environment', async () => {
    const { code, stdout } = await inProcess(['train', 'text/reverse', '--help'])
    expect(code).toBe(0)
    for (const [name, { unit, description }] of Object.entries(await runMetrics('text/reverse'))) {
      const line = stdout.split('\n').find((each) => each.startsWith(`  ${name} `)) ?? 'no line'
      expect(line, name).toContain(`${description}${unit === null ? '' : `; ${unit}`}`)
    }
    expect(await runMetrics('text/dataset')).toEqual(await runMetrics('text/reverse', { mode: 'rl' }))
  })

  test('are an error where one is missing or not declared', async () => {
    const settings = { groupsPerUpdate: 2, groupSize: 2, updates: 1 }
    const updating = async (change: (metrics: Record<string, typeof metric>) => object) => {
      const algorithm = rl(settings)
      const metrics = change({ ...(algorithm.metrics as Record<string, typeof metric>) })
      const trainer = createTrainer(await talkWorld({ groupSize: 2 }), { ...algorithm, metrics } as typeof algorithm)
      for await (const _ of trainer.updates());
    }
    await expect(updating((metrics) => metrics)).resolves.toBeUndefined()
    const more = updating((metrics) => ({ ...metrics, applause: metric }))
    await expect(more).rejects.toThrow('rl metrics applause: got nothing, expected a value, or null if there is none')
    const less = updating(({ ratio: _, ...metrics }) => metrics)
    await expect(less).rejects.toThrow(/rl metrics: got "ratio", expected one of \d+, like clipRatio, [^,]+, [^,]+$/)
    expect(() => checkMetricNames('mine', { a: metric }, { a: null })).not.toThrow()
    expect(() => checkMetricNames('mine', { a: metric }, { a: undefined })).toThrow(InputError)
  })
})
