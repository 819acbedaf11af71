/** What a pass computes with a matrix of weights, in f32 or in fewer bits: weights in fewer are used as they lie. */
import type { Kernels } from '../../kernels/kernels.ts'
import type { Dense, Matrix } from './parameters.ts'

/** Workspace of products: see `forwardPlan`. */
interface Workspace {
  readonly scratch: Float32Array
  readonly dequantized: Float32Array
  readonly input: Uint8Array
  readonly inputScale: Float32Array
}

/** Sets y (count × outputs) = x · Wᵀ + bias, or adds that to y. `quantizesInputs`: inputs of weights in 8 and 4 bits become 8-bit. */
export function multiply(
  kernels: Kernels,
  { scratch, dequantized, input, inputScale }: Workspace,
  quantizesInputs: boolean,
  y: Float32Array,
  x: Float32Array,
  { numOutputs, numInputs, weight, quantized, bias }: Dense,
  count: number,
  accumulate: boolean,
): void {
  if (quantized === null) {
    kernels.matmul(y, x, weight, bias, scratch, count, numOutputs, numInputs, false, true, accumulate)
    return
  }
  const { bits, values } = quantized
  if (bits === 16) {
    kernels.matmulBf16(y, x, values, bias, dequantized, scratch, count, numOutputs, numInputs, accumulate)
  } else if (quantizesInputs) {
    kernels.quantizeInputs(input, inputScale, x, count, numInputs)
    if (bits === 4) {
      kernels.matmulIntegers4(y, input, inputScale, values, bias, count, numOutputs, numInputs, accumulate)
    } else {
      const { scale } = quantized
      kernels.matmulIntegers(y, input, inputScale, values, scale, bias, count, numOutputs, numInputs, accumulate)
    }
  } else if (bits === 4) {
    kernels.matmulQuantized4(y, x, values, bias, dequantized, scratch, count, numOutputs, numInputs, accumulate)
  } else {
    const { scale } = quantized
    kernels.matmulQuantized(y, x, values, scale, bias, dequantized, scratch, count, numOutputs, numInputs, accumulate)
  }
}

/** A matrix in f32: itself, or in `dequantized`. */
export function restore(kernels: Kernels, dequantized: Float32Array, matrix: Matrix): Float32Array {
  const { weight, quantized, numOutputs, numInputs } = matrix
  if (quantized === null) return weight
  const { bits, values } = quantized
  if (bits === 16) kernels.widenWeights(dequantized, values, numOutputs * numInputs)
  else if (bits === 8) kernels.dequantizeRows(dequantized, values, quantized.scale, numOutputs, numInputs)
  else kernels.dequantizeRows4(dequantized, values, numOutputs, numInputs)
  return dequantized
}

/** Row i of x: row `index[i]` of the matrix. */
export function gather(kernels: Kernels, x: Float32Array, matrix: Matrix, index: Uint32Array, count: number): void {
  const { weight, quantized, numInputs } = matrix
  if (quantized === null) {
    kernels.gatherRows(x, weight, index, 0, count, numInputs)
    return
  }
  const { bits, values } = quantized
  if (bits === 16) kernels.gatherBf16(x, values, index, count, numInputs)
  else if (bits === 8) kernels.gatherQuantized(x, values, quantized.scale, index, count, numInputs)
  else kernels.gatherQuantized4(x, values, index, count, numInputs)
}
