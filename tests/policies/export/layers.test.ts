import { readdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import '@tensorflow/tfjs-backend-cpu'
import * as tf from '@tensorflow/tfjs-core'
import { type LayersModel, loadLayersModel } from '@tensorflow/tfjs-layers'
import { beforeAll, describe, expect, test } from 'vitest'
import { type BoxSpace, choiceSizes } from '../../../src/base/space.ts'
import { exportPolicy } from '../../../src/entries/data.ts'
import { bestKernelBuild } from '../../../src/kernels/bind.ts'
import {
  actAsOriginal,
  compare,
  expectVariety,
  NUM_OBSERVATIONS,
  rawKindNames,
  trained,
} from '../../support/exported.ts'
import { temporaryFolder } from '../../support/temporary.ts'

let folder: string
beforeAll(async () => {
  folder = await temporaryFolder()
  await tf.setBackend('cpu')
  await tf.ready()
})

/** Loads a model as tfjs does over HTTP: model.json, and the files that it names. */
async function load(path: string): Promise<LayersModel> {
  const model = JSON.parse(await readFile(join(path, 'model.json'), 'utf8')) as tf.io.ModelJSON
  return loadLayersModel({
    load: () =>
      tf.io.getModelArtifactsForJSON(model, async (manifest) => {
        const [{ paths, weights }] = manifest as [tf.io.WeightsManifestConfig[number]]
        const bytes = await readFile(join(path, paths[0]!))
        return [weights, bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.byteLength) as ArrayBuffer]
      }),
  })
}

/** The action of each row from the model's first output, as whoever loads it has to choose it. */
function choose({ environment, mask }: ReturnType<typeof trained>, head: Float32Array): number[] {
  const { actionSpace } = environment
  if (actionSpace.kind === 'box') {
    const { low, high } = actionSpace
    return Array.from(head, (mean, i) => Math.min(Math.max(mean, low[i % low.length]!), high[i % low.length]!))
  }
  const action: number[] = []
  for (let from = 0; from < head.length; ) {
    for (const size of choiceSizes(actionSpace)) {
      let best = -1
      for (let j = 0; j < size; j++) {
        if (mask.length > 0 && mask[from + j] === 0) continue
        if (best < 0 || head[from + j]! > head[from + best]!) best = j
      }
      action.push(best)
      from += size
    }
  }
  return action
}

describe('a policy as a LayersModel', () => {
  test.each(rawKindNames)('acts as the original: %s', async (name) => {
    const policy = trained(name)
    const out = join(folder, `${rawKindNames.indexOf(name)}`)
    const files = await exportPolicy({ ...policy, format: 'layers', out })
    expect(files).toEqual([join(out, 'weights.bin'), join(out, 'model.json')])
    expect((await readdir(out)).sort()).toEqual(['model.json', 'weights.bin'])
    const model = await load(out)
    const { shape } = policy.environment.observationSpace as BoxSpace
    const batch = tf.tensor(policy.observation, [NUM_OBSERVATIONS, ...shape])
    const outputs = model.predict(batch) as tf.Tensor[]
    const [head, value] = outputs.map((output) => output.dataSync() as Float32Array) as [Float32Array, Float32Array]
    tf.dispose([batch, ...outputs])
    model.dispose()
    const action = choose(policy, head)
    expectVariety(policy, action)
    const ties = compare(policy, await actAsOriginal(policy, bestKernelBuild()), { action, head, value })
    console.log(`${name}: ${ties} of ${NUM_OBSERVATIONS} observations are ties with ${bestKernelBuild()} kernels`)
    expect(ties).toBeLessThanOrEqual(3)
  })

  test('says in its metadata what its outputs are, and what they choose among', async () => {
    const out = join(folder, 'box')
    const { weights, environment, policy } = trained('box, tanh')
    await exportPolicy({ weights, environment, policy, format: 'layers', out })
    const model = await load(out)
    const { parameters } = policy.build(environment.observationSpace, environment.actionSpace)
    const { offset } = parameters.find(({ name }) => name === 'actor.logStd')!
    expect(model.getUserDefinedMetadata()).toEqual({
      environment: 'Seen-v0',
      observationShape: [4],
      actionSpace: { kind: 'box', shape: [3], low: [-0.5, '-Infinity', 0.1], high: [0.25, 0.3, 'Infinity'] },
      outputs: ['mean', 'value'],
      logStd: [...weights.slice(offset, offset + 3)],
      actionMask: false,
    })
    expect(model.layers.map(({ name }) => name).sort()).toEqual(
      'actor.0 actor.1 critic.0 critic.1 mean observation value'.split(' '),
    )
    expect(model.inputs[0]!.shape).toEqual([null, 4])
    expect(model.outputNames).toEqual(['mean', 'value'])
  })
})
