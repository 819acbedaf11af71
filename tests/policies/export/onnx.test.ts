import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { beforeAll, beforeEach, describe, expect, test } from 'vitest'
import type { BoxSpace } from '../../../src/base/space.ts'
import {
  exportPolicy,
  readSafetensors,
  type TensorValues,
  tensorOf,
  tensorValues,
  writeSafetensors,
} from '../../../src/entries/data.ts'
import { bestKernelBuild } from '../../../src/kernels/bind.ts'
import { actAsOriginal, compare, expectVariety, kindNames, NUM_OBSERVATIONS, trained } from '../../support/exported.ts'
import { attempt, findPython, PYTHON_MS } from '../../support/python.ts'
import { temporaryFolder } from '../../support/temporary.ts'

type Values = Record<string, [type: string, shape: (string | number)[]]>

/** What onnxruntime found in each model. */
let found: Record<string, { opset: object; metadata: Record<string, string>; inputs: Values; outputs: Values }>
let folder: string
let why: string | undefined

const place = (name: string, ending: string) => join(folder, `${kindNames.indexOf(name)}.${ending}`)

beforeAll(async () => {
  const python = await findPython()
  if ('why' in python) {
    why = `running ONNX models in onnxruntime (${python.why})`
    console.warn(`SKIPPED: ${why}`)
    return
  }
  folder = await temporaryFolder()
  for (const name of kindNames) {
    const policy = trained(name)
    await exportPolicy({ ...policy, format: 'onnx', out: place(name, 'onnx') })
    const { shape } = policy.environment.observationSpace as BoxSpace
    const observation = tensorOf('observation', policy.observation, [NUM_OBSERVATIONS, ...shape])
    const { mask } = policy
    const maskShape = [NUM_OBSERVATIONS, mask.length / NUM_OBSERVATIONS]
    const inputs = mask.length > 0 ? [observation, tensorOf('actionMask', mask, maskShape, 'BOOL')] : [observation]
    await writeSafetensors(place(name, 'in.safetensors'), inputs)
  }
  const script = fileURLToPath(new URL('../../support/run_onnx.py', import.meta.url))
  const { code, stdout, stderr } = await attempt(python.python, [script, folder])
  if (code !== 0) throw new Error(stderr)
  found = JSON.parse(stdout)
}, PYTHON_MS)

beforeEach((context) => {
  if (why) context.skip(why)
})

/** What came out of a model, and of what shapes. */
async function outputsOf(name: string) {
  const { tensors } = await readSafetensors(place(name, 'out.safetensors'))
  const values: Record<string, TensorValues> = {}
  for (const [output, tensor] of tensors) values[output] = tensorValues(tensor)
  return { values, shapes: Object.fromEntries([...tensors].map(([output, { shape }]) => [output, shape])) }
}

describe('a policy as an ONNX model', () => {
  test.each(kindNames)('acts in onnxruntime as the original: %s', async (name) => {
    const policy = trained(name)
    const { values } = await outputsOf(name)
    const action = Array.from(values.action!, Number) // int64 are bigints.
    expectVariety(policy, action)
    const head = (values.logits ?? values.mean) as Float32Array
    const said = { action, head, value: values.value as Float32Array }
    const ties = compare(policy, await actAsOriginal(policy, bestKernelBuild()), said)
    console.log(`${name}: ${ties} of ${NUM_OBSERVATIONS} observations are ties with ${bestKernelBuild()} kernels`)
    expect(ties).toBeLessThanOrEqual(3)
  })

  test('says what goes in and what comes out, for any number of rows', () => {
    const of = (name: string) => found[kindNames.indexOf(name)]!
    expect(of('discrete, tanh')).toEqual({
      opset: { '': 17 },
      metadata: { environment: 'Seen-v0', observationShape: '[4]', actionSpace: '{"kind":"discrete","n":3}' },
      inputs: { observation: ['tensor(float)', ['batch', 4]] },
      outputs: {
        action: ['tensor(int64)', ['batch']],
        logits: ['tensor(float)', ['batch', 3]],
        value: ['tensor(float)', ['batch']],
      },
    })
    expect(of('multi-discrete, masked')).toMatchObject({
      inputs: { observation: ['tensor(float)', ['batch', 4]], actionMask: ['tensor(bool)', ['batch', 5]] },
      outputs: { action: ['tensor(int64)', ['batch', 2]], logits: ['tensor(float)', ['batch', 5]] },
    })
    expect(of('box of two sides, relu, shared trunk')).toMatchObject({
      inputs: { observation: ['tensor(float)', ['batch', 2, 2]] },
      outputs: {
        action: ['tensor(float)', ['batch', 2, 2]],
        mean: ['tensor(float)', ['batch', 4]],
        logStd: ['tensor(float)', [4]],
        value: ['tensor(float)', ['batch']],
      },
    })
  })

  test('gives rows of the shapes that it says, and the log standard deviations as they are', async () => {
    const name = 'box of two sides, relu, shared trunk'
    const { shapes, values } = await outputsOf(name)
    expect(shapes).toEqual({ action: [10_000, 2, 2], mean: [10_000, 4], logStd: [4], value: [10_000] })
    const { policy, environment, weights } = trained(name)
    const { parameters } = policy.build(environment.observationSpace, environment.actionSpace)
    const { offset } = parameters.find((parameter) => parameter.name === 'actor.logStd')!
    expect(values.logStd).toEqual(weights.slice(offset, offset + 4))
    expect((await outputsOf('multi-discrete of one, relu')).shapes).toMatchObject({
      action: [10_000, 1],
      logits: [10_000, 3],
    })
    expect((await outputsOf('discrete, tanh')).shapes).toMatchObject({ action: [10_000], value: [10_000] })
  })

  test('never chooses what the mask forbids', async () => {
    const { mask } = trained('discrete, masked, relu')
    const { values } = await outputsOf('discrete, masked, relu')
    values.action!.forEach((action, row) => {
      if (mask[6 * row + Number(action)] !== 1) throw new Error(`row ${row} chose ${action}`)
    })
  })
})
