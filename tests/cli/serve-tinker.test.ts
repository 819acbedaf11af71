/** `colonnade serve … tinker=true`, from the command line. */
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { configureRun, startRun } from '../../src/index.ts'
import { inProcess, MAIN, start } from '../support/command.ts'
import { writeQwen3 } from '../support/qwen3-folder.ts'
import { temporaryFolder } from '../support/temporary.ts'

describe('colonnade serve tinker=true', () => {
  test('serves a training service with the sizes that are given, and ends at a signal', async () => {
    const model = await temporaryFolder()
    await writeQwen3(model)
    const words = ['serve', model, '--tinker', 'port=0', 'name=small', 'context=24', `folder=${model}/kept`]
    const server = start(process.execPath, [MAIN, ...words])
    const url = await new Promise<string>((resolve) => {
      let said = ''
      server.process.stdout!.on('data', (text) => {
        said += text
        const found = /training service at (\S+) for base model small/.exec(said)
        if (found !== null) resolve(found[1]!)
      })
    })
    const { supported_models: models } = await (await fetch(`${url}/api/v1/get_server_capabilities`)).json()
    expect(models).toEqual([{ model_name: 'small', max_context_length: 24, trainable: true, sampleable: true }])
    server.process.kill('SIGTERM')
    expect((await server.ended).stderr).not.toMatch(/\n +at /)
  })

  test.each([
    [['tinker=true', 'faults=all'], 'faults: got tinker=true, expected only tinker, folder, port'],
    [['folder=kept'], 'folder: got kept, expected no folder, or tinker=true'],
  ])('refuses %j', async (words, message) => {
    const model = await temporaryFolder()
    await writeQwen3(model)
    const { stderr, code } = await inProcess(['serve', model, ...words])
    expect([stderr.includes(message), code, stderr]).toEqual([true, 1, stderr])
  })

  test('refuses a run of an adapter, and asks no hub for its model', async () => {
    const folder = join(await temporaryFolder(), 'run')
    const sizes = { 'languageModel.width': '8', 'languageModel.layers': '1', 'languageModel.loraRank': '1' }
    const keys = { mode: 'sft', 'sft.updates': '1', 'sft.batchSize': '2', ...sizes, numLanes: '4', threads: '1' }
    await (await startRun(await configureRun('text/reverse', keys), folder)).train()
    const { stderr, code } = await inProcess(['serve', folder, 'tinker=true'])
    expect([stderr, code]).toEqual([expect.stringContaining(`run: got ${folder}, which has no model folder`), 1])
  })
})
