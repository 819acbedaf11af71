/** The gradient of max pooling: tfjs's wasm backend finds no maximum in a window of negative elements. */
import type { TensorInfo } from '@tensorflow/tfjs-core'
import type { Heap, TensorKernels } from './heap.ts'

interface Attributes {
  readonly filterSize: [number, number] | number
  readonly strides: [number, number] | number
  readonly pad: 'valid' | 'same' | number
  readonly dimRoundingMode?: 'floor' | 'round' | 'ceil'
}

export function poolingKernels(heap: Heap): TensorKernels {
  return {
    /** Adds each output's gradient to the first maximum of its window. */
    MaxPoolGrad({ inputs, attrs }) {
      const { dy, input } = inputs as { dy: TensorInfo; input: TensorInfo }
      const { filterSize, strides, pad, dimRoundingMode } = attrs as unknown as Attributes
      const shape = input.shape as [number, number, number, number]
      const info = heap.tf.backend_util.computePool2DInfo(shape, filterSize, strides, 1, pad, dimRoundingMode)
      const dx = heap.output(shape, 'float32')
      const [into, xs, dys] = [heap.floats(dx).fill(0), heap.floats(input), heap.floats(dy)]
      const { inHeight, inWidth, inChannels, outHeight, outWidth, filterHeight, filterWidth, padInfo } = info
      let at = 0
      for (let image = 0; image < info.batchSize; image++) {
        for (let y = 0; y < outHeight; y++) {
          const top = y * info.strideHeight - padInfo.top
          const [firstRow, rowsEnd] = [Math.max(0, top), Math.min(inHeight, top + filterHeight)]
          for (let column = 0; column < outWidth; column++) {
            const left = column * info.strideWidth - padInfo.left
            const [firstColumn, columnsEnd] = [Math.max(0, left), Math.min(inWidth, left + filterWidth)]
            for (let channel = 0; channel < inChannels; channel++, at++) {
              let most = Number.NEGATIVE_INFINITY
              let best = -1
              for (let r = firstRow; r < rowsEnd; r++) {
                for (let c = firstColumn; c < columnsEnd; c++) {
                  const from = ((image * inHeight + r) * inWidth + c) * inChannels + channel
                  if (best >= 0 && !(xs[from]! > most)) continue
                  most = xs[from]!
                  best = from
                }
              }
              if (best >= 0) into[best] = into[best]! + dys[at]!
            }
          }
        }
      }
      return dx
    },
  }
}
