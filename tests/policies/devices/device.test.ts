import { beforeAll, describe, expect, test } from 'vitest'
import { InputError } from '../../../src/base/errors.ts'
import {
  type Device,
  type DeviceName,
  deviceNames,
  startDevice,
  startDeviceFrom,
} from '../../../src/policies/devices/device.ts'
import { examineDevice } from '../../../src/policies/devices/examine.ts'
import { temporaryFolder } from '../../support/temporary.ts'

/** A seeded 37 × 53 by 53 × 29 product, and what the given device makes of it. */
function product({ tf }: Device): Float32Array {
  return tf.tidy(() => {
    const [a, b] = [tf.randomNormal([37, 53], 0, 1, 'float32', 1), tf.randomNormal([53, 29], 0, 1, 'float32', 2)]
    return tf.matMul(a, b).dataSync<'float32'>()
  })
}

/** A folder from which no optional package can be found. */
let nowhere: string[]

beforeAll(async () => {
  nowhere = [`${await temporaryFolder()}/`]
})

describe('a named device', () => {
  test('wasm starts, with SIMD, and says what it is', async () => {
    const device = await startDevice('wasm')
    expect(device).toMatchObject({ name: 'wasm', backend: 'wasm', readsSynchronously: true, isGpu: false })
    expect(device.version).toBe(`tfjs-backend-wasm ${device.tf.version_core}`)
    expect(device.passedOver).toEqual([])
    expect(device.tf.getBackend()).toBe('wasm')
  })

  test('cpu starts, and prints no advertisement', async () => {
    const printed: unknown[] = []
    const warn = console.warn
    console.warn = (...words) => printed.push(words)
    try {
      const device = await startDevice('cpu')
      expect(device).toMatchObject({ name: 'cpu', backend: 'cpu', readsSynchronously: true, isGpu: false })
      product(device)
    } finally {
      console.warn = warn
    }
    expect(printed).toEqual([])
  })

  test('wasm and cpu agree on a matrix product', async () => {
    const wasm = product(await startDevice('wasm'))
    const cpu = product(await startDevice('cpu'))
    expect(wasm.length).toBe(37 * 29)
    for (const [i, value] of cpu.entries()) expect(wasm[i]).toBeCloseTo(value, 4)
  })

  test('starting another switches, starting one again gives the same object and makes it active', async () => {
    const wasm = await startDevice('wasm')
    const cpu = await startDevice('cpu')
    expect(cpu.tf.getBackend()).toBe('cpu')
    expect(await startDevice('wasm')).toBe(wasm)
    expect(wasm.tf.getBackend()).toBe('wasm')
    expect(wasm.tf.tidy(() => wasm.tf.add([1, 2], 1).dataSync())).toEqual(Float32Array.of(2, 3))
  })

  test('those asked for at once start one after another; the last is active', async () => {
    const names: DeviceName[] = ['cpu', 'wasm', 'cpu', 'wasm', 'cpu']
    const devices = await Promise.all(names.map((name) => startDevice(name)))
    expect(devices.map(({ name }) => name)).toEqual(names)
    expect(devices[0]!.tf.getBackend()).toBe('cpu')
  })

  test('its tfjs-layers makes models of its tensors', async () => {
    const { layers, tf } = await startDevice('wasm')
    const { input, layers: kinds, model } = await layers()
    const x = input({ shape: [3] })
    const network = model({
      inputs: x,
      outputs: kinds.dense({ units: 2, kernelInitializer: 'ones' }).apply(x) as never,
    })
    const y = tf.tidy(() => (network.predict(tf.ones([4, 3])) as ReturnType<typeof tf.ones>).dataSync())
    expect(y).toEqual(new Float32Array(8).fill(3))
    network.dispose()
  })

  test('that is not installed is an InputError with the cause, and the active one stays', async () => {
    const { tf } = await startDevice('wasm')
    for (const name of ['tfjs-node-gpu', 'tfjs-node', 'webgpu'] as const) {
      const error = await startDeviceFrom(nowhere, name).catch((caught: unknown) => caught)
      expect(error).toBeInstanceOf(InputError)
      const wanted = name === 'webgpu' ? name : `@tensorflow/${name}`
      expect((error as Error).message).toBe(
        `device: got "${name}", expected a device that can start here; package ${wanted} is not installed (npm install ${wanted})`,
      )
      expect((error as Error).cause).toBeInstanceOf(Error)
      expect(tf.getBackend()).toBe('wasm')
    }
  })

  test('that nobody knows is an InputError with the nearest name', async () => {
    await expect(startDevice('wsam' as never)).rejects.toThrow(
      'device: got "wsam" (did you mean "wasm"?), expected one of tfjs-node-gpu, tfjs-node, webgpu, wasm, cpu',
    )
  })

  test.each(['gpu', 'GPU', 'cuda'])('that is %s is an InputError that says which compute on one', async (name) => {
    await expect(startDevice(name as never)).rejects.toThrow(
      `device: got "${name}", expected one of tfjs-node-gpu, tfjs-node, webgpu, wasm, cpu; on a GPU run tfjs-node-gpu (CUDA: npm install @tensorflow/tfjs-node-gpu) and webgpu`,
    )
  })
})

describe('a device that is examined', () => {
  test('is ready where its products are right, with its version and a measured speed', async () => {
    const { version, gflops, ...rest } = await examineDevice('cpu')
    expect(rest).toEqual({ name: 'cpu', status: 'ready', why: null, readsSynchronously: true, isGpu: false })
    expect(version).toMatch(/^tfjs-backend-cpu \d/)
    expect(gflops).toBeGreaterThan(0)
  })

  test('is broken where a product is wrong, and says where', async () => {
    const { tf } = await startDevice('cpu')
    const kernel = tf.getKernel('BatchMatMul', 'cpu')
    tf.unregisterKernel('BatchMatMul', 'cpu')
    tf.registerKernel({
      ...kernel,
      kernelFunc(given) {
        const product = kernel.kernelFunc(given) as { dataId: object }
        const { backend } = given as unknown as { backend: { data: { get(id: object): { values: Float32Array } } } }
        backend.data.get(product.dataId).values[3]! += 1
        return product as never
      },
    })
    try {
      const { status, why, gflops } = await examineDevice('cpu')
      expect([status, gflops]).toEqual(['broken', null])
      expect(why).toMatch(/^a matrix product is wrong: got .* at row 0, column 3, expected /)
    } finally {
      tf.unregisterKernel('BatchMatMul', 'cpu')
      tf.registerKernel(kernel)
    }
  })

  test('is missing where a package is not there, and an unknown one is an error', async () => {
    const report = await examineDevice('tfjs-node-gpu')
    if (report.status === 'missing')
      expect(report).toMatchObject({ why: expect.stringMatching(/not installed/), version: null })
    await expect(examineDevice('wsam' as never)).rejects.toThrow(InputError)
  })
})

describe('no name', () => {
  test('gives the first that can start, and says which were passed over and why', async () => {
    const device = await startDeviceFrom(nowhere)
    expect(device.name).toBe('wasm')
    expect(device.passedOver.map(({ name }) => name)).toEqual(deviceNames.slice(0, deviceNames.indexOf('wasm')))
    for (const { why } of device.passedOver) expect(why).toMatch(/^package .* is not installed/)
    await startDevice('cpu')
    expect(await startDeviceFrom(nowhere)).toBe(device)
    expect(device.tf.getBackend()).toBe('wasm')
  })
})

test('an error of the program after wasm has started ends it as any other', async () => {
  const before = {
    rejected: process.listenerCount('unhandledRejection'),
    thrown: process.listenerCount('uncaughtException'),
  }
  await startDevice('wasm')
  expect(process.listenerCount('unhandledRejection')).toBe(before.rejected)
  expect(process.listenerCount('uncaughtException')).toBe(before.thrown)
})
