/** The bias and activation that tfjs fuses into products and convolutions. */
import type { TensorInfo } from '@tensorflow/tfjs-core'
import { type Heap, sizeOf } from './heap.ts'

export interface Fusion {
  readonly activation: string
  readonly leakyreluAlpha: number
}

/** tfjs's kernels for fused activations. */
const ACTIVATIONS: Readonly<Record<string, string>> = {
  elu: 'Elu',
  leakyrelu: 'LeakyRelu',
  prelu: 'Prelu',
  relu: 'Relu',
  relu6: 'Relu6',
  sigmoid: 'Sigmoid',
}

/**
 * activation(produce(start) + bias). A bias with one element per column is passed to `produce` as the start of its sums; any other bias
 * is added to them.
 */
export function fused(
  heap: Heap,
  { activation, leakyreluAlpha }: Fusion,
  bias: TensorInfo | undefined,
  columns: number,
  alpha: TensorInfo | undefined,
  produce: (start: TensorInfo | undefined) => TensorInfo,
): TensorInfo {
  const name = ACTIVATIONS[activation]
  if (name === undefined && activation !== 'linear') throw new Error(`no fused activation ${activation}`)
  const starts = bias !== undefined && bias.shape.at(-1) === columns && sizeOf(bias.shape) === columns
  let result = produce(starts ? bias : undefined)
  const apply = (kernel: string, inputs: Readonly<Record<string, TensorInfo | undefined>>, attributes = {}) => {
    const before = result
    result = heap.run(kernel, inputs, attributes)
    heap.free(before)
  }
  if (bias !== undefined && !starts) apply('Add', { a: result, b: bias })
  if (name === 'Prelu') apply(name, { x: result, alpha })
  else if (name !== undefined) apply(name, { x: result }, { alpha: leakyreluAlpha })
  return result
}
