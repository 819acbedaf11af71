/** Gradients of convolutions that tfjs's wasm backend lacks: by the filter, and by a depthwise convolution's input. */
import type { backend_util, TensorInfo } from '@tensorflow/tfjs-core'
import { type Heap, type KernelArguments, sizeOf, type TensorKernels } from './heap.ts'

type Convolution = backend_util.Conv2DInfo

interface FilterAttributes {
  readonly strides: [number, number] | number
  readonly pad: 'valid' | 'same' | number
  readonly dataFormat: 'NHWC' | 'NCHW'
  readonly dimRoundingMode: 'floor' | 'round' | 'ceil'
  readonly filterShape: [number, number, number, number]
}

interface DepthwiseAttributes extends FilterAttributes {
  readonly dilations: [number, number] | number
  readonly inputShape: [number, number, number, number]
}

type Shape4 = [number, number, number, number]

/** Elements of the patches that are unfolded at once: 1 MiB, which stays in the second-level cache. */
const PATCH_ELEMENTS = 1 << 18

/** Conv2DBackpropFilter, DepthwiseConv2dNativeBackpropFilter and DepthwiseConv2dNativeBackpropInput. */
export function convolutionKernels(heap: Heap): TensorKernels {
  const { computeConv2DInfo, convertConv2DDataFormat } = heap.tf.backend_util

  /** Every output pixel's patch of the input as a row; then the filter's gradient is patchesᵀ · dy. */
  const conv2DBackpropFilter = ({ inputs, attrs }: KernelArguments): TensorInfo => {
    const { strides, pad, dataFormat, dimRoundingMode, filterShape } = attrs as unknown as FilterAttributes
    const format = convertConv2DDataFormat(dataFormat)
    const given = inputs.x!.shape as Shape4
    const info = computeConv2DInfo(given, filterShape, strides, 1, pad, dimRoundingMode, false, format)
    const last = format === 'channelsLast'
    const perm = [0, 2, 3, 1]
    const x = last ? inputs.x! : heap.run('Transpose', { x: inputs.x! }, { perm })
    const dy = last ? inputs.dy! : heap.run('Transpose', { x: inputs.dy! }, { perm })
    const dFilter = filterGradient(heap, x, dy, info)
    if (!last) heap.free(x)
    if (!last) heap.free(dy)
    return dFilter
  }

  const depthwiseFilter = ({ inputs: { x, dy }, attrs }: KernelArguments): TensorInfo => {
    const { strides, dilations, pad, dimRoundingMode, filterShape } = attrs as unknown as DepthwiseAttributes
    const info = computeConv2DInfo(x!.shape as Shape4, filterShape, strides, dilations, pad, dimRoundingMode, true)
    const multiplier = info.outChannels / info.inChannels
    const dFilter = heap.output(info.filterShape, 'float32')
    const [xs, dys] = [heap.floats(x!), heap.floats(dy!)]
    const sums = new Float64Array(sizeOf(info.filterShape))
    forEachTap(info, (xAt, yAt, tap) => {
      const [from, d, s] = [xAt * info.inChannels, yAt * info.outChannels, tap * info.outChannels]
      for (let j = 0; j < info.outChannels; j++) {
        sums[s + j] = sums[s + j]! + xs[from + Math.floor(j / multiplier)]! * dys[d + j]!
      }
    })
    heap.floats(dFilter).set(sums)
    return dFilter
  }

  const depthwiseInput = ({ inputs: { dy, filter }, attrs }: KernelArguments): TensorInfo => {
    const { strides, dilations, pad, dimRoundingMode, inputShape } = attrs as unknown as DepthwiseAttributes
    const shape = filter!.shape as Shape4
    const info = computeConv2DInfo(inputShape, shape, strides, dilations, pad, dimRoundingMode, true)
    const multiplier = info.outChannels / info.inChannels
    const dx = heap.output(inputShape, 'float32')
    const [into, dys, weights] = [heap.floats(dx).fill(0), heap.floats(dy!), heap.floats(filter!)]
    forEachTap(info, (xAt, yAt, tap) => {
      const [to, d, w] = [xAt * info.inChannels, yAt * info.outChannels, tap * info.outChannels]
      for (let i = 0, j = 0; i < info.inChannels; i++) {
        let sum = into[to + i]!
        for (let k = 0; k < multiplier; k++, j++) sum += dys[d + j]! * weights[w + j]!
        into[to + i] = sum
      }
    })
    return dx
  }

  return {
    Conv2DBackpropFilter: conv2DBackpropFilter,
    DepthwiseConv2dNativeBackpropFilter: depthwiseFilter,
    DepthwiseConv2dNativeBackpropInput: depthwiseInput,
  }
}

/** Of NHWC tensors, in groups of images whose patches fit PATCH_ELEMENTS. */
function filterGradient(heap: Heap, x: TensorInfo, dy: TensorInfo, info: Convolution): TensorInfo {
  const { batchSize, outHeight, outWidth, outChannels, inChannels, inHeight, inWidth } = info
  const pixels = outHeight * outWidth
  const width = info.filterHeight * info.filterWidth * inChannels
  const group = Math.min(batchSize, Math.max(1, Math.floor(PATCH_ELEMENTS / (pixels * width))))
  const dFilter = heap.output(info.filterShape, 'float32')
  const dBias = heap.output([outChannels], 'float32') // The kernel sums it too.
  const patches = heap.output([group * pixels * width], 'float32')
  const { kernels } = heap
  const [into, bias, rows] = [heap.floats(dFilter).fill(0), heap.floats(dBias), heap.floats(patches)]
  const [xs, dys] = [heap.floats(x), heap.floats(dy)]
  const [imageX, imageY] = [inHeight * inWidth * inChannels, pixels * outChannels]
  for (let first = 0; first < batchSize; first += group) {
    const count = Math.min(group, batchSize - first)
    for (let i = 0; i < count; i++) unfold(rows, xs, info, i * pixels * width, (first + i) * imageX)
    const gradients = dys.subarray(first * imageY, (first + count) * imageY)
    kernels.denseBackwardWeights(into, bias, gradients, rows, count * pixels, width, outChannels, 0)
  }
  heap.free(dBias)
  heap.free(patches)
  return dFilter
}

/** One image's patches as rows, zero where they reach beyond the image. */
function unfold(rows: Float32Array, x: Float32Array, info: Convolution, rowsFrom: number, xFrom: number): void {
  const { outHeight, outWidth, inHeight, inWidth, inChannels, filterHeight, filterWidth } = info
  const { strideHeight, strideWidth, padInfo } = info
  let at = rowsFrom
  for (let y = 0; y < outHeight; y++) {
    for (let column = 0; column < outWidth; column++) {
      const left = column * strideWidth - padInfo.left
      for (let r = 0; r < filterHeight; r++) {
        const row = y * strideHeight - padInfo.top + r
        const isInside = row >= 0 && row < inHeight
        for (let c = left; c < left + filterWidth; c++) {
          const from = xFrom + (row * inWidth + c) * inChannels
          const isPixel = isInside && c >= 0 && c < inWidth
          for (let k = 0; k < inChannels; k++, at++) rows[at] = isPixel ? x[from + k]! : 0
        }
      }
    }
  }
}

/** Calls `visit(input pixel, output pixel, filter's tap)` wherever a tap of the filter lies on the image, taps outermost. */
function forEachTap(info: Convolution, visit: (xAt: number, yAt: number, tap: number) => void): void {
  const { batchSize, outHeight, outWidth, inHeight, inWidth, filterHeight, filterWidth } = info
  const { strideHeight, strideWidth, dilationHeight, dilationWidth, padInfo } = info
  for (let r = 0; r < filterHeight; r++) {
    for (let c = 0; c < filterWidth; c++) {
      for (let image = 0; image < batchSize; image++) {
        for (let y = 0; y < outHeight; y++) {
          const row = y * strideHeight - padInfo.top + r * dilationHeight
          if (row < 0 || row >= inHeight) continue
          for (let column = 0; column < outWidth; column++) {
            const at = column * strideWidth - padInfo.left + c * dilationWidth
            if (at < 0 || at >= inWidth) continue
            const xAt = (image * inHeight + row) * inWidth + at
            visit(xAt, (image * outHeight + y) * outWidth + column, r * filterWidth + c)
          }
        }
      }
    }
  }
}
