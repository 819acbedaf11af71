/** Functions of single elements that tfjs's wasm backend computes slowly. */
import type { TensorInfo } from '@tensorflow/tfjs-core'
import { Activation } from '../../kernels/bind.ts'
import type { Heap, KernelArguments, TensorKernels } from './heap.ts'

/** Tanh. */
export function elementKernels(heap: Heap): TensorKernels {
  const tanh = ({ inputs: { x } }: KernelArguments): TensorInfo => {
    const y = heap.output(x!.shape, 'float32')
    const { kernels } = heap
    const [values, none] = [heap.floats(x!), heap.floats(y).subarray(0, 0)]
    // A layer without inputs: its sums are its biases.
    kernels.denseForward(heap.floats(y), none, none, values, 1, 0, values.length, Activation.tanh, 0, 0)
    return y
  }
  /** The same elements again. tfjs copies them, and its engine does so with all that a gradient will need. */
  const identity = ({ inputs: { x } }: KernelArguments): TensorInfo => heap.reshaped(x!, x!.shape)
  return { Identity: identity, Tanh: tanh }
}
