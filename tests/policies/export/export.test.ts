import { readdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { beforeEach, describe, expect, test } from 'vitest'
import { type ExportOptions, exportFormats, exportPolicy } from '../../../src/entries/data.ts'
import { dense, InputError, mlp, type PolicyDefinition } from '../../../src/index.ts'
import { trained } from '../../support/exported.ts'
import { temporaryFolder } from '../../support/temporary.ts'

let out: string
let folder: string
beforeEach(async () => {
  folder = await temporaryFolder()
  out = join(folder, 'policy')
})

/** A policy that has a network of its own. */
const other: PolicyDefinition = {
  id: 'other',
  parameters: {},
  build(observationSpace, actionSpace) {
    const { dense, ...model } = mlp().build(observationSpace, actionSpace)
    return model
  },
}

const policy = trained('discrete, tanh')
const { numParameters } = policy.policy.build(policy.environment.observationSpace, policy.environment.actionSpace)

describe.each(exportFormats)('exportPolicy as %s', (format) => {
  test.each<[string, Partial<Record<keyof ExportOptions, unknown>>, string]>([
    ['a policy that is not dense layers', { policy: other }, 'policy other: got a network that cannot be exported'],
    [
      'weights of another length',
      { weights: policy.weights.subarray(1) },
      `weights: got ${numParameters - 1} numbers, expected ${numParameters}`,
    ],
    ['NaN weights', { weights: policy.weights.with(3, Number.NaN) }, 'weights, actor.0.weight: got NaN in element 3'],
    [
      'an infinite weight',
      { weights: policy.weights.with(256, Infinity) },
      'weights, actor.0.bias: got Infinity in element 0',
    ],
    ['an unknown format', { format: 'pickle' }, 'format: got "pickle", expected one of onnx, layers, module'],
    ['no place', { out: '' }, 'out: got "", expected a file to write, or a folder'],
    ['none at all', { out: undefined }, 'out: got undefined, expected a file to write'],
  ])('refuses %s, and writes nothing', async (_, change, message) => {
    const exporting = exportPolicy({ ...policy, format, out, ...change } as ExportOptions)
    await expect(exporting).rejects.toThrow(InputError)
    await expect(exporting).rejects.toThrow(message)
    expect(await readdir(folder)).toEqual([])
  })

  test('writes a policy that normalizes observations, but for tfjs', async () => {
    const exporting = exportPolicy({ ...trained('discrete, tanh, normalized'), format, out })
    if (format !== 'layers') expect(await exporting).toHaveLength(1)
    else await expect(exporting).rejects.toThrow('format: got layers, of a policy that normalizes observations')
  })

  test('writes dense as it writes mlp', async () => {
    const other = `${out} again`
    const files = await exportPolicy({ ...policy, format, out })
    const onDevice = await exportPolicy({ ...policy, policy: dense(), format, out: other })
    expect(onDevice.map((file) => file.replace(other, out))).toEqual(files)
    for (const [i, file] of files.entries()) expect(await readFile(onDevice[i]!)).toEqual(await readFile(file))
  })

  test('refuses a place that cannot be written', async () => {
    await writeFile(out, 'a file')
    const exporting = exportPolicy({ ...policy, format, out: join(out, 'below') })
    await expect(exporting).rejects.toThrow(InputError)
    await expect(exporting).rejects.toThrow('expected a writable path')
  })
})
