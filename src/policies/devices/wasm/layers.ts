/** Dense layers and biases with activations, and their gradients, composed of the kernels that tfjs would run one by one. */
import type { TensorInfo } from '@tensorflow/tfjs-core'
import type { LayerActivation } from '../layers.ts'
import type { Heap, KernelArguments, TensorKernels } from './heap.ts'

/** DenseLayer and BiasLayer, and their `Grad` kernels. */
export function layerKernels(heap: Heap): TensorKernels {
  /** Runs a kernel and frees its input `x`. */
  const instead = (x: TensorInfo, name: string, inputs: KernelArguments['inputs']): TensorInfo => {
    const result = heap.run(name, inputs)
    heap.free(x)
    return result
  }
  const activated = (x: TensorInfo, activation: LayerActivation): TensorInfo =>
    activation === 'linear' ? x : instead(x, activation === 'relu' ? 'Relu' : 'Tanh', { x })

  /** The gradient by the pre-activations, from that by the activation's output `y`. */
  const byTheSums = (dy: TensorInfo, y: TensorInfo, activation: LayerActivation): TensorInfo => {
    if (activation === 'linear') return heap.reshaped(dy, dy.shape)
    if (activation === 'relu') {
      const slope = heap.run('Step', { x: y }, { alpha: 0 })
      return instead(slope, 'Multiply', { a: dy, b: slope })
    }
    const one = heap.output([], 'float32')
    heap.floats(one)[0] = 1
    const squared = heap.run('Square', { x: y })
    const slope = instead(squared, 'Sub', { a: one, b: squared })
    heap.free(one)
    return instead(slope, 'Multiply', { a: slope, b: dy })
  }
  const byTheBias = (dSum: TensorInfo): TensorInfo => heap.run('Sum', { x: dSum }, { axis: [0], keepDims: false })
  const activationOf = ({ attrs }: KernelArguments) => (attrs as unknown as { activation: LayerActivation }).activation

  return {
    DenseLayer(given) {
      const { x, weight, bias } = given.inputs as Record<'x' | 'weight' | 'bias', TensorInfo>
      const product = heap.run('BatchMatMul', { a: x, b: weight }, { transposeA: false, transposeB: false })
      return activated(instead(product, 'Add', { a: product, b: bias }), activationOf(given))
    },
    DenseLayerGrad(given) {
      const { dy, x, y } = given.inputs as Record<'dy' | 'x' | 'y', TensorInfo>
      const dSum = byTheSums(dy, y, activationOf(given))
      const dWeight = heap.run('BatchMatMul', { a: x, b: dSum }, { transposeA: true, transposeB: false })
      return [dSum, dWeight, byTheBias(dSum)]
    },
    BiasLayer(given) {
      const { x, bias } = given.inputs as Record<'x' | 'bias', TensorInfo>
      return activated(heap.run('Add', { a: x, b: bias }), activationOf(given))
    },
    BiasLayerGrad(given) {
      const { dy, y } = given.inputs as Record<'dy' | 'y', TensorInfo>
      const dSum = byTheSums(dy, y, activationOf(given))
      return [dSum, byTheBias(dSum)]
    },
  }
}
