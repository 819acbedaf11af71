/** Kernels that move, gather and sum the elements of tensors. */

/** out (width × height) = x (height × width), transposed, for each of `count` matrices. */
export function transposeMatrices(
  out: Float32Array | Int32Array,
  x: Float32Array | Int32Array,
  count: number,
  height: number,
  width: number,
): void {
  for (let n = 0, i = 0; n < count; n++) {
    const matrix = n * height * width
    for (let row = 0; row < height; row++) {
      for (let column = 0; column < width; column++, i++) out[matrix + column * height + row] = x[i]!
    }
  }
}

/**
 * Copies `numRows` rows of `width` elements. Rows of `out` begin outRow elements apart, the first at element `outFrom`; those of x
 * likewise. Both columns have one type.
 */
export function copyRows(
  out: Float32Array | Int32Array | Uint8Array,
  x: Float32Array | Int32Array | Uint8Array,
  numRows: number,
  width: number,
  outRow: number,
  xRow: number,
  outFrom: number,
  xFrom: number,
): void {
  for (let row = 0; row < numRows; row++) {
    for (let k = 0; k < width; k++) out[outFrom + row * outRow + k] = x[xFrom + row * xRow + k]!
  }
}

/** out (count × width): the sums of x (count × depth × width) over its middle. */
export function sumMiddle(out: Float32Array, x: Float32Array, count: number, depth: number, width: number): void {
  for (let n = 0; n < count; n++) {
    for (let column = 0; column < width; column++) {
      let sum = 0
      for (let k = 0; k < depth; k++) sum += x[(n * depth + k) * width + column]!
      out[n * width + column] = sum
    }
  }
}

/**
 * Adds each row of x (numRows × width) to the row of `sums` (numSegments × width) that `segment` names, in rising order.
 * Rows with a negative segment, or one that does not exist, are skipped.
 */
export function addToSegments(
  sums: Float32Array,
  x: Float32Array,
  segment: Int32Array,
  numRows: number,
  width: number,
  numSegments: number,
): void {
  for (let row = 0; row < numRows; row++) {
    const into = segment[row]!
    if (into < 0 || into >= numSegments) continue
    for (let k = 0; k < width; k++) sums[into * width + k] = sums[into * width + k]! + x[row * width + k]!
  }
}

/** Images of height × width × channels, the outputs, and the strides and padding of a filter, in elements. */
export interface Convolution {
  readonly height: number
  readonly width: number
  readonly channels: number
  readonly outHeight: number
  readonly outWidth: number
  readonly filterHeight: number
  readonly filterWidth: number
  readonly strideHeight: number
  readonly strideWidth: number
  readonly dilationHeight: number
  readonly dilationWidth: number
  readonly padTop: number
  readonly padLeft: number
}

/**
 * The patch of each output pixel of x (count × height × width × channels) as one of count · outHeight · outWidth rows of
 * filterHeight · filterWidth · channels; 0 where a patch reaches beyond its image.
 */
export function unfoldPatches(patches: Float32Array, x: Float32Array, geometry: Convolution, count: number): void {
  const { height, width, channels, outHeight, outWidth, filterHeight, filterWidth, padTop, padLeft } = geometry
  const { strideHeight, strideWidth, dilationHeight, dilationWidth } = geometry
  let at = 0
  for (let image = 0; image < count * height * width; image += height * width) {
    for (let y = 0; y < outHeight; y++) {
      for (let column = 0; column < outWidth; column++) {
        for (let r = 0; r < filterHeight; r++) {
          const fromRow = y * strideHeight - padTop + r * dilationHeight
          for (let c = 0; c < filterWidth; c++) {
            const fromColumn = column * strideWidth - padLeft + c * dilationWidth
            const isPixel = fromRow >= 0 && fromRow < height && fromColumn >= 0 && fromColumn < width
            const from = (image + fromRow * width + fromColumn) * channels
            for (let k = 0; k < channels; k++, at++) patches[at] = isPixel ? x[from + k]! : 0
          }
        }
      }
    }
  }
}

/** The inverse of `unfoldPatches`: adds each element of `patches` to the pixel of x from which it came. */
export function foldPatches(x: Float32Array, patches: Float32Array, geometry: Convolution, count: number): void {
  const { height, width, channels, outHeight, outWidth, filterHeight, filterWidth, padTop, padLeft } = geometry
  const { strideHeight, strideWidth, dilationHeight, dilationWidth } = geometry
  let at = 0
  for (let image = 0; image < count * height * width; image += height * width) {
    for (let y = 0; y < outHeight; y++) {
      for (let column = 0; column < outWidth; column++) {
        for (let r = 0; r < filterHeight; r++) {
          const toRow = y * strideHeight - padTop + r * dilationHeight
          for (let c = 0; c < filterWidth; c++, at += channels) {
            const toColumn = column * strideWidth - padLeft + c * dilationWidth
            if (toRow < 0 || toRow >= height || toColumn < 0 || toColumn >= width) continue
            const to = (image + toRow * width + toColumn) * channels
            for (let k = 0; k < channels; k++) x[to + k] = x[to + k]! + patches[at + k]!
          }
        }
      }
    }
  }
}

/** To what `addDepthwise` adds. */
export const DepthwiseTarget = { output: 0, input: 1, filter: 2 } as const

/**
 * A depthwise convolution of `count` images, and its gradients: for each tap of the filter on an image, the product of
 * two of (outputs y, pixels x, taps of the filter) is added to the third, `into`. A channel of x has `multiplier` filters,
 * and as many neighboring channels of y.
 */
export function addDepthwise(
  y: Float32Array,
  x: Float32Array,
  weight: Float32Array,
  geometry: Convolution,
  into: number,
  multiplier: number,
  count: number,
): void {
  const { height, width, channels, outHeight, outWidth, filterHeight, filterWidth, padTop, padLeft } = geometry
  const { strideHeight, strideWidth, dilationHeight, dilationWidth } = geometry
  const outChannels = channels * multiplier
  for (let image = 0, out = 0; image < count * height * width; image += height * width) {
    for (let row = 0; row < outHeight; row++) {
      for (let column = 0; column < outWidth; column++, out += outChannels) {
        for (let r = 0; r < filterHeight; r++) {
          const fromRow = row * strideHeight - padTop + r * dilationHeight
          if (fromRow < 0 || fromRow >= height) continue
          for (let c = 0; c < filterWidth; c++) {
            const fromColumn = column * strideWidth - padLeft + c * dilationWidth
            if (fromColumn < 0 || fromColumn >= width) continue
            const pixel = (image + fromRow * width + fromColumn) * channels
            const tap = (r * filterWidth + c) * outChannels
            for (let j = 0; j < outChannels; j++) {
              const [yAt, xAt, wAt] = [out + j, pixel + Math.floor(j / multiplier), tap + j]
              if (into === DepthwiseTarget.output) y[yAt] = y[yAt]! + x[xAt]! * weight[wAt]!
              else if (into === DepthwiseTarget.input) x[xAt] = x[xAt]! + y[yAt]! * weight[wAt]!
              else weight[wAt] = weight[wAt]! + x[xAt]! * y[yAt]!
            }
          }
        }
      }
    }
  }
}
