import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { saveTransformer } from '../../src/entries/text.ts'
import { golden, goldenFolder } from '../language/transformer/golden.ts'
import { colonnade, inProcess } from '../support/command.ts'
import { temporaryFolder } from '../support/temporary.ts'

describe('validate', () => {
  test('of a new model, a folder and a run ends with 0, and names each check', async () => {
    const here = await temporaryFolder()
    const words = ['train', 'text/reverse', 'out=run', 'mode=sft', 'sft.updates=2', 'environment.maxLength=3']
    const small = ['languageModel.width=16', 'languageModel.layers=1', 'languageModel.loraRank=2']
    expect((await inProcess([...words, ...small], here)).code).toBe(0)
    for (const subject of ['text/sort', goldenFolder('qwen3'), 'run']) {
      const { code, stdout } = await inProcess(['validate', subject, '--json'], here)
      expect(code, subject).toBe(0)
      const { status, checks } = JSON.parse(stdout) as { status: string; checks: { status: string }[] }
      expect([status, ...checks.map((check) => check.status)]).toEqual(new Array(7).fill('held'))
    }
    const { code, stdout } = await colonnade(['validate'], here)
    expect(code).toBe(0)
    expect(stdout.match(/^held/gm)?.length).toBe(6)
  })

  test('of a model whose gradient overflows ends with 1', async () => {
    const here = await temporaryFolder()
    const { model, weights } = await golden('llama')
    await saveTransformer(
      join(here, 'model'),
      model,
      weights.map((value) => value * 1e30),
    )
    const { code, stdout } = await colonnade(['validate', 'model'], here)
    expect(code).toBe(1)
    expect(stdout).toMatch(/^failed +gradientComputation +a gradient of norm NaN$/m)
  })

  test('of what cannot be opened ends with 2, says why, and still gives a document', async () => {
    const here = await temporaryFolder()
    for (const words of [['nothing-there'], ['text/revers'], ['a', 'b'], [join(here, 'x')]]) {
      const run = words[0] === 'nothing-there' ? colonnade : inProcess
      const { code, stdout, stderr } = await run(['validate', ...words, '--json'], here)
      expect(code, words.join()).toBe(2)
      expect(stderr).toMatch(/^colonnade: /)
      expect(JSON.parse(stdout)).toMatchObject({ status: 'unchecked', checks: [] })
    }
  })
})
