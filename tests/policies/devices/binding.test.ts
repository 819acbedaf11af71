import { beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { type Device, type DeviceName, startDevice, startDeviceFrom } from '../../../src/policies/devices/device.ts'
import { colonnadeIn, skipLoudly } from '../../support/command.ts'
import { webgpuSwiftShader } from '../../support/swiftshader.ts'
import { tensorflowBinding } from '../../support/tensorflow.ts'

/** Real devices that are not among our dependencies, made for these tests if the machine can. */
const DEVICES = [
  {
    name: 'tfjs-node-gpu',
    find: async () => {
      const found = await tensorflowBinding()
      return 'why' in found ? found : { ...found, environment: { TF_CPP_MIN_LOG_LEVEL: '3' } }
    },
    why: null,
    version: /^tfjs-node-gpu 4\.22\.0, TensorFlow 2\.21\.0$/,
    readsSynchronously: true,
  },
  {
    name: 'webgpu',
    find: webgpuSwiftShader,
    why: 'its adapter is software, far slower than wasm',
    version: /^tfjs-backend-webgpu 4\.22\.0, Dawn \(webgpu 0\.6\.2\) on SwiftShader/,
    readsSynchronously: false,
  },
] as const

describe.each(DEVICES)('$name', ({ name, find, version, readsSynchronously, why }) => {
  let skipped: string | undefined
  let folder: string
  let environment: Readonly<Record<string, string>>

  beforeAll(async () => {
    const found = await find()
    if ('why' in found) {
      skipped = `device ${name} (${found.why})`
      console.warn(`SKIPPED: ${skipped}`)
    } else ({ folder, environment } = found)
  })

  beforeEach((context) => {
    if (skipped !== undefined) skipLoudly(context, skipped)
  })

  const started = (): Promise<Device> => startDeviceFrom([`${folder}/`], name)

  test('starts, and says what it is', async () => {
    const device = await started()
    expect(device).toMatchObject({ name, readsSynchronously, isGpu: false, passedOver: [] })
    expect(device.version).toMatch(version)
    expect(device.tf.getBackend()).toBe(device.backend)
  })

  test('reads synchronously if it says so, and throws if not', async () => {
    const { tf } = await started()
    // As large as this, because tfjs computes small ones in JavaScript, and can read those on any device.
    const ones = tf.ones([64, 64])
    const product = tf.matMul(ones, ones)
    const expected = new Float32Array(64 * 64).fill(64)
    if (readsSynchronously) expect(product.dataSync()).toEqual(expected)
    else expect(() => product.dataSync()).toThrow()
    expect(await product.data()).toEqual(expected)
    tf.dispose([ones, product])
  })

  test("gives cpu's values and gradients, and leaks nothing", async () => {
    const there = await valueAndGradients(await started())
    const here = await valueAndGradients(await startDevice('cpu'))
    for (const [i, values] of here.entries()) {
      expect(there[i]!.length).toBe(values.length)
      for (const [j, value] of values.entries()) expect(there[i]![j]).toBeCloseTo(value, 4)
    }
  })

  test('makes models of its own tree by its tfjs-layers', async () => {
    const { layers, tf } = await started()
    const { layers: kinds, sequential } = await layers()
    const model = sequential({ layers: [kinds.dense({ units: 2, inputShape: [3], kernelInitializer: 'ones' })] })
    const [x, y] = [tf.ones([4, 3]), tf.ones([4, 2])]
    const predicted = model.predict(x) as typeof y
    expect(await predicted.data()).toEqual(new Float32Array(8).fill(3))
    model.compile({ optimizer: 'sgd', loss: 'meanSquaredError' })
    // By hand: the loss is (3 − 1)² = 4 before the step.
    expect(await model.trainOnBatch(x, y)).toBeCloseTo(4, 5)
    tf.dispose([x, y, predicted])
    model.dispose()
  })

  test('shares the process with the embedded devices', async () => {
    const names: (DeviceName | undefined)[] = ['wasm', undefined, 'cpu', undefined]
    for (const other of names) {
      const { tf, backend } = other === undefined ? await started() : await startDevice(other)
      const ones = tf.ones([64, 64])
      const product = tf.matMul(ones, ones)
      expect(tf.getBackend()).toBe(backend)
      expect(await product.data()).toEqual(new Float32Array(64 * 64).fill(64))
      tf.dispose([ones, product])
    }
  })

  test('is ready in the doctor', async () => {
    const { code, stdout } = await colonnadeIn(folder, ['doctor', name, '--json'], environment)
    expect(code).toBe(0)
    const [row] = JSON.parse(stdout.trim().split('\n').at(-1)!).devices
    expect(row).toMatchObject({ name, status: 'ready', why, readsSynchronously, isGpu: false })
    expect(row.gflops).toBeGreaterThan(0)
    console.log(`${row.version}: ${row.gflops.toFixed(1)} GFLOP/s`)
  })
})

/** Of a small seeded network with a softmax: its loss, and the gradients by its two matrices. */
async function valueAndGradients({ tf }: Device): Promise<Float32Array[]> {
  const numTensors = tf.memory().numTensors
  const normal = (shape: [number, number], seed: number) => {
    // Drawn in JavaScript, so the same on each device.
    let state = seed
    const uniform = () => {
      state = (state * 48_271) % 2_147_483_647
      return state / 2_147_483_647
    }
    return tf.tensor2d(
      Float32Array.from({ length: shape[0] * shape[1] }, () => uniform() - 0.5),
      shape,
    )
  }
  const [x, first, second] = [normal([17, 9], 1), normal([9, 13], 2), normal([13, 5], 3)]
  const { value, grads } = tf.valueAndGrads((a, b) => {
    const hidden = tf.tanh(tf.matMul(x, a as typeof first))
    return tf.neg(tf.mean(tf.logSoftmax(tf.matMul(hidden as typeof first, b as typeof second))))
  })([first, second])
  const results = [await value.data(), await grads[0]!.data(), await grads[1]!.data()] as Float32Array[]
  tf.dispose([x, first, second, value, ...grads])
  expect(tf.memory().numTensors).toBe(numTensors)
  return results
}
