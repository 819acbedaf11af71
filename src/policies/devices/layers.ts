/**
 * Dense layers, and bias and activation after a convolution, as one operation each way. tfjs would use three and eight operations, and
 * starting one costs more than a small product. Backends with such kernels run them; the results are bit-identical.
 */
import type { GradConfig, Tensor, Tensor2D } from '@tensorflow/tfjs-core'
import type { Tf } from './tfjs.ts'

export type LayerActivation = 'tanh' | 'relu' | 'linear'

/** Whether the active backend has these operations. */
export function hasLayers(tf: Tf): boolean {
  return tf.getKernel('DenseLayer', tf.getBackend()) !== undefined
}

/**
 * activation(x W + b), rows × outputs, for `x` (rows × inputs). W and b are variables that outlive the pass, so they are not saved for the
 * gradient.
 */
export function runDenseLayer(
  tf: Tf,
  x: Tensor2D,
  weight: Tensor,
  bias: Tensor,
  activation: LayerActivation,
): Tensor2D {
  // biome-ignore lint/suspicious/noExplicitAny: attributes of a kernel may be anything, and tfjs's type leaves tensors out
  return tf.engine().runKernel('DenseLayer', { x, weight, bias }, { activation, weight } as any) as Tensor2D
}

/** activation(x + b), for `x` (rows × outputs). */
export function runBiasLayer(tf: Tf, x: Tensor2D, bias: Tensor, activation: LayerActivation): Tensor2D {
  return tf.engine().runKernel('BiasLayer', { x, bias }, { activation }) as Tensor2D
}

export function layerGradients(tf: Pick<Tf, 'engine' | 'matMul'>): readonly GradConfig[] {
  const run = (name: string, inputs: Readonly<Record<string, Tensor>>, activation: LayerActivation) =>
    tf.engine().runKernel(name, inputs, { activation }) as unknown as Tensor[]
  return [
    {
      kernelName: 'DenseLayer',
      inputsToSave: ['x'],
      outputsToSave: [true],
      gradFunc: (dy, saved, attrs) => {
        const [x, y] = saved as [Tensor2D, Tensor2D]
        const { activation, weight } = attrs as unknown as { activation: LayerActivation; weight: Tensor2D }
        const [dSum, dWeight, dBias] = run('DenseLayerGrad', { dy: dy as Tensor, x, y }, activation)
        return {
          x: () => tf.matMul(dSum as Tensor2D, weight, false, true),
          weight: () => dWeight!,
          bias: () => dBias!,
        }
      },
    },
    {
      kernelName: 'BiasLayer',
      outputsToSave: [true],
      gradFunc: (dy, [y], attrs) => {
        const { activation } = attrs as unknown as { activation: LayerActivation }
        const [dSum, dBias] = run('BiasLayerGrad', { dy: dy as Tensor, y: y! }, activation)
        return { x: () => dSum!, bias: () => dBias! }
      },
    },
  ]
}
