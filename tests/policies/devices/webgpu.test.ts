import { expect, test } from 'vitest'
import { startDeviceFrom } from '../../../src/policies/devices/device.ts'
import { skipLoudly } from '../../support/command.ts'
import { webgpuSwiftShader } from '../../support/swiftshader.ts'

interface Limited {
  readonly device: { readonly limits: { readonly maxBufferSize: number } }
}

/** The first of its file: another device would have registered tfjs's gradients. */
test('differentiates in a process that has started nothing else of tfjs', async (context) => {
  const found = await webgpuSwiftShader()
  if ('why' in found) skipLoudly(context, `device webgpu (${found.why})`)
  const { tf } = await startDeviceFrom([`${found.folder}/`], 'webgpu')
  const slope = tf.grad((x) => tf.add(tf.square(x), x))(tf.scalar(3))
  expect((await slope.data())[0]).toBe(7)
})

test('without a GPU, WebGPU is taken only by name', async (context) => {
  const found = await webgpuSwiftShader()
  if ('why' in found) skipLoudly(context, `device webgpu (${found.why})`)
  const { name, passedOver, tf } = await startDeviceFrom([`${found.folder}/`])
  expect(name).toBe('wasm')
  expect(tf.getBackend()).toBe('wasm')
  expect(passedOver.at(-1)).toEqual({ name: 'webgpu', why: 'its adapter is software, far slower than wasm' })
})

/** The last of its file, because the device is of no use afterwards. */
test('after an operation that WebGPU refused, every read is an error, where tfjs would give zeros', async (context) => {
  const found = await webgpuSwiftShader()
  if ('why' in found) skipLoudly(context, `device webgpu (${found.why})`)
  const { tf } = await startDeviceFrom([`${found.folder}/`], 'webgpu')
  const ones = tf.ones([64, 64])
  expect((await tf.matMul(ones, ones).data())[0]).toBe(64)
  const { device } = tf.backend() as unknown as Limited
  const tooLarge = tf.fill([device.limits.maxBufferSize / 4 + 1], 1.5)
  const message = /^device webgpu has failed, and needs a new process: Buffer size \(\d+\) exceeds the max/
  await expect(tf.slice(tooLarge, [0], [5]).data()).rejects.toThrow(message)
  await expect(tf.matMul(ones, ones).data()).rejects.toThrow(message)
})
