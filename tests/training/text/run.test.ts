import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { loadLora } from '../../../src/policies/transformer/lora-folder.ts'
import { loadTrainedModel } from '../../../src/training/text/evaluate.ts'
import { configureTextRun, openTextRun, startTextRun } from '../../../src/training/text/run.ts'
import { temporaryFolder } from '../../support/temporary.ts'

describe('a run with adapters', () => {
  test('writes its adapter at each checkpoint, and at its end, not only when it is over', async () => {
    const definition = await configureTextRun('text/reverse', {
      'environment.maxLength': '3',
      'languageModel.width': '16',
      'languageModel.layers': '1',
      'languageModel.loraRank': '2',
      'sft.steps': '2',
      'rl.groupSize': '4',
      'rl.groupsPerUpdate': '2',
      'rl.updates': '3',
      checkpointEvery: '2',
      threads: '1', // Workers run from dist/.
    })
    const folder = join(await temporaryFolder(), 'run')
    const run = await startTextRun(definition, folder)
    const path = join(folder, 'adapter', 'adapter_model.safetensors')
    const files: string[] = []
    await run.train({ onStep: () => files.push(existsSync(path) ? readFileSync(path, 'base64') : 'none') })
    const [first, second, third, fourth, fifth] = files
    expect(first).toBe('none')
    expect(second).not.toBe('none')
    expect(third).toBe(second)
    expect(fourth).not.toBe(second)
    expect(fifth).toBe(fourth)
    const config = join(folder, 'config.json')
    const text = readFileSync(config, 'utf8')
    for (const [rank, message] of [
      [0, /an adapter of \d+ numbers, expected 0, as its config.json says/],
      [3, /an adapter of \d+ numbers, expected \d+, as its config.json says/],
    ] as const) {
      writeFileSync(config, text.replace('"loraRank": 2', `"loraRank": ${rank}`))
      await expect(loadTrainedModel(folder)).rejects.toThrow(message)
    }
    const { model, adapter } = run.trainer.cohort
    expect((await loadLora(join(folder, 'adapter'), model)).weights).toEqual(adapter!.weights)
  })
})

test("a run of an environment of one's own is found again, though its definition names no module", async () => {
  const here = await temporaryFolder()
  const module = join(here, 'echo.mjs')
  const index = new URL('../../../dist/src/index.js', import.meta.url).href
  writeFileSync(
    module,
    `import { defineTextEnvironment } from '${index}'
    export const echo = defineTextEnvironment({ id: 'text/echo', settings: {}, make: () => ({
      numExamples: 2, example: (i) => ({ prompt: i + '=' }), respond: () => ({ reward: 1 }) }) })`,
  )
  await startTextRun(await configureTextRun(module, {}), join(here, 'run'))
  const { environment } = await openTextRun(join(here, 'run'))
  expect([environment.id, environment.numExamples]).toEqual(['text/echo', 2])
})
