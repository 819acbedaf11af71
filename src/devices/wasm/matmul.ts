/**
 * Matrix products. tfjs's wasm backend runs a product with a transposed side, and every batch of products, without SIMD
 * (2.5 GFLOP/s against 30), multiplies no integers, and broadcasts no batch but one matrix.
 */
import type { TensorInfo } from '@tensorflow/tfjs-core'
import { type Heap, type KernelArguments, sizeOf, type TensorKernels } from './heap.ts'

interface Sides {
  readonly transposeA: boolean
  readonly transposeB: boolean
}

interface Fusion extends Sides {
  readonly activation: string
  readonly leakyreluAlpha: number
}

/** tfjs's kernels for the activations that it fuses. */
const ACTIVATIONS: Readonly<Record<string, string>> = {
  elu: 'Elu',
  leakyrelu: 'LeakyRelu',
  prelu: 'Prelu',
  relu: 'Relu',
  relu6: 'Relu6',
  sigmoid: 'Sigmoid',
}

/** BatchMatMul and _FusedMatMul. */
export function matmulKernels(heap: Heap): TensorKernels {
  const batchMatMul = ({ inputs: { a, b }, attrs }: KernelArguments): TensorInfo => {
    return multiply(heap, a!, b!, undefined, attrs as unknown as Sides)
  }
  const fusedMatMul = ({ inputs, attrs }: KernelArguments): TensorInfo => {
    const { a, b, bias, preluActivationWeights } = inputs
    const { activation, leakyreluAlpha, ...sides } = attrs as unknown as Fusion
    if (activation !== 'linear' && !(activation in ACTIVATIONS)) throw new Error(`no fused activation ${activation}`)
    const columns = sides.transposeB ? b!.shape.at(-2) : b!.shape.at(-1)
    // A bias for each column starts the sums; any other is added to them.
    const starts = bias !== undefined && bias.shape.at(-1) === columns && sizeOf(bias.shape) === columns
    let result = multiply(heap, a!, b!, starts ? bias : undefined, sides)
    const apply = (name: string, inputs: Readonly<Record<string, TensorInfo>>, attributes = {}) => {
      const before = result
      result = heap.run(name, inputs, attributes)
      heap.free(before)
    }
    if (bias !== undefined && !starts) apply('Add', { a: result, b: bias })
    const name = ACTIVATIONS[activation]
    if (name === 'Prelu') apply(name, { x: result, alpha: preluActivationWeights! })
    else if (name !== undefined) apply(name, { x: result }, { alpha: leakyreluAlpha })
    return result
  }
  return { BatchMatMul: batchMatMul, _FusedMatMul: fusedMatMul }
}

/** C (rows × columns) = A (rows × depth) · B (depth × columns) for every matrix of the batch. */
function multiply(heap: Heap, a: TensorInfo, b: TensorInfo, bias: TensorInfo | undefined, sides: Sides): TensorInfo {
  const { transposeA, transposeB } = sides
  const [rows, depth] = matrix(a, transposeA)
  const [otherDepth, columns] = matrix(b, transposeB)
  if (depth !== otherDepth) {
    throw new Error(`matMul of [${a.shape}] and [${b.shape}]: the inner sides are ${depth} and ${otherDepth} long`)
  }
  const [batchA, batchB] = [a.shape.slice(0, -2), b.shape.slice(0, -2)]
  const batch = heap.tf.broadcast_util.assertAndGetBroadcastShape(batchA, batchB)
  const { dtype } = a
  const c = heap.output([...batch, rows, columns], dtype)
  const [aAt, bAt] = [matrixNumbers(batch, batchA), matrixNumbers(batch, batchB)]
  const [sizeA, sizeB, sizeC] = [rows * depth, depth * columns, rows * columns]
  if (dtype === 'int32') {
    const [cs, as, bs] = [heap.ints(c), heap.ints(a), heap.ints(b)]
    const [aRow, aStep] = transposeA ? [1, rows] : [depth, 1]
    const [bStep, bColumn] = transposeB ? [1, depth] : [columns, 1]
    for (let n = 0, i = 0; n < aAt.length; n++) {
      const [aFrom, bFrom] = [aAt[n]! * sizeA, bAt[n]! * sizeB]
      for (let row = 0; row < rows; row++) {
        for (let column = 0; column < columns; column++, i++) {
          let sum = 0
          for (let k = 0; k < depth; k++) {
            sum += as[aFrom + row * aRow + k * aStep]! * bs[bFrom + column * bColumn + k * bStep]!
          }
          cs[i] = sum
        }
      }
    }
    return c
  }
  const scratch = heap.output([sizeA + sizeB], 'float32')
  const zeros = heap.output([Math.max(columns, rows)], 'float32')
  const { kernels } = heap
  const [cs, as, bs] = [heap.floats(c), heap.floats(a), heap.floats(b)]
  const [space, none] = [heap.floats(scratch), heap.floats(zeros).fill(0)]
  const start = bias === undefined ? none : heap.floats(bias)
  for (let n = 0; n < aAt.length; n++) {
    const product = cs.subarray(n * sizeC, (n + 1) * sizeC)
    const left = as.subarray(aAt[n]! * sizeA, (aAt[n]! + 1) * sizeA)
    const right = bs.subarray(bAt[n]! * sizeB, (bAt[n]! + 1) * sizeB)
    if (transposeA) {
      for (let row = 0; row < rows; row++)
        for (let k = 0; k < depth; k++) space[row * depth + k] = left[k * rows + row]!
    }
    const rowsOfA = transposeA ? space : left
    const spare = space.subarray(sizeA)
    if (transposeB) {
      for (let row = 0; row < rows; row++) product.set(start.subarray(0, columns), row * columns)
      kernels.denseBackwardInput(product, rowsOfA, right, spare, rows, columns, depth, true)
    } else kernels.denseForward(product, rowsOfA, right, start, rows, depth, columns, 0, 0, 0)
  }
  heap.free(scratch)
  heap.free(zeros)
  return c
}

/** Rows and columns of a tensor's matrices, transposed or not. */
function matrix({ shape }: TensorInfo, transposed: boolean): [number, number] {
  const [height, width] = [shape.at(-2)!, shape.at(-1)!]
  return transposed ? [width, height] : [height, width]
}

/** Which matrix of a tensor with batch shape `own` each matrix of the broadcast `batch` takes. */
function matrixNumbers(batch: readonly number[], own: readonly number[]): Int32Array {
  let numbers = Int32Array.of(0)
  const missing = batch.length - own.length
  for (const [axis, length] of batch.entries()) {
    const ownLength = axis < missing ? 1 : own[axis - missing]!
    numbers = Int32Array.from({ length: numbers.length * length }, (_, i) => {
      const before = numbers[Math.floor(i / length)]! * ownLength
      return ownLength === 1 ? before : before + (i % length)
    })
  }
  return numbers
}
