/**
 * Convolutions as matrix products: the input patch of each output pixel is a row. tfjs's wasm backend has no gradient by a filter, no
 * gradient of a depthwise convolution, and no NCHW. For filters that are not square it returns wrong numbers, read beyond its tensors,
 * with numeric padding or with strides and `same` padding.
 */
import type { backend_util, TensorInfo } from '@tensorflow/tfjs-core'
import { DepthwiseTarget } from '../../../kernels/bind.ts'
import { type Fusion, fused } from './activation.ts'
import { type Heap, type Kernel, sizeOf, type TensorKernels } from './heap.ts'

type Convolution = backend_util.Conv2DInfo
type Shape4 = [number, number, number, number]

interface Attributes extends Fusion {
  readonly strides: [number, number] | number
  /** Layers pass null for none. */
  readonly dilations?: [number, number] | number | null
  readonly pad: 'valid' | 'same' | number
  readonly dataFormat?: 'NHWC' | 'NCHW'
  readonly dimRoundingMode?: 'floor' | 'round' | 'ceil'
  /** Only in gradients. */
  readonly inputShape: Shape4
  readonly filterShape: Shape4
}

/** Maximum elements of patches at a time: 1 MiB, about the size of a second-level cache. */
const PATCH_ELEMENTS = 1 << 18

/** Conv2D, FusedConv2D and the depthwise ones, with their gradients. */
export function convolutionKernels(heap: Heap): TensorKernels {
  const infoOf = (x: Shape4, filter: Shape4, attributes: Attributes, depthwise: boolean): Convolution => {
    const { strides, dilations, pad, dataFormat = 'NHWC', dimRoundingMode } = attributes
    const { computeConv2DInfo, convertConv2DDataFormat } = heap.tf.backend_util
    const format = convertConv2DDataFormat(dataFormat)
    return computeConv2DInfo(x, filter, strides, dilations ?? 1, pad, dimRoundingMode, depthwise, format)
  }
  const shapeOf = ({ shape }: TensorInfo) => shape as Shape4

  const forward = (x: TensorInfo, filter: TensorInfo, bias: TensorInfo | undefined, attributes: Attributes) => {
    const info = infoOf(shapeOf(x), shapeOf(filter), attributes, false)
    return channelsLast(heap, info, [x], ([rows]) => convolve(heap, rows!, filter, bias, info))
  }

  const theirDepthwise = heap.registered('DepthwiseConv2dNative')
  const depthwise = (x: TensorInfo, filter: TensorInfo, bias: TensorInfo | undefined, attributes: Attributes) => {
    const info = infoOf(shapeOf(x), shapeOf(filter), attributes, true)
    const { type } = info.padInfo
    const isTheirs = type === 'VALID' || (type === 'SAME' && info.strideHeight === 1 && info.strideWidth === 1)
    if (!isTheirs) return convolveDepthwise(heap, x, filter, bias, info)
    // tfjs's own kernel is three times as fast where it is correct.
    const y = theirDepthwise({ inputs: { x, filter }, attrs: { ...attributes } as never }) as TensorInfo
    if (bias === undefined) return y
    const sum = heap.run('Add', { a: y, b: bias })
    heap.free(y)
    return sum
  }

  const whole = (convolveWith: typeof forward): Kernel => {
    return ({ inputs: { x, filter }, attrs }) => convolveWith(x!, filter!, undefined, attrs as unknown as Attributes)
  }
  const fusedWith = (convolveWith: typeof forward): Kernel => {
    return ({ inputs: { x, filter, bias, preluActivationWeights }, attrs }) => {
      const attributes = attrs as unknown as Attributes
      const channels = sizeOf(filter!.shape.slice(convolveWith === depthwise ? 2 : 3))
      return fused(heap, attributes, bias, channels, preluActivationWeights, (start) =>
        convolveWith(x!, filter!, start, attributes),
      )
    }
  }

  return {
    Conv2D: whole(forward),
    FusedConv2D: fusedWith(forward),
    DepthwiseConv2dNative: whole(depthwise),
    FusedDepthwiseConv2D: fusedWith(depthwise),
    Conv2DBackpropInput({ inputs: { dy, filter }, attrs }) {
      const attributes = attrs as unknown as Attributes
      const info = infoOf(attributes.inputShape, shapeOf(filter!), attributes, false)
      return channelsLast(heap, info, [dy!], ([rows]) => inputGradient(heap, rows!, filter!, info))
    },
    Conv2DBackpropFilter({ inputs: { x, dy }, attrs }) {
      const attributes = attrs as unknown as Attributes
      const info = infoOf(shapeOf(x!), attributes.filterShape, attributes, false)
      return channelsLast(
        heap,
        info,
        [x!, dy!],
        ([rows, gradients]) => filterGradient(heap, rows!, gradients!, info),
        false,
      )
    },
    DepthwiseConv2dNativeBackpropInput({ inputs: { dy, filter }, attrs }) {
      const attributes = attrs as unknown as Attributes
      return depthwiseInputGradient(
        heap,
        dy!,
        filter!,
        infoOf(attributes.inputShape, shapeOf(filter!), attributes, true),
      )
    },
    DepthwiseConv2dNativeBackpropFilter({ inputs: { x, dy }, attrs }) {
      const attributes = attrs as unknown as Attributes
      return depthwiseFilterGradient(heap, x!, dy!, infoOf(shapeOf(x!), attributes.filterShape, attributes, true))
    },
  }
}

/** Runs `work` on NHWC tensors. NCHW inputs are transposed first, and so is the result if it is an image. */
function channelsLast(
  heap: Heap,
  { dataFormat }: Convolution,
  images: readonly TensorInfo[],
  work: (images: readonly TensorInfo[]) => TensorInfo,
  givesImage = true,
): TensorInfo {
  if (dataFormat === 'channelsLast') return work(images)
  const turned = images.map((x) => heap.run('Transpose', { x }, { perm: [0, 2, 3, 1] }))
  const result = work(turned)
  for (const tensor of turned) heap.free(tensor)
  if (!givesImage) return result
  const back = heap.run('Transpose', { x: result }, { perm: [0, 3, 1, 2] })
  heap.free(result)
  return back
}

/** Patches of some images at a time, in one tensor that the caller frees. */
class Patches {
  readonly width: number
  readonly pixels: number
  readonly tensor: TensorInfo
  readonly #group: number
  readonly #heap: Heap
  readonly #info: Convolution
  readonly #geometry: ReturnType<typeof geometryOf>

  constructor(heap: Heap, info: Convolution) {
    this.#heap = heap
    this.#info = info
    this.#geometry = geometryOf(info)
    this.pixels = info.outHeight * info.outWidth
    this.width = info.filterHeight * info.filterWidth * info.inChannels
    const fitting = Math.floor(PATCH_ELEMENTS / Math.max(1, this.pixels * this.width))
    this.#group = Math.max(1, Math.min(info.batchSize, fitting))
    this.tensor = heap.output([this.#group * this.pixels, this.width], 'float32')
  }

  /** Calls `visit(patches, images, outputs)` with the elements of each group of images; an output has `channels` channels. */
  forEachGroup(
    images: Float32Array,
    outputs: Float32Array,
    visit: (patches: Float32Array, images: Float32Array, outputs: Float32Array, count: number) => void,
  ): void {
    const { batchSize, inHeight, inWidth, inChannels, outChannels } = this.#info
    const [imageSize, outputSize] = [inHeight * inWidth * inChannels, this.pixels * outChannels]
    const patches = this.#heap.floats(this.tensor)
    for (let first = 0; first < batchSize; first += this.#group) {
      const end = Math.min(first + this.#group, batchSize)
      visit(
        patches,
        images.subarray(first * imageSize, end * imageSize),
        outputs.subarray(first * outputSize, end * outputSize),
        end - first,
      )
    }
  }

  /** Fills the patches from `count` images (`unfold`), or adds them to the images (`fold`). */
  move(way: 'unfold' | 'fold', patches: Float32Array, images: Float32Array, count: number): void {
    const { kernels } = this.#heap
    if (way === 'unfold') kernels.unfoldPatches(patches, images, this.#geometry, count)
    else kernels.foldPatches(images, patches, this.#geometry, count)
  }
}

function geometryOf({ inHeight: height, inWidth: width, inChannels: channels, padInfo, ...info }: Convolution) {
  return { ...info, height, width, channels, padTop: padInfo.top, padLeft: padInfo.left }
}

function convolve(
  heap: Heap,
  x: TensorInfo,
  filter: TensorInfo,
  bias: TensorInfo | undefined,
  info: Convolution,
): TensorInfo {
  const { batchSize, outHeight, outWidth, outChannels } = info
  const y = heap.output([batchSize, outHeight, outWidth, outChannels], 'float32')
  const patches = new Patches(heap, info)
  const { kernels, scratch } = heap
  const [weights, none] = [heap.floats(filter), scratch.subarray(0, 0)]
  const start = bias === undefined ? none : heap.floats(bias)
  patches.forEachGroup(heap.floats(x), heap.floats(y), (rows, images, outputs, count) => {
    patches.move('unfold', rows, images, count)
    const numRows = count * patches.pixels
    kernels.matmul(outputs, rows, weights, start, scratch, numRows, outChannels, patches.width, false, false, false)
  })
  heap.free(patches.tensor)
  return y
}

function inputGradient(heap: Heap, dy: TensorInfo, filter: TensorInfo, info: Convolution): TensorInfo {
  const { batchSize, inHeight, inWidth, inChannels, outChannels } = info
  const dx = heap.output([batchSize, inHeight, inWidth, inChannels], 'float32')
  const patches = new Patches(heap, info)
  const { kernels, scratch } = heap
  const [weights, none] = [heap.floats(filter), scratch.subarray(0, 0)]
  patches.forEachGroup(heap.floats(dx).fill(0), heap.floats(dy), (rows, images, outputs, count) => {
    const numRows = count * patches.pixels
    kernels.matmul(rows, outputs, weights, none, scratch, numRows, patches.width, outChannels, false, true, false)
    patches.move('fold', rows, images, count)
  })
  heap.free(patches.tensor)
  return dx
}

function filterGradient(heap: Heap, x: TensorInfo, dy: TensorInfo, info: Convolution): TensorInfo {
  const dFilter = heap.output(info.filterShape, 'float32')
  const patches = new Patches(heap, info)
  const { kernels, scratch } = heap
  const [into, none] = [heap.floats(dFilter).fill(0), scratch.subarray(0, 0)]
  patches.forEachGroup(heap.floats(x), heap.floats(dy), (rows, images, outputs, count) => {
    patches.move('unfold', rows, images, count)
    const numRows = count * patches.pixels
    kernels.matmul(into, rows, outputs, none, scratch, patches.width, info.outChannels, numRows, true, false, true)
  })
  heap.free(patches.tensor)
  return dFilter
}

// Depthwise: each channel has its own filters, so there is no matrix product.

function convolveDepthwise(
  heap: Heap,
  x: TensorInfo,
  filter: TensorInfo,
  bias: TensorInfo | undefined,
  info: Convolution,
): TensorInfo {
  const y = heap.output(info.outShape, 'float32')
  const outputs = heap.floats(y).fill(0)
  if (bias !== undefined) {
    const start = heap.floats(bias)
    for (let at = 0; at < outputs.length; at += start.length) outputs.set(start, at)
  }
  addImages(heap, outputs, heap.floats(x), heap.floats(filter), DepthwiseTarget.output, info)
  return y
}

function depthwiseInputGradient(heap: Heap, dy: TensorInfo, filter: TensorInfo, info: Convolution): TensorInfo {
  const dx = heap.output(info.inShape, 'float32')
  addImages(heap, heap.floats(dy), heap.floats(dx).fill(0), heap.floats(filter), DepthwiseTarget.input, info)
  return dx
}

function depthwiseFilterGradient(heap: Heap, x: TensorInfo, dy: TensorInfo, info: Convolution): TensorInfo {
  const dFilter = heap.output(info.filterShape, 'float32')
  addImages(heap, heap.floats(dy), heap.floats(x), heap.floats(dFilter).fill(0), DepthwiseTarget.filter, info)
  return dFilter
}

function addImages(
  heap: Heap,
  outputs: Float32Array,
  images: Float32Array,
  weights: Float32Array,
  into: number,
  info: Convolution,
): void {
  const { batchSize, outChannels, inChannels } = info
  heap.kernels.addDepthwise(outputs, images, weights, geometryOf(info), into, outChannels / inChannels, batchSize)
}
