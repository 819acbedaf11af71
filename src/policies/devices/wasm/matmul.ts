/**
 * Matrix products. tfjs's wasm backend computes transposed and batched products without SIMD (2.5 GFLOP/s instead of 30), does not
 * multiply integers, and broadcasts no batch except a single matrix.
 */
import type { TensorInfo } from '@tensorflow/tfjs-core'
import { type Fusion, fused } from './activation.ts'
import type { Heap, TensorKernels } from './heap.ts'

interface Sides {
  readonly transposeA: boolean
  readonly transposeB: boolean
}

/** BatchMatMul and _FusedMatMul. */
export function matmulKernels(heap: Heap): TensorKernels {
  return {
    BatchMatMul({ inputs: { a, b }, attrs }) {
      return multiply(heap, a!, b!, undefined, attrs as unknown as Sides)
    },
    _FusedMatMul({ inputs: { a, b, bias, preluActivationWeights }, attrs }) {
      const fusion = attrs as unknown as Sides & Fusion
      const columns = (fusion.transposeB ? b!.shape.at(-2) : b!.shape.at(-1))!
      return fused(heap, fusion, bias, columns, preluActivationWeights, (start) =>
        multiply(heap, a!, b!, start, fusion),
      )
    },
  }
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
  const numbersA = matrixNumbers(batch, batchA)
  const numbersB = matrixNumbers(batch, batchB)
  const as = dtype === 'int32' ? heap.ints(a) : heap.floats(a)
  const bs = dtype === 'int32' ? heap.ints(b) : heap.floats(b)
  const cs = dtype === 'int32' ? heap.ints(c) : heap.floats(c)
  const { kernels, scratch } = heap
  const start = bias === undefined ? scratch.subarray(0, 0) : heap.floats(bias)
  const [sizeA, sizeB, sizeC] = [rows * depth, depth * columns, rows * columns]
  for (let n = 0; n < numbersA.length; n++) {
    const product = cs.subarray(n * sizeC, (n + 1) * sizeC)
    const left = as.subarray(numbersA[n]! * sizeA, (numbersA[n]! + 1) * sizeA)
    const right = bs.subarray(numbersB[n]! * sizeB, (numbersB[n]! + 1) * sizeB)
    if (product instanceof Float32Array) {
      const [floatsA, floatsB] = [left as Float32Array, right as Float32Array]
      kernels.matmul(product, floatsA, floatsB, start, scratch, rows, columns, depth, transposeA, transposeB, false)
    } else multiplyInts(product, left, right, rows, columns, depth, transposeA, transposeB)
  }
  return c
}

/** Integer version of the kernel `matmul`; a sum beyond 32 bits wraps, as in tfjs's cpu backend. */
function multiplyInts(
  c: ArrayLike<number> & { [i: number]: number },
  a: ArrayLike<number>,
  b: ArrayLike<number>,
  rows: number,
  columns: number,
  depth: number,
  transposeA: boolean,
  transposeB: boolean,
): void {
  const [aRow, aStep] = transposeA ? [1, rows] : [depth, 1]
  const [bColumn, bStep] = transposeB ? [depth, 1] : [1, columns]
  for (let row = 0, i = 0; row < rows; row++) {
    for (let column = 0; column < columns; column++, i++) {
      let sum = 0
      for (let k = 0; k < depth; k++) sum += a[row * aRow + k * aStep]! * b[column * bColumn + k * bStep]!
      c[i] = sum
    }
  }
}

/** Rows and columns of a tensor's matrices, transposed or not. */
function matrix({ shape }: TensorInfo, transposed: boolean): [number, number] {
  const [height, width] = [shape.at(-2)!, shape.at(-1)!]
  return transposed ? [width, height] : [height, width]
}

/** For each matrix of the broadcast `batch`, the index of the matrix in a tensor with batch shape `own`. */
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
