/**
 * Convolutions of images, flattened row by row with channels last: stride 1, "same" padding with zeros (as in
 * TensorFlow: with an even kernelSize the larger half comes last), and relu. Weights are
 * kernelSize × kernelSize × channels × filters. Kernels read patches in place and never unfold them.
 */
import { checkGiven } from '../../base/errors.ts'

/** The sizes of images and of their filters. */
export interface ImageFilters {
  readonly height: number
  readonly width: number
  readonly channels: number
  readonly filters: number
  readonly kernelSize: number
}

/** Elements of workspace for the kernels: an image with its border, and a copy of the weights. */
export function convolutionScratch(image: ImageFilters): number {
  checkGiven('image of convolutionScratch', image, ['height', 'width', 'channels', 'filters', 'kernelSize'])
  const { height, width, channels, filters, kernelSize } = image
  const border = kernelSize - 1
  return (height + border) * (width + border) * Math.max(channels, filters) + kernelSize ** 2 * channels * filters
}

/**
 * y (numRows × height × width × filters) = relu(x ⋆ W + b), from row `xFrom` of x. Each output is summed in f64 over
 * its patch in ascending order, then rounded once, so a row's result depends only on that row.
 */
export function convolutionForward(
  y: Float32Array,
  x: Float32Array,
  weight: Float32Array,
  bias: Float32Array,
  _workspace: Float32Array,
  image: ImageFilters,
  numRows: number,
  xFrom: number,
): void {
  const { height, width, channels, filters } = image
  const sums = new Float64Array(filters)
  for (let row = 0, out = 0; row < numRows; row++) {
    const from = (xFrom + row) * height * width * channels
    for (let pixel = 0; pixel < height * width; pixel++, out += filters) {
      sums.set(bias.subarray(0, filters))
      forEachTap(image, pixel, (tap, place) => {
        for (let c = 0, w = tap * channels * filters; c < channels; c++) {
          const input = x[from + place * channels + c]!
          for (let f = 0; f < filters; f++, w++) sums[f] = sums[f]! + input * weight[w]!
        }
      })
      for (let f = 0; f < filters; f++) y[out + f] = Math.max(0, sums[f]!)
    }
  }
}

/**
 * Adds the gradient by W to dWeight and the gradient by b to dBias, from the gradient by the sums before the relu. Each image has its own
 * sum.
 */
export function convolutionBackwardWeights(
  dWeight: Float32Array,
  dBias: Float32Array,
  dy: Float32Array,
  x: Float32Array,
  _workspace: Float32Array,
  image: ImageFilters,
  numRows: number,
  xFrom: number,
): void {
  const { height, width, channels, filters, kernelSize } = image
  const weights = new Float64Array(kernelSize ** 2 * channels * filters)
  const biases = new Float64Array(filters)
  for (let row = 0, d = 0; row < numRows; row++) {
    const from = (xFrom + row) * height * width * channels
    weights.fill(0)
    biases.fill(0)
    for (let pixel = 0; pixel < height * width; pixel++, d += filters) {
      for (let f = 0; f < filters; f++) biases[f] = biases[f]! + dy[d + f]!
      forEachTap(image, pixel, (tap, place) => {
        for (let c = 0, w = tap * channels * filters; c < channels; c++) {
          const input = x[from + place * channels + c]!
          for (let f = 0; f < filters; f++, w++) weights[w] = weights[w]! + input * dy[d + f]!
        }
      })
    }
    for (let w = 0; w < weights.length; w++) dWeight[w] = dWeight[w]! + weights[w]!
    for (let f = 0; f < filters; f++) dBias[f] = dBias[f]! + biases[f]!
  }
}

/**
 * Writes dx, the gradient by the sums of the convolution below, whose outputs are x (numRows images, as dx). It is 0 where that relu was 0.
 */
export function convolutionBackwardInput(
  dx: Float32Array,
  dy: Float32Array,
  weight: Float32Array,
  _workspace: Float32Array,
  x: Float32Array,
  image: ImageFilters,
  numRows: number,
): void {
  const { height, width, channels, filters } = image
  const size = height * width * channels
  const sums = new Float64Array(size)
  for (let row = 0, d = 0; row < numRows; row++) {
    sums.fill(0)
    for (let pixel = 0; pixel < height * width; pixel++, d += filters) {
      forEachTap(image, pixel, (tap, place) => {
        for (let c = 0, w = tap * channels * filters; c < channels; c++) {
          let sum = sums[place * channels + c]!
          for (let f = 0; f < filters; f++, w++) sum += dy[d + f]! * weight[w]!
          sums[place * channels + c] = sum
        }
      })
    }
    for (let i = 0; i < size; i++) dx[row * size + i] = x[row * size + i]! > 0 ? sums[i]! : 0
  }
}

/** Calls `visit` for each tap of the filters at `pixel` that is inside the image, with the pixel under the tap. */
function forEachTap(
  { height, width, kernelSize }: ImageFilters,
  pixel: number,
  visit: (tap: number, place: number) => void,
): void {
  const before = (kernelSize - 1) >> 1
  const top = Math.floor(pixel / width) - before
  const left = (pixel % width) - before
  for (let i = 0, tap = 0; i < kernelSize; i++) {
    for (let j = 0; j < kernelSize; j++, tap++) {
      const isOnImage = top + i >= 0 && top + i < height && left + j >= 0 && left + j < width
      if (isOnImage) visit(tap, (top + i) * width + left + j)
    }
  }
}
