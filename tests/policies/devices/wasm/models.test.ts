import { createRequire } from 'node:module'
import type { Tensor } from '@tensorflow/tfjs-core'
import type { LayersModel } from '@tensorflow/tfjs-layers'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { perceptron, type Twin, transformer } from '../../../../bench/devices/networks.ts'
import type { WasmBackend } from '../../../../src/policies/devices/wasm/heap.ts'
import { type Registration, registerWasmKernels } from '../../../../src/policies/devices/wasm/register.ts'
import { Numbers } from '../../../kernels/calls.ts'
import { isThorough } from '../../../support/tiers.ts'
import { startBackends, tf } from './compare.ts'

const layers = createRequire(import.meta.url)('@tensorflow/tfjs-layers') as typeof import('@tensorflow/tfjs-layers')

let backend: WasmBackend
let registration: Registration

beforeAll(async () => {
  backend = await startBackends()
  registration = registerWasmKernels(tf, backend)
})
afterAll(() => registration.undo())

/** The same work on the wasm and on the cpu backend; numbers within `tolerance` of the larger of 1 and the largest. */
async function expectAlike(work: () => Float32Array[], tolerance: number): Promise<void> {
  await tf.setBackend('cpu')
  const wanted = work()
  await tf.setBackend('wasm')
  const got = work()
  expect(got.length).toBe(wanted.length)
  for (const [i, values] of wanted.entries()) {
    const scale = values.reduce((most, value) => Math.max(most, Math.abs(value)), 1)
    for (const [at, value] of values.entries()) {
      if (!(Math.abs(got[i]![at]! - value) <= tolerance * scale)) {
        throw new Error(`element ${at} of result ${i} is ${got[i]![at]}, on cpu ${value}`)
      }
    }
  }
}

/** A model's output, and the gradients of its squared sum by its weights. The weights are the same in every call. */
function modelResults(build: () => LayersModel, shape: number[], low: number, high: number): Float32Array[] {
  const before = tf.memory().numTensors
  const model = build()
  const results = tf.tidy(() => {
    const numbers = new Numbers(5)
    const first = model.weights.map(({ name, shape: sides }) => {
      const count = (sides as number[]).reduce((product, length) => product * length, 1)
      return tf.tensor(numbers.floats(count, name.includes('variance') ? 0.1 : -0.5, 0.5), sides as number[])
    })
    model.setWeights(first)
    const size = shape.reduce((product, length) => product * length, 1)
    const x = tf.tensor(numbers.floats(size, low, high), shape)
    const inputs = high > 2 ? tf.floor(x) : x
    const loss = () => tf.mean(tf.square(model.apply(inputs, { training: true }) as Tensor)) as never
    const weights = model.trainableWeights.map((weight) => weight.read() as never)
    const { grads } = tf.variableGrads(loss, weights)
    const output = model.predict(inputs) as Tensor
    return [output, ...weights.map(({ name }: Tensor & { name: string }) => grads[name]!)].map(
      (tensor) => tensor.dataSync().slice() as Float32Array,
    )
  })
  model.dispose()
  expect(tf.memory().numTensors).toBe(before)
  return results
}

describe('a model of tfjs-layers has the outputs and gradients that it has on cpu', () => {
  const { sequential, layers: layer } = layers

  test('with convolutions and pooling', async () => {
    const build = () =>
      sequential({
        layers: [
          layer.conv2d({ inputShape: [10, 10, 4], filters: 16, kernelSize: 3, activation: 'relu', padding: 'same' }),
          layer.conv2d({ filters: 8, kernelSize: [2, 3], strides: 2, padding: 'same' }),
          layer.depthwiseConv2d({ kernelSize: 3, depthMultiplier: 2, activation: 'tanh' }),
          layer.maxPooling2d({ poolSize: 2, strides: 1 }),
          layer.batchNormalization({}),
          layer.flatten(),
          layer.dense({ units: 5, activation: 'softmax' }),
        ],
      })
    await expectAlike(() => modelResults(build, [3, 10, 10, 4], -1, 1), 2e-5)
  })

  test.each(['gru', 'lstm', 'simpleRNN'] as const)('with a recurrence (%s)', async (kind) => {
    // The default, orthogonal, needs methods of tensors that tfjs for Node leaves out.
    const recurrentInitializer = 'glorotUniform'
    const build = () =>
      sequential({
        layers: [
          layer[kind]({ inputShape: [7, 3], units: 9, returnSequences: true, recurrentInitializer }),
          layer[kind]({ units: 6, recurrentInitializer }),
          layer.dense({ units: 2, activation: 'tanh' }),
        ],
      })
    await expectAlike(() => modelResults(build, [4, 7, 3], -1, 1), 2e-5)
  })

  test('with an embedding and layer normalization', async () => {
    const build = () =>
      sequential({
        layers: [
          layer.embedding({ inputDim: 11, outputDim: 8, inputLength: 5 }),
          layer.layerNormalization({}),
          layer.conv1d({ filters: 6, kernelSize: 3, padding: 'same', activation: 'elu' }),
          layer.globalAveragePooling1d({}),
          layer.dense({ units: 3, activation: 'softplus' }),
        ],
      })
    await expectAlike(() => modelResults(build, [4, 5], 0, 11), 2e-5)
  })
})

describe('a training step of tensors alone', () => {
  const small = { vocabulary: 13, context: 6, width: 16, heads: 2, layers: 2, batch: 3 }
  const made: readonly (readonly [string, () => Twin])[] = [
    ['perceptron', () => perceptron(tf, 33)],
    ['transformer', () => transformer(tf, small)],
  ]

  test.each(made)('gives the losses and gradients of cpu (%s)', async (_, make) => {
    await expectAlike(() => {
      const twin = make()
      const results = [...twin.gradients(), Float32Array.of(twin.step(), twin.step(), twin.step())]
      twin.dispose()
      return results
    }, 1e-4)
  })

  test.each(made)('leaves no tensor behind, call after call (%s)', (_, make) => {
    const before = tf.memory().numTensors
    const twin = make()
    for (let i = 0; i < 5; i++) twin.step()
    const [{ numTensors, numBytes }, size] = [tf.memory(), backend.wasm.asm.memory.buffer.byteLength]
    for (let i = 0; i < (isThorough ? 100 : 20); i++) twin.step() // One call that leaves a tensor is enough to see it.
    expect(tf.memory()).toMatchObject({ numTensors, numBytes })
    expect(backend.wasm.asm.memory.buffer.byteLength).toBe(size)
    twin.dispose()
    expect(tf.memory().numTensors).toBe(before)
  })
})
