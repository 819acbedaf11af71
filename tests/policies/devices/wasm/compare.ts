/** An operation on the cured wasm backend against the same on tfjs's cpu backend: its value and its gradients. */
import { createRequire } from 'node:module'
import { dirname } from 'node:path'
import type { Tensor } from '@tensorflow/tfjs-core'
import type { Tfjs, WasmBackend } from '../../../../src/policies/devices/wasm/heap.ts'
import { Numbers } from '../../../kernels/calls.ts'

const require = createRequire(import.meta.url)
/** The core that both backends register with. */
export const tf = require('@tensorflow/tfjs-core') as Tfjs

/** Starts both backends; the wasm one is left as the active one, as it comes. */
export async function startBackends(): Promise<WasmBackend> {
  require('@tensorflow/tfjs-layers') // For Node, tfjs's gradients are in this package.
  require('@tensorflow/tfjs-backend-cpu')
  const wasm = require('@tensorflow/tfjs-backend-wasm') as typeof import('@tensorflow/tfjs-backend-wasm')
  wasm.setWasmPaths(`${dirname(require.resolve('@tensorflow/tfjs-backend-wasm'))}/`)
  // In tests tfjs counts what every kernel leaves behind, and throws.
  tf.env().set('IS_TEST', true)
  await tf.setBackend('cpu')
  await tf.setBackend('wasm')
  return tf.backend() as unknown as WasmBackend
}

/** An input before it is on a backend. */
export interface Given {
  readonly values: Float32Array | Int32Array | Uint8Array
  readonly shape: readonly number[]
  readonly dtype: 'float32' | 'int32' | 'bool'
}

export function floats(numbers: Numbers, shape: readonly number[], low = -1, high = 1): Given {
  return { values: numbers.floats(size(shape), low, high), shape, dtype: 'float32' }
}

export function wholes(numbers: Numbers, shape: readonly number[], low: number, high: number): Given {
  return { values: numbers.wholes(size(shape), low, high), shape, dtype: 'int32' }
}

export function size(shape: readonly number[]): number {
  return shape.reduce((product, length) => product * length, 1)
}

export function flags(numbers: Numbers, shape: readonly number[]): Given {
  return { values: numbers.flags(size(shape), 0.5), shape, dtype: 'bool' }
}

/** The kernels that have run since `watchKernels`. */
export const kernelsSeen = new Set<string>()

/** Takes note of each of these kernels of the wasm backend that runs from now on. */
export function watchKernels(names: readonly string[]): void {
  for (const name of names) {
    const config = tf.getKernel(name, 'wasm')
    const { kernelFunc } = config
    config.kernelFunc = (given) => {
      kernelsSeen.add(name)
      return kernelFunc(given)
    }
  }
}

type Operation = (...inputs: Tensor[]) => Tensor

interface Result {
  readonly shape: readonly number[]
  readonly dtype: string
  readonly values: Float32Array | Int32Array | Uint8Array
  /**
   * About how large the sums are that an element is made of, before what cancels has cancelled. Terms are about 1: the weighted
   * sum's n terms come to √n, of which an element of the gradient has its part.
   */
  readonly scale: number
}

/** The value, then the gradients of its weighted sum by the floating inputs; leaves no tensor behind. */
async function evaluate(backend: string, operation: Operation, given: readonly Given[], gradient: boolean) {
  await tf.setBackend(backend)
  const before = tf.memory()
  const found: Result[] = []
  tf.tidy(() => {
    const inputs = given.map(({ values, shape, dtype }) => tf.tensor(values, [...shape], dtype))
    const value = operation(...inputs)
    found.push(result(value, 1))
    const floating = inputs.filter(({ dtype }) => dtype === 'float32')
    if (!gradient || floating.length === 0) return
    const weights = tf.tensor(new Numbers(7).floats(value.size), value.shape)
    const loss = (...varied: Tensor[]) => {
      const all = inputs.map((input) => (input.dtype === 'float32' ? varied[floating.indexOf(input)]! : input))
      return tf.sum(tf.mul(operation(...all), weights))
    }
    found.push(
      ...tf
        .grads(loss)(floating)
        .map((slope) => result(slope, Math.sqrt(value.size / slope.size))),
    )
  })
  const { numTensors, numBytes, numDataBuffers } = tf.memory()
  if (numTensors !== before.numTensors || numBytes !== before.numBytes || numDataBuffers !== before.numDataBuffers) {
    throw new Error(`${numTensors - before.numTensors} tensors are left on ${backend}`)
  }
  return found
}

function result(tensor: Tensor, scale: number): Result {
  const { shape, dtype } = tensor
  return { shape, dtype, values: tensor.dataSync().slice() as Float32Array, scale }
}

/**
 * Throws unless the operation gives the same on both backends: every element within `tolerance` of the largest of 1, its
 * tensor's scale and its tensor's largest element on cpu. Another `reference` serves where cpu is wrong.
 */
export async function expectSame(
  operation: Operation,
  given: readonly Given[],
  {
    tolerance = 2e-6,
    gradient = true,
    reference = operation,
  }: { tolerance?: number; gradient?: boolean; reference?: Operation } = {},
): Promise<void> {
  const got = await evaluate('wasm', operation, given, gradient)
  const wanted = await evaluate('cpu', reference, given, gradient)
  await tf.setBackend('wasm')
  for (const [i, expected] of wanted.entries()) {
    const name = i === 0 ? 'the value' : `gradient ${i - 1}`
    const { shape, dtype, values } = got[i]!
    if (String(shape) !== String(expected.shape) || dtype !== expected.dtype) {
      throw new Error(`${name} is ${dtype} [${shape}], on cpu ${expected.dtype} [${expected.shape}]`)
    }
    let scale = Math.max(1, expected.scale)
    for (const value of expected.values) scale = Math.max(scale, Math.abs(value))
    for (const [at, value] of expected.values.entries()) {
      const close = Object.is(values[at], value) || Math.abs(values[at]! - value) <= tolerance * scale
      if (!close) throw new Error(`${name}, element ${at} of [${shape}], is ${values[at]}, on cpu ${value}`)
    }
  }
}
